"""Results of the worker as JSON, whole or in chunks, in OpenAI's formats with vLLM's additions for token ids."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar
from uuid import uuid4

from tutelage.data.records import Message, Messages, ToolCall, call_json
from tutelage.data.tool_calls import CallForm
from tutelage.rollout.serving.jobs import CompletionPiece, FinishReason, Generation, Scoring, TokenLogp, Version
from tutelage.rollout.serving.protocol.model import ServedModel
from tutelage.rollout.serving.protocol.request_fields import ChatFields, CompletionsFields, TextFields

Json = dict[str, Any]


@dataclass
class Answer:
    """One completion, which grows piece by piece."""

    text: str = ""
    tokens: list[TokenLogp] = field(default_factory=list)
    finish: FinishReason | None = None
    stop: str | int | None = None
    version: Version = ""

    def add(self, piece: CompletionPiece) -> None:
        self.text += piece.text
        self.tokens += piece.tokens
        self.finish, self.stop, self.version = piece.finish, piece.stop, piece.version

    @property
    def weight_versions(self) -> list[Json]:
        """Ranges of tokens by the weights that computed them, in vLLM's format. A completion has only one."""
        return [{"version": self.version, "start": 0, "end": len(self.tokens)}]


Answers = Sequence[Sequence[Answer]]
"""Completion i of prompt p is `answers[p][i]`."""
Scores = Sequence[Sequence[TokenLogp]]
"""Tokens of prompt p after the first are `scores[p]`."""


@dataclass(frozen=True, kw_only=True)
class Reply(ABC):
    """Reply to a request: its jobs and its JSON."""

    model: ServedModel
    prompts: Sequence[tuple[int, ...]]
    generations: Sequence[Generation]
    """One job per prompt; empty if nothing is generated."""
    scorings: Sequence[Scoring] = ()
    """One job per prompt whose own log-probabilities are requested; otherwise empty."""
    streams: bool = False

    @abstractmethod
    def body(self, answers: Answers, scores: Scores) -> Json:
        """Whole response."""

    def opening(self) -> list[Json]:
        """Chunks before the first piece."""
        return []

    def chunk(self, prompt: int, piece: CompletionPiece, answer: Answer) -> Json | None:
        """Chunk for a piece of a completion of a prompt, the last of `answer` so far; None if it would be empty."""
        return None

    def closing(self, answers: Answers) -> list[Json]:
        """Chunks after the last piece."""
        return []


@dataclass(frozen=True, kw_only=True)
class TextReply(Reply):
    """Text reply, whole or as a stream of chunks."""

    fields: TextFields
    PREFIX: ClassVar = ""
    KIND: ClassVar = ""
    """Prefix of the id, and type of a chunk."""

    @abstractmethod
    def part(self, index: int, piece: CompletionPiece, answer: Answer) -> Json:
        """Next part of completion number `index`, whose parts so far are `answer`."""

    def chunk(self, prompt: int, piece: CompletionPiece, answer: Answer) -> Json | None:
        job = self.generations[prompt]
        if not (piece.text or piece.finish or job.top is not None or self.fields.return_token_ids):
            return None
        return self.head | {"choices": [self.part(prompt * job.n + piece.index, piece, answer)]}

    def closing(self, answers: Answers) -> list[Json]:
        if not self.fields.stream_options.include_usage:
            return []
        return [self.head | {"choices": [], "usage": self.usage(answers)}]

    @cached_property
    def head(self) -> Json:
        """Fields common to all chunks."""
        name, now = self.fields.model or self.model.name, int(time.time())
        return {"id": self.PREFIX + uuid4().hex, "object": self.KIND, "created": now, "model": name}

    def usage(self, answers: Answers) -> dict[str, int]:
        """Token counts of prompts and completions."""
        read = sum(map(len, self.prompts))
        written = sum(len(answer.tokens) for each in answers for answer in each)
        return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


