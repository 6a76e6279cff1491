"""`/inference/v1/generate`: token ids in, token ids and log-probabilities out, as vLLM has it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from tutelage.rollout.serving.jobs import CompletionPiece, Generation, Scoring, TokenLogp
from tutelage.rollout.serving.protocol.answers import Answer
from tutelage.rollout.serving.protocol.completions import DEFAULT_TOKENS, generation
from tutelage.rollout.serving.protocol.fields import Fields
from tutelage.rollout.serving.protocol.model import ServedModel
from tutelage.rollout.serving.protocol.sampling import sampling_fields


@dataclass(frozen=True)
class Generate:
    """A request to `/inference/v1/generate`."""

    job: Generation
    request_id: str
    streams: bool = False
    scorings: tuple[Scoring, ...] = ()

    @property
    def generations(self) -> tuple[Generation, ...]:
        """See `Format.generations`."""
        return (self.job,)

    def body(
        self, answers: Sequence[Sequence[Answer]], scores: Sequence[Sequence[TokenLogp]]
    ) -> dict[str, Any]:
        """See `Format.body`."""
        choices = [
            {
                "index": index,
                "token_ids": answer.ids,
                "finish_reason": answer.finish,
                "logprobs": None if self.job.top is None else {"content": list(map(_entry, answer.tokens))},
                "weight_versions": answer.weight_versions,
            }
            for index, answer in enumerate(answers[0])
        ]
        return {"request_id": self.request_id, "choices": choices}

    def opening(self) -> Sequence[dict[str, Any]]:
        """See `Format.opening`."""
        return ()

    def chunk(self, prompt: int, piece: CompletionPiece) -> dict[str, Any] | None:
        """See `Format.chunk`."""
        return None

    def closing(self, answers: Sequence[Sequence[Answer]]) -> Sequence[dict[str, Any]]:
        """See `Format.closing`."""
        return ()


def _entry(token: TokenLogp) -> dict[str, Any]:
    return _pair(token.token, token.logp) | {"top_logprobs": [_pair(*each) for each in token.top.items()]}


def _pair(token: int, logp: float) -> dict[str, Any]:
    return {"token": f"token_id:{token}", "token_id": token, "logprob": logp}


def read_generate(body: object, model: ServedModel) -> Generate:
    """Read a request. Raises TutelageError where it is refused."""
    fields = Fields(body)
    adapter = model.adapter(fields.text("model"))
    prompt = fields.ids("token_ids", model.limits.vocabulary)
    if not prompt:
        raise fields.refusal("token_ids", "is empty: give at least one token")
    if fields.flag("stream"):
        raise fields.refusal("stream", "is not supported here: use /v1/completions")
    fields.any("stream_options")
    request_id = fields.text("request_id")
    params = Fields(fields.any("sampling_params") or {}, "sampling_params")
    options = sampling_fields(params, model.limits, "max_tokens")
    tokens = DEFAULT_TOKENS if options.tokens is None else options.tokens
    if tokens == 0:
        raise params.refusal("max_tokens", "is 0, which leaves nothing to answer")
    top = params.whole("logprobs", 0, model.limits.top)
    job = generation(model, prompt, options, tokens, adapter, request_id, top, False)
    params.done()
    fields.done()
    return Generate(job, request_id or uuid4().hex)
