"""Jobs of the worker: completions, decoded together, and log-probabilities of prompts."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Any, Literal

import torch
from torch import Tensor

from tutelage.base import config
from tutelage.core.rows import EncodedRow, collate
from tutelage.data.chat_template import opening
from tutelage.data.chat_tokens import pad_token_id
from tutelage.data.tokenizer import TextStream
from tutelage.engines.interface import Decoders, PromptBatch
from tutelage.engines.plans.token_budget import CHUNK_ELEMENTS
from tutelage.engines.sampling import batches_of
from tutelage.engines.token_sampling import draw, row_seed, truncated, uniforms
from tutelage.models.policy import Policy

FinishReason = Literal["stop", "length", "abort"]
"""Reason for the end of a completion: an end token or a stop string, the token limit, or the server."""
Version = int | str
"""Name of the weights that computed a token, as chosen by the client that loaded them."""


@dataclass(frozen=True)
class TokenLogp:
    """Token with its log-probability, and the most likely tokens in its place with theirs.

    `logp` refers to the sampling distribution, at the temperature and after truncation; at temperature 0, and for
    prompt tokens, to the model's distribution.
    """

    token: int
    logp: float
    top: Mapping[int, float]


@dataclass(frozen=True)
class CompletionPiece:
    """Next tokens of completion number `index`, with the text that has become final.

    `finish` is None until the last piece. `stop` is the stop string or token that ended the completion, unless it is
    an end token of the model.
    """

    index: int
    tokens: tuple[TokenLogp, ...]
    text: str
    version: Version
    finish: FinishReason | None = None
    stop: str | int | None = None


@dataclass(frozen=True)
class Generation:
    """`n` completions of one prompt of token ids.

    The random stream of completion i depends only on `seed`, `name` and i (see `engines.token_sampling`). `top` is
    the number of most likely tokens reported with every token, None for no log-probabilities. With `streams`, pieces
    are sent as tokens are sampled, otherwise one per whole completion. With `strips`, surrounding white space is
    removed from the text. Special tokens of `marks` stay in the text.
    """

    prompt: tuple[int, ...]
    sampling: config.Sampling
    end_ids: frozenset[int]
    n: int = 1
    seed: int = 0
    name: str = ""
    stop_ids: frozenset[int] = frozenset()
    adapter: str = ""
    top: int | None = None
    streams: bool = False
    strips: bool = False
    marks: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Number of completions computed at the same time."""
        return self.n


@dataclass(frozen=True)
class Scoring:
    """Log-probabilities of the prompt tokens after the first, and of the `top` most likely tokens."""

    prompt: tuple[int, ...]
    top: int = 0
    adapter: str = ""

    @property
    def rows(self) -> int:
        """Number of sequences computed at the same time."""
        return 1


Job = Generation | Scoring


@dataclass(frozen=True)
class Ticket:
    """Job in the queue of the worker, with the receiver of its results. `cancelled` is set from another thread."""

    job: Job
    deliver: Callable[[Any], None]
    cancelled: Event = field(default_factory=Event)


class Line:
    """State of one completion during decoding."""

    def __init__(self, ticket: Ticket, job: Generation, index: int, tokenizer: Any, version: Version) -> None:
        self.ticket, self.job, self.index, self.version = ticket, job, index, version
        begun = opening(tokenizer) if job.strips else ""
        self.text = TextStream(tokenizer, job.sampling.stop, strips=job.strips, opening=begun, marks=job.marks)
        self.uniforms = uniforms([row_seed(job.seed, job.name, index)], job.sampling.max_new_tokens)[0]
        self.distribution = replace(job.sampling, max_new_tokens=1, stop=())
        """Settings that affect the distribution of the next token."""
        self.count = 0
        self.unsent: list[TokenLogp] = []
        self.unsent_text = ""

    @property
    def is_cancelled(self) -> bool:
        """Whether the client has disconnected."""
        return self.ticket.cancelled.is_set()

    def add(self, token: TokenLogp) -> bool:
        """Add a sampled token, and deliver pending output. Returns whether it was the last token."""
        self.count += 1
        self.unsent.append(token)
        finish: FinishReason | None = None
        stop: str | int | None = None
        if token.token in self.job.end_ids:
            finish = "stop"
        elif token.token in self.job.stop_ids:
            finish, stop = "stop", token.token
        else:
            self.unsent_text += self.text.push(token.token)
            if self.text.found is not None:
                finish, stop = "stop", self.text.found
        if finish is None and self.count == self.job.sampling.max_new_tokens:
            finish = "length"
        if finish is not None:
            self.close(finish, stop)
        elif self.job.streams:
            self._send(None, None)
        return finish is not None

    def close(self, finish: FinishReason, stop: str | int | None = None) -> None:
        """Deliver the last piece."""
        self.unsent_text += self.text.finish()
        self._send(finish, stop)

    def _send(self, finish: FinishReason | None, stop: str | int | None) -> None:
        piece = CompletionPiece(self.index, tuple(self.unsent), self.unsent_text, self.version, finish, stop)
        self.unsent, self.unsent_text = [], ""
        self.ticket.deliver(piece)


