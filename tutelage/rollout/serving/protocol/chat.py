"""`/v1/chat/completions`: conversations are answered."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any
from uuid import uuid4

from tutelage.data.records import Message, Messages, Role
from tutelage.rollout.serving.jobs import CompletionPiece, Generation, Scoring, TokenLogp
from tutelage.rollout.serving.protocol.answers import Answer, usage
from tutelage.rollout.serving.protocol.completions import generation, read_streaming
from tutelage.rollout.serving.protocol.errors import RequestError
from tutelage.rollout.serving.protocol.fields import Fields
from tutelage.rollout.serving.protocol.model import ServedModel
from tutelage.rollout.serving.protocol.sampling import sampling_fields

ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}
"""The roles of messages, and what the chat template calls them."""


@dataclass(frozen=True)
class Chat:
    """A request to `/v1/chat/completions`."""

    model: ServedModel
    job: Generation
    name: str
    streams: bool
    with_usage: bool
    with_logprobs: bool
    with_ids: bool
    scorings: tuple[Scoring, ...] = ()

    @property
    def generations(self) -> tuple[Generation, ...]:
        """See `Format.generations`."""
        return (self.job,)

    @cached_property
    def head(self) -> dict[str, Any]:
        """What the answer and all its chunks begin with."""
        return {"id": f"chatcmpl-{uuid4().hex}", "created": int(time.time()), "model": self.name}

    def body(
        self, answers: Sequence[Sequence[Answer]], scores: Sequence[Sequence[TokenLogp]]
    ) -> dict[str, Any]:
        """See `Format.body`."""
        found: dict[str, Any] = self.head | {
            "object": "chat.completion",
            "choices": [self._choice(index, answer) for index, answer in enumerate(answers[0])],
            "usage": usage([self.job.prompt], answers[0]),
        }
        return found | ({"prompt_token_ids": list(self.job.prompt)} if self.with_ids else {})

    def opening(self) -> Sequence[dict[str, Any]]:
        """See `Format.opening`."""
        return [
            self._chunk(index, {"role": "assistant", "content": ""}, None, (), None)
            for index in range(self.job.n)
        ]

    def chunk(self, prompt: int, piece: CompletionPiece) -> dict[str, Any] | None:
        """See `Format.chunk`."""
        if not (piece.text or piece.finish or self.with_logprobs or self.with_ids):
            return None
        delta = {"content": piece.text} if piece.text or not piece.finish else {}
        return self._chunk(piece.index, delta, piece.finish, piece.tokens, piece.stop)

    def closing(self, answers: Sequence[Sequence[Answer]]) -> Sequence[dict[str, Any]]:
        """See `Format.closing`."""
        if not self.with_usage:
            return ()
        tokens = usage([self.job.prompt], [*chain.from_iterable(answers)])
        return [self.head | {"object": "chat.completion.chunk", "choices": [], "usage": tokens}]

    def _choice(self, index: int, answer: Answer) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": index,
            "message": {"role": "assistant", "content": answer.text, "refusal": None},
            "logprobs": self._logprobs(answer.tokens),
            "finish_reason": answer.finish,
            "stop_reason": answer.stop,
        }
        if self.with_ids:
            choice |= {"token_ids": answer.ids, "weight_versions": answer.weight_versions}
        return choice

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        finish: str | None,
        tokens: Sequence[TokenLogp],
        stop: str | int | None,
    ) -> dict[str, Any]:
        choice: dict[str, Any] = {
            "index": index,
            "delta": delta,
            "logprobs": self._logprobs(tokens) if tokens else None,
            "finish_reason": finish,
        }
        if finish:
            choice["stop_reason"] = stop
        if self.with_ids and tokens:
            choice["token_ids"] = [token.token for token in tokens]
        return self.head | {"object": "chat.completion.chunk", "choices": [choice]}

    def _logprobs(self, tokens: Sequence[TokenLogp]) -> dict[str, Any] | None:
        if not self.with_logprobs:
            return None
        names = self.model.texts_of({token.token for token in tokens}.union(*(token.top for token in tokens)))

        def entry(token: int, logp: float) -> dict[str, Any]:
            return {"token": names[token], "logprob": logp, "bytes": list(names[token].encode())}

        content = [
            entry(token.token, token.logp)
            | {"top_logprobs": [entry(each, logp) for each, logp in token.top.items()]}
            for token in tokens
        ]
        return {"content": content, "refusal": None}


def read_chat(body: object, model: ServedModel) -> Chat:
    """Read a request. Raises TutelageError where it is refused."""
    fields = Fields(body)
    adapter = model.adapter(name := fields.text("model"))
    options = sampling_fields(fields, model.limits, "max_completion_tokens", "max_tokens")
    if options.tokens == 0:
        raise fields.refusal("max_tokens", "is 0, which leaves nothing to answer")
    prompt = model.prompt_of_messages(_messages(fields))
    with_logprobs, top = fields.flag("logprobs"), fields.whole("top_logprobs", 0, model.limits.top)
    if top is not None and not with_logprobs:
        raise fields.refusal("top_logprobs", "is given without logprobs: set logprobs to true")
    streams, with_usage = read_streaming(fields)
    tokens = options.tokens or max(1, model.limits.room(len(prompt)))
    job = generation(
        model,
        prompt,
        replace(options, stop=(*options.stop, *model.chat_stops())),
        tokens,
        adapter,
        fields.text("request_id"),
        (top or 0) if with_logprobs else None,
        streams,
    )
    made = Chat(
        model=model,
        job=replace(job, strips=True),
        name=name or model.name,
        streams=streams,
        with_usage=with_usage,
        with_logprobs=with_logprobs,
        with_ids=fields.flag("return_token_ids"),
    )
    fields.done()
    return made


def _messages(fields: Fields) -> Messages:
    given = fields.any("messages")
    if not isinstance(given, list) or not given:
        raise fields.refusal("messages", "must be a list of at least one message")
    return tuple(_message(each, f"messages[{place}]") for place, each in enumerate(given))


def _message(given: object, place: str) -> Message:
    if not isinstance(given, dict):
        raise RequestError(f"{place} must be a JSON object.", param="messages")
    role = given.get("role")
    if role not in ROLES:
        raise RequestError(
            f"{place}.role is {role!r}; the roles here are {', '.join(ROLES)}.", param="messages"
        )
    return Message(ROLES[role], _content(given.get("content"), place))


def _content(content: object, place: str) -> str:
    """The text of a message, which may come in parts."""
    if isinstance(content, str):
        return content
    parts: list[Any] = content if isinstance(content, list) else [None]
    if not all(isinstance(part, dict) and part.get("type") == "text" for part in parts):
        raise RequestError(
            f"{place}.content must be a text, or parts of the type text: this model reads nothing else.",
            param="messages",
        )
    return "".join(str(part.get("text", "")) for part in parts)
