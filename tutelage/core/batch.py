"""The tensors that flow through training.

B rows = P prompts × G samples, row b belongs to prompt b // G; Q prompt tokens, R completion tokens. Prompts are padded
on the left, completions on the right, and `mask` is true up to and including the end token. Every per-token tensor is
[B, R], and `x[b, t]` belongs to completion token t *given the prompt and response[:t]*: its log-probability, the value
of the state before it, the reward on it. Termination is explicit and never inferred from the ids of pad or end tokens.

A row may be an episode of several turns. Its R columns are the tokens that the policy sampled, turn after turn, without
gaps, and all per-token tensors are [B, R] as ever. What the policy read between its turns is in `branches` alone, which
only models see: the tokens of the rows as contexts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self, TypeVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.functional import embedding, pad

from tutelage.core.shapes import Index, Lengths, PerRow, PerToken, RowMask, TokenMask


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Prompts with one completion each."""

    prompt: Int[Tensor, "B Q"]  # left-padded
    prompt_mask: Bool[Tensor, "B Q"]
    response: Int[Tensor, "B R"]  # right-padded
    mask: TokenMask  # true up to and including the end token
    owner: Int[Tensor, " B"] | None = None  # rank that must compute each row; None if any may
    branches: "Branches | None" = None  # contexts of the tokens; None if each row is its own

    def __len__(self) -> int:
        return self.prompt.shape[0]

    @property
    def contexts(self) -> "Rows":
        """The rows that a model reads to score the tokens: the branches, or these rows without any."""
        return self if self.branches is None else self.branches.contexts

    def rows(self, index: Index) -> Self:
        """The rows at `index` (Int[b] or Bool[B]) of every per-row field."""
        if index.dtype == torch.bool:
            index = index.nonzero().squeeze(1)
        return self._map(
            lambda x: x[index.to(x.device)],
            lambda x: tuple(x[i] for i in index.tolist() if x),
            lambda branches: branches.of(index),
        )

    def to(self, device: torch.device | str) -> Self:
        """The same rows on another device."""
        return self._map(lambda x: x.to(device), lambda x: x, lambda branches: branches.to(device))

    def trimmed(self) -> Self:
        """The same rows without columns that are padding in all of them. Affects only the cost."""
        before, counts = self.mask.shape[1], [self.prompt_mask.sum(1), self.mask.sum(1)]
        longest, width = (
            torch.stack(counts).amax(1).tolist() if len(self) else (0, 0)
        )  # synchronises with the device once
        left = self.prompt.shape[1] - longest

        def cut(name: str, x: Tensor) -> Tensor:
            if name in ("prompt", "prompt_mask"):
                return x[:, left:]
            return x[:, :width] if x.dim() == 2 and x.shape[1] == before else x

        changes = {f.name: getattr(self, f.name) for f in fields(self)}
        cuts: dict[str, Any] = {k: cut(k, v) for k, v in changes.items() if isinstance(v, Tensor)}
        return replace(self, **cuts, branches=None if self.branches is None else self.branches.trimmed())

    @cached_property
    def places(self) -> tuple[Int[Tensor, " M"], Int[Tensor, " M"]]:
        """Row and column in `contexts` of every completion token, row by row. Without branches `x[places]` is
        `x[mask]`, without a device synchronisation at each call."""
        rows, columns = (self.mask if self.branches is None else self.branches.sampled).nonzero(as_tuple=True)
        return rows, columns

    def lengths(self) -> Lengths:
        """Tokens that a model reads for each row, prompt and completion together. Int[B]"""
        own = self.contexts.prompt_mask.sum(1) + self.contexts.mask.sum(1)
        return own if self.branches is None else own.new_zeros(len(self)).index_add_(0, self.branches.episode, own)

    def response_lengths(self) -> Lengths:
        """Tokens of each completion. Int[B]"""
        return self.mask.sum(1)

    def families(self) -> Lengths:
        """Prompt index of each row: equal for rows with the same prompt. Int[B]"""
        return self.prompt.where(self.prompt_mask, -1).unique(dim=0, return_inverse=True)[1]

    def _map(self, tensor, other, branches) -> Self:  # type: ignore[no-untyped-def]
        changes = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                changes[field.name] = tensor(value)
            elif isinstance(value, tuple):
                changes[field.name] = other(value)
            elif isinstance(value, Branches):
                changes[field.name] = branches(value)
        return replace(self, **changes)


