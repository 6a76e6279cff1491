"""vLLM's API: tokens in and out, completions with token ids; new weights as a folder or as a LoRA adapter.

POST /inference/v1/generate     a server with --enable-scale-out; reports the weights that wrote each token
POST /v1/completions            every vLLM since 0.10, and compatible servers
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tutelage.data.transport import HttpRefusal, Unanswered
from tutelage.rollout.server.api import Connection, TokenRequest, TokenResponse, WholeModel, read_responses

GENERATE, COMPLETIONS = "/inference/v1/generate", "/v1/completions"


def sampling_params(request: TokenRequest) -> dict[str, object]:
    """Settings under vLLM's names."""
    own = {"n": request.n, "seed": request.seed, "max_tokens": request.sampling.max_new_tokens, "logprobs": 0}
    return request.settings | own


@dataclass(frozen=True)
class GenerateApi:
    """vLLM's tokens-in-tokens-out endpoint."""

    name: str = "vLLM's /inference/v1/generate"
    labels: bool = True

    def generate(self, connection: Connection, request: TokenRequest) -> list[TokenResponse]:
        """The completions, with the weights that wrote each token."""
        body = {
            "model": request.adapter or request.model,
            "token_ids": list(request.tokens),
            "sampling_params": sampling_params(request) | {"detokenize": bool(request.sampling.stop)},
            "stream": False,
        }
        return read_responses(self, _generated, connection, _ask(connection, GENERATE, body), request.n)


@dataclass(frozen=True)
class CompletionsApi:
    """Completions of a prompt of token ids, with `return_token_ids`."""

    name: str = "/v1/completions with return_token_ids"
    labels: bool = False

    def generate(self, connection: Connection, request: TokenRequest) -> list[TokenResponse]:
        """The completions; such a server does not report the weights that wrote them."""
        body = {
            "model": request.adapter or request.model,
            "prompt": list(request.tokens),
            "return_token_ids": True,
            "stream": False,
        } | sampling_params(request)
        return read_responses(self, _completed, connection, _ask(connection, COMPLETIONS, body), request.n)


def _ask(connection: Connection, path: str, body: dict[str, object]) -> Any:
    """Response with its choices in order. Raises Unanswered if the server aborted a request."""
    answer = connection.post(path, body)
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(choices, list):
        return answer
    reasons = {str(choice.get("finish_reason")) for choice in choices}
    if reasons - {"stop", "length"}:
        raise Unanswered(
            f"The server {connection.url} aborted a request ({', '.join(sorted(reasons))}). Is it shutting down?"
        )
    return answer | {"choices": sorted(choices, key=lambda choice: choice["index"])}


def _generated(answer: Any) -> Iterator[TokenResponse]:
    for choice in answer["choices"]:
        content = choice["logprobs"]["content"]
        spans = choice.get("weight_versions")
        labels = tuple(str(s["version"]) for s in spans for _ in range(s["start"], s["end"])) if spans else None
        if [entry["token_id"] for entry in content] != choice["token_ids"]:
            raise ValueError("log-probabilities of other tokens")
        if labels is not None and len(labels) != len(choice["token_ids"]):
            raise ValueError("tokens without a version")
        logp = tuple(float(entry["logprob"]) for entry in content)
        yield TokenResponse(tuple(choice["token_ids"]), logp, choice["finish_reason"] == "stop", labels)


def _completed(answer: Any) -> Iterator[TokenResponse]:
    for choice in answer["choices"]:
        logp = tuple(float(value) for value in choice["logprobs"]["token_logprobs"])
        yield TokenResponse(tuple(choice["token_ids"]), logp, choice["finish_reason"] == "stop")


def has_route(connection: Connection, path: str) -> bool:
    """Whether the server has a POST route; if so, it refuses GET with another status than 404."""
    try:
        connection.once.get(path)
    except HttpRefusal as refusal:
        return refusal.status != 404
    return True


@dataclass(frozen=True)
class LoraHandover:
    """LoRA adapter, loaded with the label as its name by the routes below `prefix`; SGLang has them too.

    Every version needs a new name and folder: vLLM caches the keys and values of prompts by adapter name and path,
    and would reuse those of earlier weights.
    """

    adapters: bool = True
    needs: str = "--enable-lora, --max-lora-rank and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
    after_failure: str = ""
    prefix: str = "/v1"
    detectable: bool = True
    """Whether a server that cannot load adapters lacks the route. SGLang reports an error when one is loaded."""

    def is_possible(self, connection: Connection) -> bool:
        """Whether the server allows loading adapters at run time, as far as it reports it."""
        return not self.detectable or has_route(connection, f"{self.prefix}/load_lora_adapter")

    def give(self, connection: Connection, folder: Path, label: str, *, wait: bool) -> None:
        """Load the adapter. Running requests continue with their adapter, regardless of `wait`."""
        body = {"lora_name": label, "lora_path": str(folder)}
        connection.once.command(f"{self.prefix}/load_lora_adapter", body)

    def drop(self, connection: Connection, label: str) -> None:
        """Unload the adapter."""
        connection.once.command(f"{self.prefix}/unload_lora_adapter", {"lora_name": label})


@dataclass(frozen=True)
class DiskHandover(WholeModel):
    """Whole model, reloaded from a folder."""

    needs: str = "VLLM_SERVER_DEV_MODE=1"
    after_failure: str = "Restart it: the weights that it had are gone."
    pause: str = "keep"
    """Mode of the pause without `wait`: vLLM continues running requests with the new weights; a server that cannot
    finishes them, with "wait"."""

    def is_possible(self, connection: Connection) -> bool:
        """Whether the server has the development routes."""
        return has_route(connection, "/collective_rpc")

    def give(self, connection: Connection, folder: Path, label: str, *, wait: bool) -> None:
        """Pause, load the weights, set their version, and resume."""
        once = connection.once
        once.command(f"/pause?mode={'wait' if wait else self.pause}")
        try:
            body = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
            once.command("/collective_rpc", body)
            once.command("/update_weight_version", {"new_version": label})
        finally:
            once.command("/resume")