@dataclass(frozen=True, kw_only=True)
class CompletionsReply(TextReply):
    """Reply of `/v1/completions`."""

    fields: CompletionsFields
    PREFIX, KIND = "cmpl-", "text_completion"

    def body(self, answers: Answers, scores: Scores) -> Json:
        choices: list[Json] = []
        for place, prompt in enumerate(self.prompts):
            for answer in answers[place] if answers else [Answer(finish="length")]:
                text, tokens = answer.text, answer.tokens
                if self.fields.echo:
                    text = self.model.text_of(prompt) + text
                    tokens = [TokenLogp(prompt[0], 0.0, {}), *(scores[place] if scores else ()), *tokens]
                choice = self._choice(len(choices), text, self._logprobs(tokens, int(self.fields.echo)), answer)
                if self.fields.return_token_ids:
                    choice |= {"prompt_token_ids": prompt, "weight_versions": answer.weight_versions}
                choices.append(choice)
        return self.head | {"choices": choices, "usage": self.usage(answers)}

    def part(self, index: int, piece: CompletionPiece, answer: Answer) -> Json:
        return self._choice(index, piece.text, self._logprobs(piece.tokens), piece)

    def _choice(self, index: int, text: str, logprobs: Json | None, answer: Answer | CompletionPiece) -> Json:
        choice: Json = {"index": index, "text": text, "logprobs": logprobs}
        choice |= {"finish_reason": answer.finish, "stop_reason": answer.stop}
        return choice | ({"token_ids": _ids(answer)} if self.fields.return_token_ids else {})

    def _logprobs(self, tokens: Sequence[TokenLogp], unscored: int = 0) -> Json | None:
        """Log-probabilities of tokens, null for the first `unscored` ones."""
        if self.fields.logprobs is None:
            return None
        ids = _mentioned(tokens)
        names = (
            {id: f"token_id:{id}" for id in ids} if self.fields.return_tokens_as_token_ids else self.model.texts_of(ids)
        )
        texts, scored, nulls = [names[token.token] for token in tokens], tokens[unscored:], [None] * unscored
        return {
            "tokens": texts,
            "token_logprobs": [*nulls, *(token.logp for token in scored)],
            "top_logprobs": [*nulls, *(_by_text(token, names) for token in scored)],
            "text_offset": [0, *accumulate(map(len, texts))][: len(texts)],
        }


@dataclass(frozen=True, kw_only=True)
class ChatReply(TextReply):
    """Reply of `/v1/chat/completions`, for one prompt. Calls are in `form` if the conversation offers tools; they are
    streamed as a whole, once the turn has ended."""

    fields: ChatFields
    conversation: Messages
    form: CallForm | None
    PREFIX, KIND = "chatcmpl-", "chat.completion.chunk"

    def body(self, answers: Answers, scores: Scores) -> Json:
        choices = [self._choice(index, answer) for index, answer in enumerate(answers[0])]
        reply = self.head | {"object": "chat.completion", "choices": choices, "usage": self.usage(answers)}
        return reply | ({"prompt_token_ids": self.prompts[0]} if self.fields.return_token_ids else {})

    def opening(self) -> list[Json]:
        delta = {"role": "assistant", "content": ""}
        return [
            self.head | {"choices": [{"index": i, "delta": delta, "logprobs": None, "finish_reason": None}]}
            for i in range(self.generations[0].n)
        ]

    def chunk(self, prompt: int, piece: CompletionPiece, answer: Answer) -> Json | None:
        if self.form is not None:
            sent = self.form.before(answer.text[: len(answer.text) - len(piece.text)])
            whole = self._message(answer).content if piece.finish else self.form.before(answer.text)
            piece = replace(piece, text=whole[len(sent) :])
        return super().chunk(prompt, piece, answer)

    def part(self, index: int, piece: CompletionPiece, answer: Answer) -> Json:
        calls = self._message(answer).calls if piece.finish else ()
        delta: Json = {"content": piece.text} if piece.text or not piece.finish else {}
        if calls:
            delta["tool_calls"] = [{"index": place} | call_json(call) for place, call in enumerate(calls)]
        part: Json = {
            "index": index,
            "delta": delta,
            "logprobs": self._logprobs(piece.tokens) if piece.tokens else None,
            "finish_reason": finish_of(piece.finish, calls),
        }
        part |= {"stop_reason": piece.stop} if piece.finish else {}
        return part | ({"token_ids": _ids(piece)} if self.fields.return_token_ids and piece.tokens else {})

    def _message(self, answer: Answer) -> Message:
        if self.form is None:
            return Message("assistant", answer.text)
        return self.model.turn(_ids(answer), answer.text, self.conversation).message

    def _choice(self, index: int, answer: Answer) -> Json:
        message = self._message(answer)
        choice: Json = {
            "index": index,
            "message": message_json(message),
            "logprobs": self._logprobs(answer.tokens),
            "finish_reason": finish_of(answer.finish, message.calls),
            "stop_reason": answer.stop,
        }
        ids = {"token_ids": _ids(answer), "weight_versions": answer.weight_versions}
        return choice | (ids if self.fields.return_token_ids else {})

    def _logprobs(self, tokens: Sequence[TokenLogp]) -> Json | None:
        if not self.fields.logprobs:
            return None
        ids = _mentioned(tokens)
        names, pieces = self.model.texts_of(ids), self.model.bytes_of(ids)

        def entry(token: int, logp: float) -> Json:
            return {"token": names[token], "logprob": logp, "bytes": pieces[token]}

        content = [entry(each.token, each.logp) | _likeliest(each, entry) for each in tokens]
        return {"content": content, "refusal": None}