@dataclass(frozen=True)
class Branches:
    """Contexts of the tokens of E episodes, as C ≥ E rows: in the completion of a context the tokens that the policy
    sampled stand between those that it read.

    An episode has one context as long as each turn continues the one before. Another begins where a chat template
    rewrites the past; it repeats sampled tokens as read ones. The tokens `sampled` in the contexts of an episode,
    context by context and column by column, are those of its row.
    """

    contexts: Rows
    sampled: TokenMask  # [C, W], within the mask of the contexts
    episode: Int[Tensor, " C"]  # index of the row of each context, ascending

    def of(self, index: Int[Tensor, " b"]) -> "Branches":
        """The contexts of the episodes at `index`, which may repeat."""
        index = index.to(self.episode.device)
        counts = self.episode.bincount(minlength=int(index.max()) + 1 if len(index) else 0)
        starts, own = (counts.cumsum(0) - counts)[index], counts[index]
        episode = torch.arange(len(index), device=index.device).repeat_interleave(own)
        place = torch.arange(len(episode), device=index.device) - (own.cumsum(0) - own)[episode] + starts[episode]
        return Branches(self.contexts.rows(place), self.sampled[place], episode)

    @staticmethod
    def joined(parts: Sequence[Rows]) -> "Branches | None":
        """The contexts of the rows of several batches, which are their own where a batch has no branches; None if no
        batch has any."""
        if all(part.branches is None for part in parts):
            return None
        contexts = stacked(*(part.contexts for part in parts))
        width, sampled, episode, count = contexts.mask.shape[1], list[Tensor](), list[Tensor](), 0
        for part in parts:
            own = part.mask if part.branches is None else part.branches.sampled
            sampled.append(pad(own, (0, width - own.shape[1])))
            index = torch.arange(len(part), device=own.device) if part.branches is None else part.branches.episode
            episode.append(index + count)
            count += len(part)
        return Branches(contexts, torch.cat(sampled), torch.cat(episode))

    def to(self, device: torch.device | str) -> "Branches":
        """The same contexts on another device."""
        return Branches(self.contexts.to(device), self.sampled.to(device), self.episode.to(device))

    def trimmed(self) -> "Branches":
        """The same contexts without columns that are padding in all of them."""
        contexts = self.contexts.trimmed()
        return Branches(contexts, self.sampled[:, : contexts.mask.shape[1]], self.episode)

    def last(self, count: int) -> Rows:
        """The last context of each of `count` episodes: all that was said, as the policy last read it."""
        place = torch.arange(len(self.episode), device=self.episode.device)
        return self.contexts.rows(place.new_zeros(count).scatter_reduce(0, self.episode, place, "amax"))


@dataclass(frozen=True, kw_only=True)
class Rollout(Rows):
    """Completions that a sampler drew, with the log-probability of each token."""

    logp: PerToken  # of the sampler, at its temperature and after truncation
    terminated: RowMask  # the completion ended by itself
    truncated: RowMask  # the completion was cut at the limit
    group: int  # G, samples per prompt; meaningful as long as the rows of a prompt are together
    ids: tuple[str, ...]  # the prompt's id, one per row
    texts: tuple[str, ...] = ()  # text of each completion; empty if not decoded
    version: Int[Tensor, "B R"] | None = None  # version of the weights that sampled each token
    turn: Int[Tensor, "B R"] | None = None  # index of each token's turn; None if every row is a single turn
    turn_reward: PerToken | None = None  # rewards of turns, on the last token of each, apart from the score of the row
    outcome: PerRow | None = None  # what the environment of each episode returned; NaN if it returned nothing
    transcripts: tuple[tuple[Any, ...], ...] = ()  # messages of each episode; empty without turns
    given: RowMask | None = None  # completions that were not sampled; their logp is of the policy at that time

    @property
    def drawn(self) -> RowMask:
        """The completions that the sampler drew. Bool[B]"""
        return torch.ones_like(self.terminated) if self.given is None else ~self.given


