"""SGLang's API, as in `io_struct.py` and `http_server.py` of 0.5: `/generate` with token ids; new weights as a
folder. LoRA adapters are loaded as by vLLM, at other addresses."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tutelage.data.transport import Unanswered
from tutelage.rollout.server.api import Connection, TokenRequest, TokenResponse, WholeModel, read_responses


@dataclass(frozen=True)
class SglangApi:
    """`/generate` with `input_ids`, one request per completion, so that each has its own seed."""

    name: str = "SGLang's /generate"
    labels: bool = False

    def generate(self, connection: Connection, request: TokenRequest) -> list[TokenResponse]:
        """The completions, with the version of the weights at their end."""
        own = {"max_new_tokens": request.sampling.max_new_tokens, "top_k": request.sampling.top_k or -1}
        params = request.settings | own
        body: dict[str, object] = {
            "input_ids": [list(request.tokens)] * request.n,
            "sampling_params": [params | {"sampling_seed": request.seed + number} for number in range(request.n)],
            "return_logprob": [True] * request.n,
            "logprob_start_len": [-1] * request.n,
        }
        if request.adapter:
            body["lora_path"] = [request.adapter] * request.n
        answer = connection.post("/generate", body)
        for one in answer if isinstance(answer, list) else ():
            reason = one.get("meta_info", {}).get("finish_reason") or {}
            if reason.get("type") == "abort":
                raise Unanswered(f"The server {connection.url} aborted a request: {reason.get('message')}.")
        return read_responses(self, _generated, connection, answer, request.n)


def _generated(answer: Any) -> Iterator[TokenResponse]:
    for one in answer:
        info = one["meta_info"]
        entries = info["output_token_logprobs"]  # [log-probability, token id, text or None]
        tokens = tuple(int(entry[1]) for entry in entries)
        version = info.get("weight_version")
        yield TokenResponse(
            tokens,
            tuple(float(entry[0]) for entry in entries),
            info["finish_reason"]["type"] == "stop",
            None if version is None else (str(version),) * len(tokens),
        )


@dataclass(frozen=True)
class SglangDiskHandover(WholeModel):
    """Whole model, reloaded from a folder."""

    needs: str = "the policy's model"
    after_failure: str = ""

    def is_possible(self, connection: Connection) -> bool:
        """Supported by every server."""
        return True

    def give(self, connection: Connection, folder: Path, label: str, *, wait: bool) -> None:
        """Pause, load the weights under the label, and resume. `retract` recomputes the keys and values of running
        requests with the new weights."""
        once = connection.once
        if not wait:
            once.command("/pause_generation", {"mode": "retract"})
        try:
            body = {"model_path": str(folder), "weight_version": label, "flush_cache": True}
            once.command("/update_weights_from_disk", body)
        finally:
            if not wait:
                once.command("/continue_generation")
