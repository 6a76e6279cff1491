"""Weight transfer over NCCL, from the training GPU to those of a vLLM server, through vLLM's trainer API.

    GET  /get_world_size                 the GPUs of the server, which form an NCCL group with this process as rank 0
    POST /init_weight_transfer_engine    once, while this process opens the group
    POST /pause                          then for every version:
    POST /start_weight_update
    POST /update_weights                 names, types and shapes, while this process broadcasts the tensors
    POST /finish_weight_update
    POST /update_weight_version
    POST /resume

vLLM is imported on creation of the handover.
"""

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import torch
from peft import PeftModel
from torch import Tensor

from tutelage.base.errors import TutelageError
from tutelage.models.policy import Policy
from tutelage.rollout.generator import RolloutError
from tutelage.rollout.server.api import Connection, WholeModel
from tutelage.rollout.server.vllm import has_route

INSTEAD = "Use --sync disk, which needs a folder that both see."


class Sender(Protocol):
    """vLLM's `TrainerWeightTransferEngine`: sends all weights, together with the requests of an update."""

    def send_weights(self) -> None: ...


@dataclass(frozen=True)
class Control:
    """Requests of an update, with the interface of vLLM's `VLLMWeightSyncClient`."""

    connection: Connection

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Make the server join the NCCL group."""
        self.connection.once.command("/init_weight_transfer_engine", {"init_info": init_info})

    def start_weight_update(self) -> None:
        self.connection.once.command("/start_weight_update")

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Make the server receive the broadcast tensors."""
        self.connection.once.command("/update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        del weight_version  # vLLM's engine passes none
        self.connection.once.command("/finish_weight_update")


@dataclass(frozen=True)
class NcclHandover(WholeModel):
    """Transfer of a whole model from GPU to GPU. `meet` creates the sender for a server, once each."""

    meet: Callable[[Connection], Sender]
    needs: str = 'VLLM_SERVER_DEV_MODE=1 and --weight-transfer-config \'{"backend": "nccl"}\''
    after_failure: str = "Restart it: its NCCL group cannot be used again."
    senders: dict[str, Sender] = field(default_factory=dict)
    """Senders by address of the server; a failed one is recreated."""

    def is_possible(self, connection: Connection) -> bool:
        """Whether the server has the update routes."""
        return has_route(connection, "/init_weight_transfer_engine")

    def give(self, connection: Connection, folder: Path, label: str, *, wait: bool) -> None:
        """Pause, send the weights, set their version, and resume. `folder` is unused.

        Raises RolloutError if the transfer fails in this process.
        """
        once, sender = connection.once, self.senders.pop(connection.url, None)
        try:
            sender = sender or self.meet(connection)
            once.command(f"/pause?mode={'wait' if wait else 'keep'}")
            try:
                sender.send_weights()
                once.command("/update_weight_version", {"new_version": label})
            finally:
                once.command("/resume")
        except RuntimeError as error:
            raise RolloutError(
                f"The weights could not be sent to the server {connection.url} over NCCL: {error}. {self.after_failure}"
            ) from error
        self.senders[connection.url] = sender


def nccl_handover(policy: Policy) -> NcclHandover:
    """Handover for a policy on a GPU. Raises TutelageError without a GPU, with an adapter, and without vLLM."""
    if policy.device.type != "cuda":
        raise TutelageError(
            f"--sync nccl sends weights from GPU to GPU, and the policy is on {policy.device.type}. {INSTEAD}"
        )
    if isinstance(policy.model, PeftModel):
        raise TutelageError(
            "--sync nccl sends every weight, and the model is an adapter: use --sync lora to send only the adapter."
        )
    try:
        from vllm.distributed.weight_transfer import ParamMeta, WeightTransferTrainerFactory  # type: ignore[import-not-found]
        from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo  # type: ignore[import-not-found]
    except ImportError as error:
        raise TutelageError(
            "--sync nccl sends weights with the trainer's side of vLLM 0.32, which cannot be imported here "
            f"({error}): pip install vllm==0.32.0. {INSTEAD}"
        ) from error

    def meet(connection: Connection) -> Sender:
        info = NCCLTrainerInitInfo(
            master_address=own_address(connection.url),
            master_port=free_port(),
            world_size=1 + int(connection.get("/get_world_size")["world_size"]),
            rank=0,
        )
        source = WeightSource(policy, ParamMeta)
        sender: Sender = WeightTransferTrainerFactory.trainer_init(info, client=Control(connection), source=source)
        return sender

    return NcclHandover(meet)


@dataclass(frozen=True)
class WeightSource:
    """Weights of a policy under the names of its files, in its compute type: vLLM's `WeightSource`."""

    policy: Policy
    describe: Callable[[str, torch.dtype, tuple[int, ...]], Any]
    """vLLM's `ParamMeta`."""

    def metadata(self) -> list[Any]:
        """Name, type and shape of every tensor, in sending order."""
        dtype = self.policy.dtype
        return [self.describe(name, dtype, tuple(tensor.shape)) for name, tensor in self.policy.weights().items()]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        for name, tensor in self.policy.weights().items():
            yield name, tensor.to(self.policy.device, self.policy.dtype)


def own_address(url: str) -> str:
    """Address under which a server's machine reaches this one."""
    parts = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((parts.hostname or "localhost", parts.port or 80))  # no packet is sent
        return str(probe.getsockname()[0])


def free_port() -> int:
    """Free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
