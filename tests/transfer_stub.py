"""Weights from GPU to GPU without GPUs: a server that takes them as vLLM 0.32 does (its `rl/online/api_router.py` and
`worker/gpu_worker.py`), and vLLM's side of the trainer (`distributed/weight_transfer`), with a queue for NCCL."""

import copy
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from queue import Queue
from types import ModuleType
from typing import Any, ClassVar, NamedTuple

from vllm_stub import VllmStub

from tutelage.models.policy import Policy

JOIN, BEGIN = "/init_weight_transfer_engine", "/start_weight_update"
RECEIVE, END = "/update_weights", "/finish_weight_update"
GROUPS: defaultdict[int, Queue] = defaultdict(Queue)
"""What is sent in each group, by the port at which it met."""


@dataclass
class TransferStub(VllmStub):
    """`VllmStub` with the requests of weight transfer; `configured` is false without --weight-transfer-config."""

    configured: bool = True
    joined: dict[str, Any] = field(default_factory=dict)
    updating: bool = False

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        """See `VllmStub`."""
        if path == "/get_world_size":
            return {"world_size": 2}
        if path not in (JOIN, BEGIN, RECEIVE, END):
            return super().answer(path, body)
        if path in (JOIN, RECEIVE) and not body:
            return 405, "Method Not Allowed"
        if not self.configured:
            return 500, "Weight transfer not configured. Please set weight_transfer_config."
        if self.updating == (path in (JOIN, BEGIN)):
            return 500, f"{path} out of turn"
        self.updating = path != END and path != JOIN
        if path == JOIN:
            self.joined = body["init_info"]
        if path == RECEIVE:
            self.receive(body["update_info"])
        return {"message": "done"}

    def receive(self, told: dict[str, Any]) -> None:
        """Take the tensors off the wire, which have to be those that were announced."""
        model, group = copy.deepcopy(self.policy.model), GROUPS[self.joined["master_port"]]
        expected = dict(model.named_parameters())
        assert sorted(expected) == sorted(told["names"])
        for name, kind, shape in zip(told["names"], told["dtype_names"], told["shapes"], strict=True):
            tensor = group.get(timeout=10)
            assert (str(tensor.dtype), list(tensor.shape)) == (f"torch.{kind}", shape)
            expected[name].data.copy_(tensor)
        if not self.deaf:
            self.policy = Policy(replace(self.policy.backbone, model=model))


class ParamMeta(NamedTuple):
    """Of vLLM."""

    name: str
    dtype: Any
    shape: tuple[int, ...]


@dataclass
class NCCLTrainerInitInfo:
    """Of vLLM."""

    backend: ClassVar[str] = "nccl"
    master_address: str
    master_port: int
    world_size: int
    rank: int = field(kw_only=True)


@dataclass
class NCCLTrainerWeightTransferEngine:
    """Of vLLM: the requests of an update, and the tensors meanwhile."""

    client: Any
    source: Any
    group: Queue

    def send_weights(self) -> None:
        """One version."""
        meta = self.source.metadata()
        told = {
            "names": [m.name for m in meta],
            "dtype_names": [str(m.dtype).split(".")[-1] for m in meta],
            "shapes": [list(m.shape) for m in meta],
        }
        self.client.start_weight_update()
        with ThreadPoolExecutor(1) as pool:
            received = pool.submit(self.client.update_weights, told)
            for expected, (name, tensor) in zip(meta, self.source, strict=True):
                assert expected == (name, tensor.dtype, tuple(tensor.shape))
                self.group.put(tensor.clone())
            received.result()
        self.client.finish_weight_update()


class WeightTransferTrainerFactory:
    """Of vLLM."""

    @classmethod
    def trainer_init(cls, init_info, *, client, source=None):
        """Meet the server."""
        told = {name: getattr(init_info, name) for name in ("master_address", "master_port", "world_size")}
        client.init_weight_transfer_engine(told | {"rank_offset": 1, "packed": True})
        return NCCLTrainerWeightTransferEngine(client, source, GROUPS[init_info.master_port])


def install(monkeypatch) -> None:
    """Let `import vllm.distributed.weight_transfer` find what is above."""
    names = ("vllm", "vllm.distributed", "vllm.distributed.weight_transfer")
    for name in (*names, f"{names[-1]}.nccl_engine"):
        module = ModuleType(name)
        module.ParamMeta, module.WeightTransferTrainerFactory = ParamMeta, WeightTransferTrainerFactory
        module.NCCLTrainerInitInfo = NCCLTrainerInitInfo
        monkeypatch.setitem(sys.modules, name, module)
