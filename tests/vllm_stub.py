"""A server that answers as vLLM does, as far as rollouts need it (`tests/real_vllm/recorded.json` is what the real one
said), and wrongly where a test tells it to. It computes with a policy of its own, loaded from the folders that it is
given, so weights arrive only by a handover."""

import copy
import sys
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from tutelage.base import config
from tutelage.engines.interface import PromptTokens
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy

GENERATE, COMPLETIONS, LORA = "/inference/v1/generate", "/v1/completions", "/v1/load_lora_adapter"
METHOD_NOT_ALLOWED, NOT_FOUND = (405, "Method Not Allowed"), (404, "Not Found")
LOCK = Lock()
DEVELOPMENT = ("/pause", "/resume", "/collective_rpc", "/update_weight_version")


@cache
def load(folder: Path | str) -> Policy:
    """A policy for sampling, read once; an adapter is merged into its model."""
    return Policy(load_backbone(config.Model(str(folder), device="cpu", engine="plain")))


@dataclass
class VllmStub:
    """An answer for `served.serving`. The last fields are its faults."""

    model: Path | str
    lora: bool = True
    development: bool = True
    scale_out: bool = True
    release: str = "0.32.0"
    name: str = "tiny"
    context: int = 96
    max_lora_rank: int = 8
    answers_left: int = 1 << 30
    """Requests for tokens until it fails all of them."""
    raw: bool = False
    """Reports log-probabilities before the temperature."""
    truncated: dict[str, float] = field(default_factory=dict)
    """Settings of a truncation that nobody asked it for."""
    deaf: bool = False
    """Reads no new weights, but says that it did."""
    keeps_version: bool = False
    """Does not take over the version of weights."""
    label: str = "default"

    def __post_init__(self) -> None:
        self.policy, self.adapters = load(str(self.model)), {}

    def __call__(self, asked: dict[str, Any], number: int) -> Any:
        with LOCK:
            return self.answer(asked.pop("path").partition("?")[0], asked)

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        """The answer to one request; a GET has no body."""
        if path == "/version":
            return {"version": self.release}
        if path == "/v1/models":
            cards = [{"id": self.name, "root": str(self.model), "parent": None, "max_model_len": self.context}]
            return {"object": "list", "data": cards + [{"id": a, "parent": self.name} for a in self.adapters]}
        known = {COMPLETIONS, *([GENERATE] if self.scale_out else [])}
        known |= {LORA, "/v1/unload_lora_adapter"} if self.lora else set()
        known |= set(DEVELOPMENT) if self.development else set()
        if path not in known:
            return NOT_FOUND
        if not body and path not in ("/pause", "/resume"):
            return METHOD_NOT_ALLOWED
        if path in (GENERATE, COMPLETIONS):
            return self.tokens(path, body)
        return self.command(path, body)

    def command(self, path: str, body: dict[str, Any]) -> Any:
        """New weights, in either way."""
        if path == LORA:
            folder = Path(body["lora_path"])
            if not (folder / "adapter_config.json").is_file():
                return 404, f"Loading lora {body['lora_name']} failed: No adapter found for {folder}"
            if body["lora_name"] in self.adapters:
                return 400, f"The lora adapter '{body['lora_name']}' has already been loaded."
            policy = self.policy if self.deaf else load(folder)
            rank = config.files.read_mapping(folder / "adapter_config.json")["r"]
            if rank > self.max_lora_rank:
                return 500, f"LoRA rank {rank} is greater than max_lora_rank {self.max_lora_rank}."
            self.adapters[body["lora_name"]] = policy
            return f"Success: LoRA adapter '{body['lora_name']}' added successfully."
        if path == "/v1/unload_lora_adapter":
            found = self.adapters.pop(body["lora_name"], None)
            return NOT_FOUND if found is None else "Success: LoRA adapter removed successfully."
        if path == "/collective_rpc":
            folder = Path(body["kwargs"]["weights_path"])
            if not folder.is_dir():
                return 500, f"Call to collective_rpc method failed: Repo id must not be: '{folder}'"
            self.policy = self.policy if self.deaf else load(folder)
            return {"results": [None]}
        if path in ("/pause", "/resume"):
            return {"status": f"{path[1:].removesuffix('e')}ed"}
        self.label = self.label if self.keeps_version else body["new_version"]
        return {"success": True, "new_version": body["new_version"]}

    def tokens(self, path: str, body: dict[str, Any]) -> Any:
        """Responses to one prompt."""
        self.answers_left -= 1
        if self.answers_left < 0:
            return 500, "EngineCore encountered an issue."
        if body["model"] not in (self.name, *self.adapters):
            return 404, f"The model `{body['model']}` does not exist."
        params = body.get("sampling_params", body)
        if params["temperature"] == 0 and params["n"] > 1:
            return 400, f"n must be 1 when using greedy sampling, got {params['n']}."
        policy = self.adapters.get(body["model"], self.policy)
        policy.end_ids = tuple(params["stop_token_ids"])
        prompt = tuple(body.get("token_ids") or body["prompt"])
        if max(prompt) >= policy.vocabulary:
            return 400, f"Token id {max(prompt)} is out of vocabulary"
        asked = {key: params[key] for key in ("top_k", "top_p", "min_p") if params["temperature"]}
        asked |= {"temperature": params["temperature"], "stop": tuple(params.get("stop", ()))}
        asked |= {"max_new_tokens": min(params["max_tokens"], self.context - len(prompt))} | self.truncated
        sampling = replace(config.Sampling(), **asked)
        rollout = policy.generate(PromptTokens((prompt,), ("",)), params["n"], sampling, seed=params["seed"])
        with torch.no_grad():
            raw = policy.scores(rollout, temperature=1.0).logp
        logp = raw if self.raw or not params["temperature"] else rollout.logp
        each = zip(rollout.response, logp, rollout.mask, rollout.terminated.tolist(), strict=True)
        form = self.generated if path == GENERATE else completed
        return {
            "choices": [
                {"index": b, "finish_reason": "stop" if ended else "length", "stop_reason": None}
                | form(said[mask].tolist(), values[mask].tolist())
                for b, (said, values, mask, ended) in enumerate(each)
            ]
        }

    def generated(self, tokens: list[int], logp: list[float]) -> dict[str, Any]:
        """A choice of /inference/v1/generate."""
        content = [{"token_id": t, "logprob": x, "rank": None} for t, x in zip(tokens, logp, strict=True)]
        spans = [{"version": self.label, "start": 0, "end": len(tokens)}]
        return {"token_ids": tokens, "logprobs": {"content": content}, "weight_versions": spans}