class DecodingGroup:
    """Lines on one decoder. Every step samples one token per line; `begin` samples the first one."""

    def __init__(self, decoders: Decoders, batch: PromptBatch, lines: Sequence[Line]) -> None:
        self.lines = list(lines)
        limit = max(line.job.sampling.max_new_tokens for line in lines)
        self.decoder = decoders.decoder(batch, limit)
        self.tokens = torch.empty(0, dtype=torch.long)
        """Last token of each line."""

    def begin(self) -> None:
        """Read the prompts, and sample the first token of each line."""
        self.advance(self.decoder.start())

    def advance(self, logits: Tensor) -> None:
        """Sample the next token of each line from logits [n, V], and drop finished lines."""
        tokens, sampled = next_tokens(logits, self.lines)
        ended = [line.add(token) for line, token in zip(self.lines, sampled, strict=True)]
        going = [
            number
            for number, (line, end) in enumerate(zip(self.lines, ended, strict=True))
            if not end and not line.is_cancelled
        ]
        if len(going) < len(self.lines):
            index = torch.tensor(going, dtype=torch.long, device=tokens.device)
            self.lines = [self.lines[number] for number in going]
            tokens = tokens[index]
            if going:
                self.decoder.keep(index)
        self.tokens = tokens


def groups_of(decoders: Decoders, lines: Sequence[Line], rows: int) -> list[DecodingGroup]:
    """Split lines into groups of up to `rows` for decoding, by similar length of prompt."""
    rows_of: dict[tuple[int, ...], list[int]] = {}
    for number, line in enumerate(lines):
        rows_of.setdefault(line.job.prompt, []).append(number)
    batches = batches_of(rows_of, rows, mixed=decoders.mixes_lengths)
    return [DecodingGroup(decoders, batch, [lines[number] for number in own]) for batch, own in batches]


def next_tokens(logits: Tensor, lines: Sequence[Line]) -> tuple[Tensor, list[TokenLogp]]:
    """Next token of each line from logits [n, V], with the line's own settings and random number."""
    tokens = torch.empty(len(lines), dtype=torch.long, device=logits.device)
    sampled: dict[int, TokenLogp] = {}
    for sampling, numbers in _by_sampling(lines).items():
        own = logits if len(numbers) == len(lines) else logits[torch.tensor(numbers, device=logits.device)]
        chosen = [lines[number] for number in numbers]
        uniform = torch.stack([line.uniforms[line.count] for line in chosen]).to(logits.device)
        ids, logp = draw(own, sampling, uniform)
        tokens[torch.tensor(numbers, device=logits.device)] = ids
        with_top = _with_top(own, sampling, ids, logp, [line.job.top for line in chosen])
        sampled.update(zip(numbers, with_top, strict=True))
    return tokens, [sampled[number] for number in range(len(lines))]


def _by_sampling(lines: Sequence[Line]) -> dict[config.Sampling, list[int]]:
    """Indices of lines by distribution of the next token."""
    alike: dict[config.Sampling, list[int]] = {}
    for number, line in enumerate(lines):
        alike.setdefault(line.distribution, []).append(number)
    return alike


def _with_top(
    logits: Tensor, sampling: config.Sampling, drawn: Tensor, logp: Tensor, tops: Sequence[int | None]
) -> list[TokenLogp]:
    """Tokens with their log-probabilities, and those of the most likely tokens if requested."""
    most, wants_logps = max((top or 0 for top in tops), default=0), any(top is not None for top in tops)
    likeliest: list[dict[int, float]] = [{} for _ in tops]
    if wants_logps and (most or sampling.temperature == 0):
        own = distribution(logits, sampling)
        if sampling.temperature == 0:
            logp = own.gather(-1, drawn[:, None]).squeeze(-1)
        values, tokens = (x.tolist() for x in own.topk(min(most, own.shape[-1]), -1))
        likeliest = [
            {token: value for token, value in zip(ids[:top], each[:top], strict=True) if value > -math.inf}
            for ids, each, top in zip(tokens, values, (top or 0 for top in tops), strict=True)
        ]
    columns = zip(drawn.tolist(), logp.tolist(), likeliest, strict=True)
    return [TokenLogp(token, each, top) for token, each, top in columns]


def distribution(logits: Tensor, sampling: config.Sampling) -> Tensor:
    """Log-probabilities [n, V] of the sampling distribution; at temperature 0, of the model's."""
    logits = logits.float()
    if sampling.temperature == 0:
        return logits.log_softmax(-1)
    return truncated(logits / sampling.temperature, sampling).log_softmax(-1)


@torch.no_grad()
def score(policy: Policy, jobs: Sequence[Scoring]) -> list[tuple[TokenLogp, ...]]:
    """For each job, the prompt tokens after the first, each conditioned on the tokens before it, at temperature 1."""
    scores: list[tuple[TokenLogp, ...]] = [() for _ in jobs]
    longer = [number for number, job in enumerate(jobs) if len(job.prompt) > 1]
    if not longer:
        return scores
    rows = [EncodedRow(jobs[number].prompt[:1], jobs[number].prompt[1:]) for number in longer]
    batch = collate(rows, pad_token_id(policy.tokenizer), policy.device)
    for index in policy.split(batch, max(1, CHUNK_ELEMENTS // policy.vocabulary)):
        part, numbers = batch.rows(index).trimmed(), [longer[place] for place in index.tolist()]
        logp = policy.logits(part).log_softmax(-1)
        own = logp.gather(-1, part.response[part.mask][:, None]).squeeze(-1).tolist()
        most = min(max(jobs[number].top for number in numbers), logp.shape[-1])
        values, tokens = (x.tolist() for x in logp.topk(most, -1))
        start = 0
        for number in numbers:
            job, end = jobs[number], start + len(jobs[number].prompt) - 1
            scores[number] = tuple(
                TokenLogp(token, own[at], dict(zip(tokens[at][: job.top], values[at][: job.top], strict=True)))
                for token, at in zip(job.prompt[1:], range(start, end), strict=True)
            )
            start = end
    return scores