@dataclass(frozen=True, kw_only=True)
class GenerateReply(Reply):
    """Reply of `/inference/v1/generate`, for one prompt."""

    request_id: str

    def body(self, answers: Answers, scores: Scores) -> Json:

        def entry(token: int, logp: float) -> Json:
            return {"token": f"token_id:{token}", "token_id": token, "logprob": logp}

        def logprobs(tokens: Sequence[TokenLogp]) -> Json:
            return {"content": [entry(each.token, each.logp) | _likeliest(each, entry) for each in tokens]}

        choices = [
            {
                "index": index,
                "token_ids": _ids(answer),
                "finish_reason": answer.finish,
                "logprobs": None if self.generations[0].top is None else logprobs(answer.tokens),
                "weight_versions": answer.weight_versions,
            }
            for index, answer in enumerate(answers[0])
        ]
        return {"request_id": self.request_id, "choices": choices}


def message_json(message: Message) -> Json:
    """Message of the assistant in OpenAI's format, without text only if it has calls."""
    said: Json = {"role": "assistant", "content": message.content, "refusal": None}
    if not message.calls:
        return said
    return said | {"content": message.content or None, "tool_calls": [call_json(call) for call in message.calls]}


def finish_of(finish: FinishReason | None, calls: Sequence[ToolCall]) -> str | None:
    """Reason for the end of a turn: its calls, if it was not cut."""
    return "tool_calls" if calls and finish == "stop" else finish


def _ids(answer: Answer | CompletionPiece) -> list[int]:
    """Token ids, including the one that ended the completion."""
    return [token.token for token in answer.tokens]


def _mentioned(tokens: Sequence[TokenLogp]) -> set[int]:
    """Tokens, and the most likely tokens in their places."""
    return {token.token for token in tokens}.union(*(token.top for token in tokens))


def _likeliest(token: TokenLogp, entry: Callable[[int, float], Json]) -> Json:
    return {"top_logprobs": [entry(each, logp) for each, logp in token.top.items()]}


def _by_text(token: TokenLogp, names: dict[int, str]) -> dict[str, float]:
    """The most likely tokens and the token itself; of tokens with the same text, the most likely."""
    by_text: dict[str, float] = {}
    for each, logp in (*token.top.items(), (token.token, token.logp)):
        by_text[names[each]] = max(logp, by_text.get(names[each], logp))
    return by_text