def completed(tokens: list[int], logp: list[float]) -> dict[str, Any]:
    """A choice of /v1/completions."""
    return {"token_ids": tokens, "text": "", "logprobs": {"token_logprobs": logp}}


class SamplingParams(dict):
    """Of vLLM."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(settings)


class LlmStub:
    """`vllm.LLM`: a folder without weights, which arrive as tensors; asleep, it computes nothing. `deaf` is a fault of
    `VllmStub`, and `broken` makes every handover fail."""

    deaf = broken = False

    def __init__(self, folder: str, **settings: Any) -> None:
        self.settings, self.asleep, self.calls = settings, False, []
        with torch.random.fork_rng(), TemporaryDirectory() as place:
            AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).save_pretrained(place)
            AutoTokenizer.from_pretrained(folder).save_pretrained(place)
            self.stub = VllmStub(place)
        self.model_config = SimpleNamespace(max_model_len=self.stub.context)
        torch.manual_seed(0)  # as vLLM does in its own process

    def collective_rpc(self, method: str, kwargs: dict[str, Any]) -> None:
        """New weights, as a list of named tensors."""
        assert (method, self.asleep) == ("reload_weights", False)
        self.calls.append("load")
        if self.broken:
            raise RuntimeError("out of memory")
        model = copy.deepcopy(self.stub.policy.model)
        own = dict(model.named_parameters())
        for name, tensor in kwargs["weights_iterator"]:
            own.pop(name).data.copy_(tensor)
        assert not own
        if not self.deaf:
            self.stub.policy = Policy(replace(self.stub.policy.backbone, model=model))

    def reset_prefix_cache(self) -> None:
        """Nothing is cached."""
        self.calls.append("reset")

    def generate(self, prompts: list[dict], params: list[SamplingParams], use_tqdm: bool) -> list[SimpleNamespace]:
        """The responses of each prompt."""
        assert not self.asleep
        assert not use_tqdm
        self.calls.append("generate")
        asked = [
            {"model": self.stub.name, "token_ids": prompt["prompt_token_ids"], "sampling_params": param}
            for prompt, param in zip(prompts, params, strict=True)
        ]
        return [SimpleNamespace(outputs=[_output(c) for c in self.stub.tokens(GENERATE, a)["choices"]]) for a in asked]

    def sleep(self, level: int) -> None:
        """Free the memory."""
        assert level == 1
        self.asleep = True
        self.calls.append("sleep")

    def wake_up(self) -> None:
        """Take the memory again."""
        self.asleep = False
        self.calls.append("wake")


def _output(choice: dict[str, Any]) -> SimpleNamespace:
    content = choice["logprobs"]["content"]
    logprobs = [{one["token_id"]: SimpleNamespace(logprob=one["logprob"])} for one in content]
    return SimpleNamespace(token_ids=choice["token_ids"], logprobs=logprobs, finish_reason=choice["finish_reason"])


def install_llm(monkeypatch, **faults: bool) -> type[LlmStub]:
    """Let `import vllm` find the stub, with its faults."""
    module, kind = ModuleType("vllm"), type("LLM", (LlmStub,), faults)
    module.LLM, module.SamplingParams = kind, SamplingParams
    monkeypatch.setitem(sys.modules, "vllm", module)
    return kind
