"""`/v1/completions`: texts or token ids are continued."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain
from typing import Any
from uuid import uuid4

from tutelage.base.nouns import counted
from tutelage.rollout.serving.jobs import CompletionPiece, Generation, Scoring, TokenLogp
from tutelage.rollout.serving.protocol.answers import Answer, usage
from tutelage.rollout.serving.protocol.fields import Fields
from tutelage.rollout.serving.protocol.model import ServedModel
from tutelage.rollout.serving.protocol.sampling import SamplingFields, sampling_fields

DEFAULT_TOKENS = 16
"""Tokens of a completion where the request does not say, as with OpenAI."""


@dataclass(frozen=True)
class Completions:
    """A request to `/v1/completions`."""

    model: ServedModel
    prompts: tuple[tuple[int, ...], ...]
    generations: tuple[Generation, ...]
    scorings: tuple[Scoring, ...]
    name: str
    streams: bool
    with_usage: bool
    echo: bool
    logprobs: int | None
    """Likeliest tokens that are reported with each token; None for no log-probabilities."""
    with_ids: bool
    ids_as_tokens: bool
    """Write tokens as `token_id:5`, which is unambiguous where several tokens have the same text."""

    @cached_property
    def head(self) -> dict[str, Any]:
        """What the answer and all its chunks begin with."""
        return {
            "id": f"cmpl-{uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": self.name,
        }

    def body(
        self, answers: Sequence[Sequence[Answer]], scores: Sequence[Sequence[TokenLogp]]
    ) -> dict[str, Any]:
        """See `Format.body`."""
        choices: list[dict[str, Any]] = []
        without = [[Answer(finish="length")]] * len(self.prompts)
        for place, (prompt, own) in enumerate(zip(self.prompts, answers or without, strict=True)):
            scored = scores[place] if scores else ()
            choices += [
                self._choice(len(choices) + i, prompt, answer, scored) for i, answer in enumerate(own)
            ]
        return self.head | {"choices": choices, "usage": usage(self.prompts, [*chain.from_iterable(answers)])}

    def opening(self) -> Sequence[dict[str, Any]]:
        """See `Format.opening`."""
        return ()

    def chunk(self, prompt: int, piece: CompletionPiece) -> dict[str, Any] | None:
        """See `Format.chunk`."""
        detailed = self.with_ids or self.logprobs is not None
        if not (piece.text or piece.finish or detailed):
            return None
        choice: dict[str, Any] = {
            "index": prompt * self.generations[0].n + piece.index,
            "text": piece.text,
            "logprobs": self._logprobs(piece.tokens),
            "finish_reason": piece.finish,
            "stop_reason": piece.stop,
        }
        if self.with_ids:
            choice["token_ids"] = [token.token for token in piece.tokens]
        return self.head | {"choices": [choice]}

    def closing(self, answers: Sequence[Sequence[Answer]]) -> Sequence[dict[str, Any]]:
        """See `Format.closing`."""
        if not self.with_usage:
            return ()
        return [self.head | {"choices": [], "usage": usage(self.prompts, [*chain.from_iterable(answers)])}]

    def _choice(
        self, index: int, prompt: tuple[int, ...], answer: Answer, scored: Sequence[TokenLogp]
    ) -> dict[str, Any]:
        tokens, text = answer.tokens, answer.text
        if self.echo:
            text = self.model.text_of(prompt) + text
            tokens = [TokenLogp(prompt[0], 0.0, {}), *scored, *tokens]
        choice: dict[str, Any] = {
            "index": index,
            "text": text,
            "logprobs": self._logprobs(tokens, unscored=int(self.echo)),
            "finish_reason": answer.finish,
            "stop_reason": answer.stop,
        }
        if self.with_ids:
            choice |= {
                "token_ids": answer.ids,
                "prompt_token_ids": list(prompt),
                "weight_versions": answer.weight_versions,
            }
        return choice

    def _logprobs(self, tokens: Sequence[TokenLogp], unscored: int = 0) -> dict[str, Any] | None:
        """The log-probabilities of tokens, null for the first `unscored` ones."""
        if self.logprobs is None:
            return None
        ids = {token.token for token in tokens}.union(*(token.top for token in tokens))
        names = (
            {token: f"token_id:{token}" for token in ids} if self.ids_as_tokens else self.model.texts_of(ids)
        )
        texts = [names[token.token] for token in tokens]
        likeliest: list[dict[str, float] | None] = [
            None if place < unscored else _by_text(token, names) for place, token in enumerate(tokens)
        ]
        return {
            "tokens": texts,
            "token_logprobs": [
                None if place < unscored else token.logp for place, token in enumerate(tokens)
            ],
            "top_logprobs": likeliest,
            "text_offset": [0, *accumulate(map(len, texts))][: len(texts)],
        }


def _by_text(token: TokenLogp, names: dict[int, str]) -> dict[str, float]:
    """The likeliest tokens and the token itself; of tokens with one text, the likeliest."""
    found: dict[str, float] = {}
    for each, logp in (*token.top.items(), (token.token, token.logp)):
        found[names[each]] = max(logp, found.get(names[each], logp))
    return found


def read_completions(body: object, model: ServedModel) -> Completions:
    """Read a request. Raises TutelageError where it is refused."""
    fields = Fields(body)
    adapter = model.adapter(name := fields.text("model"))
    options = sampling_fields(fields, model.limits, "max_tokens")
    echo, logprobs = fields.flag("echo"), fields.whole("logprobs", 0, model.limits.top)
    prompts = _prompts(fields, model)
    tokens = DEFAULT_TOKENS if options.tokens is None else options.tokens
    streams, with_usage = read_streaming(fields)
    if streams and echo:
        raise fields.refusal("echo", "is not supported together with stream")
    if tokens == 0 and not echo:
        raise fields.refusal("max_tokens", "is 0, which leaves nothing to answer without echo")
    request_id = fields.text("request_id")
    best_of = fields.whole("best_of", 1, model.limits.answers)
    if best_of not in (None, options.n):
        raise fields.refusal("best_of", f"is not supported with another value than n, which is {options.n}")
    made = Completions(
        model=model,
        prompts=tuple(prompts),
        generations=tuple(
            generation(model, prompt, options, tokens, adapter, request_id, logprobs, streams)
            for prompt in prompts
            if tokens
        ),
        scorings=tuple(
            Scoring(prompt, logprobs or 0, adapter) for prompt in prompts if echo and logprobs is not None
        ),
        name=name or model.name,
        streams=streams,
        with_usage=with_usage,
        echo=echo,
        logprobs=logprobs,
        with_ids=fields.flag("return_token_ids"),
        ids_as_tokens=fields.flag("return_tokens_as_token_ids"),
    )
    fields.done()
    return made


def generation(
    model: ServedModel,
    prompt: tuple[int, ...],
    options: SamplingFields,
    tokens: int,
    adapter: str,
    name: str,
    top: int | None,
    streams: bool,
) -> Generation:
    """The job of a prompt, with answers of up to `tokens` tokens. Raises TutelageError where it has no room."""
    model.limits.check(len(prompt), tokens)
    model.check_stops(options.stop)
    return Generation(
        prompt=prompt,
        sampling=options.sampling(tokens),
        end_ids=frozenset() if options.ignores_end else model.end_ids,
        n=options.n,
        seed=options.seed,
        name=name,
        stop_ids=options.stop_ids,
        adapter=adapter,
        top=top,
        streams=streams,
    )


def read_streaming(fields: Fields) -> tuple[bool, bool]:
    """Whether the answer is streamed, and whether the stream ends with the numbers of tokens."""
    streams, options = fields.flag("stream"), fields.any("stream_options")
    if options is None:
        return streams, False
    section = Fields(options, "stream_options")
    with_usage = section.flag("include_usage")
    section.flag("continuous_usage_stats")
    section.done()
    return streams, with_usage


def _prompts(fields: Fields, model: ServedModel) -> list[tuple[int, ...]]:
    """One prompt or several, each a text or token ids."""
    given, special = fields.any("prompt"), fields.any("add_special_tokens")
    several = isinstance(given, list) and given and isinstance(given[0], str | list)
    prompts = []
    for each in given if several else [given]:
        if isinstance(each, str):
            prompts.append(model.prompt_of_text(each, special=special is not False))
        else:
            prompts.append(fields.as_ids("prompt", each, model.limits.vocabulary))
    if not all(prompts):
        raise fields.refusal("prompt", "is empty: give a text or token ids")
    if len(prompts) > model.limits.prompts:
        raise fields.refusal(
            "prompt", f"may have {counted(model.limits.prompts, 'entry')}, not {len(prompts)}"
        )
    return prompts