@dataclass(frozen=True)
class TokenScores:
    """Quantities of a policy for completion tokens, each [B, R] and 0 at padding."""

    logp: PerToken
    entropy: PerToken | None = None  # of the next token's whole distribution
    value: PerToken | None = None  # of the state before each token
    divergence: PerToken | None = None  # of the next token's whole distribution from the reference's

    def rows(self, index: Int[Tensor, " b"]) -> Self:
        """The scores of the rows at `index`, which may contain duplicates."""
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        chosen: dict[str, Any] = {name: x if x is None else embedding(index, x) for name, x in columns.items()}
        return replace(self, **chosen)


@dataclass(frozen=True, kw_only=True)
class ScoredRollout(Rollout):
    """A rollout with the scores of the reward, the log-probabilities of the reference and the values of the critic."""

    score: PerRow  # as returned by the reward
    ref_logp: PerToken  # of the reference, at the sampling temperature
    value: PerToken | None = None  # of the state before each token
    last_value: PerRow | None = None  # of the state after the last token where the completion was cut, else 0
    importance: PerToken | None = None  # importance weight per token, if the sampler differs from the policy


@dataclass(frozen=True, kw_only=True)
class Batch(ScoredRollout):
    """A scored rollout with Ψ, ready for the update. Rows are independent of each other."""

    advantage: PerToken  # Psi
    target: PerToken | None = None  # target of the critic


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Preferred and rejected completions to the same prompts."""

    chosen: Rows
    rejected: Rows
    p_chosen: PerRow  # probability that `chosen` is better
    weight: PerRow
    margin: PerRow  # nats

    def __len__(self) -> int:
        return len(self.chosen)

    def rows(self, index: Index) -> Self:
        """The pairs at `index`."""
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        own: dict[str, Any] = {k: x.rows(index) if isinstance(x, Rows) else x[index] for k, x in columns.items()}
        return replace(self, **own)

    def lengths(self) -> Lengths:
        """Tokens of both sides of each pair. Int[B]"""
        return self.chosen.lengths() + self.rejected.lengths()

    def response_lengths(self) -> Lengths:
        """Tokens of both completions of each pair. Int[B]"""
        return self.chosen.response_lengths() + self.rejected.response_lengths()

    def families(self) -> Lengths:
        """Prompt index of each pair: equal for pairs with the same prompt. Int[B]"""
        return self.chosen.families()

    @property
    def owner(self) -> None:
        """Any rank may compute a pair."""
        return None

    def both(self) -> Rows:
        """All chosen rows, then all rejected ones, padded to a common width. 2B rows"""
        return stacked(self.chosen, self.rejected)


B = TypeVar("B", bound=Rows | Pairs)


def extended(batch: Rows | Pairs, kind: type[B], **more: Any) -> B:
    """The batch as one of a `kind` with `more` columns."""
    return kind(**{f.name: getattr(batch, f.name) for f in fields(kind) if hasattr(batch, f.name)} | more)


def stacked(*parts: Rows) -> Rows:
    """Concatenate batches, padded to a common width, without their branches."""
    prompt = max(part.prompt.shape[1] for part in parts)
    response = max(part.response.shape[1] for part in parts)

    def column(name: str, width: int, left: bool) -> Tensor:
        own = [getattr(part, name) for part in parts]
        return torch.cat([pad(x, (width - x.shape[1], 0) if left else (0, width - x.shape[1])) for x in own])

    return Rows(
        prompt=column("prompt", prompt, True),
        prompt_mask=column("prompt_mask", prompt, True),
        response=column("response", response, False),
        mask=column("mask", response, False),
    )
