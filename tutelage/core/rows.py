"""Token ids as padded tensors, the meaning of their columns, and micro-batches by number of tokens."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor
from torch.nn.functional import pad as pad_columns

from tutelage.core.batch import Branches, Pairs, Rows

COMMON = 16
"""Minimum length of a common prefix of prompts for reading it once in a forward pass; attention then copies its keys
and values."""


@dataclass(frozen=True)
class EncodedRow:
    """One prompt with one completion as token ids. `weight` applies to its tokens in a loss weighted by row."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]
    weight: float = 1.0

    def __len__(self) -> int:
        return len(self.prompt) + len(self.response)


@dataclass(frozen=True)
class RowList:
    """Rows as token ids, padded per micro-batch."""

    items: Sequence[EncodedRow]
    owner: None = None

    def __len__(self) -> int:
        return len(self.items)

    def rows(self, index: Int[Tensor, " b"]) -> "RowList":
        """The rows at `index`."""
        return RowList([self.items[i] for i in index.tolist()])

    def lengths(self) -> Int[Tensor, " B"]:
        """Tokens in each row, prompt and completion together. Int[B]"""
        return torch.tensor([len(row) for row in self.items], dtype=torch.long)

    def response_lengths(self) -> Int[Tensor, " B"]:
        """Tokens of each completion. Int[B]"""
        return torch.tensor([len(row.response) for row in self.items], dtype=torch.long)

    def families(self) -> Int[Tensor, " B"]:
        """Prompt index of each row: equal for rows with the same prompt. Int[B]"""
        numbers: dict[tuple[int, ...], int] = {}
        return torch.tensor([numbers.setdefault(row.prompt, len(numbers)) for row in self.items], dtype=torch.long)


def numbered(rows: Sequence[EncodedRow]) -> tuple[list[EncodedRow], Int[Tensor, " N"]]:
    """The distinct rows, in order of first occurrence, and the index of every row among them. Int[N]"""
    place = {row: number for number, row in enumerate(dict.fromkeys(rows))}
    return list(place), torch.tensor([place[row] for row in rows], dtype=torch.long)


def left_padded(
    rows: Sequence[Sequence[int]], pad: int, device: torch.device
) -> tuple[Int[Tensor, "B Q"], Bool[Tensor, "B Q"]]:
    """Token lists → (Int[B, Q], Bool[B, Q]) padded on the left."""
    if any(not row for row in rows):
        raise ValueError("a prompt needs at least one token")
    width = max((len(row) for row in rows), default=0)
    padded = [[pad] * (width - len(row)) + list(row) for row in rows]
    tokens = torch.tensor(padded, dtype=torch.long, device=device).reshape(len(rows), width)
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.long, device=device)
    return tokens, torch.arange(width, device=device) >= width - lengths[:, None]


def right_padded(
    rows: Sequence[Sequence[int]], pad: int, device: torch.device
) -> tuple[Int[Tensor, "B R"], Bool[Tensor, "B R"]]:
    """Token lists → (Int[B, R], Bool[B, R]) padded on the right."""
    width = max((len(row) for row in rows), default=0)
    padded = [list(row) + [pad] * (width - len(row)) for row in rows]
    tokens = torch.tensor(padded, dtype=torch.long, device=device).reshape(len(rows), width)
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.long, device=device)
    return tokens, torch.arange(width, device=device) < lengths[:, None]


def collate(rows: Sequence[EncodedRow], pad: int, device: torch.device) -> Rows:
    """Token ids → one padded batch."""
    prompt, prompt_mask = left_padded([row.prompt for row in rows], pad, device)
    response, mask = right_padded([row.response for row in rows], pad, device)
    return Rows(prompt=prompt, prompt_mask=prompt_mask, response=response, mask=mask)


def with_end(rows: Rows, ends: Sequence[int], *, longest: int | None = None) -> Rows:
    """The rows with the token `ends[0]` at the end of every completion.

    It replaces a last token in `ends` and is appended otherwise. In a row of `longest` tokens it replaces the last
    token in any case.
    """
    lengths = rows.mask.sum(1, keepdim=True)
    response = pad_columns(rows.response, (0, 1))
    last = response.gather(1, (lengths - 1).clamp(min=0))
    ended = (lengths > 0) & torch.isin(last, torch.tensor(ends, device=last.device))
    place = lengths - ended.long()
    if longest is not None:
        place = place.minimum(longest - 1 - rows.prompt_mask.sum(1, keepdim=True)).clamp(min=0)
    mask = torch.arange(response.shape[1], device=place.device) <= place
    response = response.scatter(1, place, ends[0])
    return Rows(prompt=rows.prompt, prompt_mask=rows.prompt_mask, response=response, mask=mask)


def read_at(
    contexts: Rows, marked: Bool[Tensor, "C W"], episode: Int[Tensor, " C"] | None = None, *, longest: int | None = None
) -> Rows:
    """Rows whose columns are the `marked` completion tokens of some contexts, of all contexts of an `episode` one after
    the other (ascending; by default each context is its own).

    What a model computes before a column is its state at the marked token, of which nothing after it is part. Each
    context gets a token at its end that is never a part of a state; with `longest`, one of as many tokens loses the
    first of its prompt in exchange.
    """
    lengths, width = contexts.mask.sum(1, keepdim=True), contexts.mask.shape[1]
    place = torch.arange(width + 1, device=lengths.device)
    prompt_mask = contexts.prompt_mask
    if longest is not None:
        over = (prompt_mask.sum(1, keepdim=True) + lengths + 1 - longest).clamp(min=0)
        prompt_mask = prompt_mask & (prompt_mask.cumsum(1) > over)
    longer = Rows(
        prompt=contexts.prompt,
        prompt_mask=prompt_mask,
        response=pad_columns(contexts.response, (0, 1)),
        mask=place <= lengths,
    )
    sampled = pad_columns(marked, (1, 0))
    episode = torch.arange(len(contexts), device=lengths.device) if episode is None else episode
    count = int(episode.max()) + 1 if len(episode) else 0
    columns = sampled.new_zeros(count, dtype=torch.long).index_add_(0, episode, sampled.sum(1))
    index = torch.arange(len(episode), device=lengths.device)
    first = columns.new_full((count,), len(episode)).scatter_reduce(0, episode, index, "amin")
    mask = torch.arange(int(columns.max()) if count else 0, device=lengths.device) < columns[:, None]
    return Rows(
        prompt=longer.prompt[first],
        prompt_mask=longer.prompt_mask[first],
        response=spread(longer.response[sampled], mask),
        mask=mask,
        branches=Branches(longer, sampled, episode),
    )


def positions(mask: Shaped[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """Position ids that skip padding. Int[B, T]"""
    return (mask.long().cumsum(1) - 1).clamp(min=0)


def left_aligned(rows: Rows) -> Int[Tensor, "B T"]:
    """Prompt and completion of each row without padding before or between them, and zeros after, as wide as the longest
    row; a token is in the column of its position (see `positions`). Int[B, T]"""
    tokens = torch.cat([rows.prompt, rows.response], 1)
    mask = torch.cat([rows.prompt_mask, rows.mask], 1)
    width = int(mask.sum(1).max()) if len(mask) else 0  # in a wider one a model would count positions that no row has
    place = positions(mask).where(mask, width)  # padding goes to a column of its own
    return tokens.new_zeros(len(tokens), width + 1).scatter(1, place, tokens)[:, :width]


def before_each_response_token(x: Shaped[Tensor, "B T ..."], rows: Rows) -> Shaped[Tensor, "B R ..."]:
    """[B, Q + R, …] → [B, R, …], where entry t is the state that predicts completion token t.

    This is the only place that implements the shift by one.
    """
    first = rows.prompt.shape[1] - 1
    if first < 0:
        raise ValueError("a prompt needs at least one token: nothing predicts the first response token otherwise")
    return x[:, first : first + rows.response.shape[1]]


def spread(values: Shaped[Tensor, " M"], mask: Bool[Tensor, "B R"]) -> Shaped[Tensor, "B R"]:
    """Values of the M completion tokens, row by row → [B, R] with zeros elsewhere, differentiable."""
    return torch.zeros(mask.shape, device=mask.device, dtype=values.dtype).masked_scatter(mask, values)


def distinct(rows: Rows) -> tuple[Int[Tensor, " K"], Int[Tensor, " B"]]:
    """Deduplicate rows with equal prompt and completion. Returns the indices of the distinct rows (Int[K]) and, for
    every row, its index among these (Int[B]). Episodes with branches all count as distinct."""
    if rows.branches is not None:
        every = torch.arange(len(rows), device=rows.mask.device)
        return every, every
    tokens = torch.cat([rows.prompt, rows.response], 1)
    mask = torch.cat([rows.prompt_mask, rows.mask], 1)
    same = tokens.where(mask, -1).unique(dim=0, return_inverse=True)[1]
    unique = torch.full((int(same.max()) + 1,), len(same), device=same.device)
    places = torch.arange(len(same), device=same.device)
    return unique.scatter_reduce(0, same, places, "amin"), same


def aligned_prompts(rows: Rows) -> Int[Tensor, "B Q"]:
    """The prompts aligned on the left, with −1 after their end."""
    column = torch.arange(rows.prompt.shape[1], device=rows.prompt.device)
    length = rows.prompt_mask.sum(1, keepdim=True)
    index = (column - length) % max(len(column), 1)
    return rows.prompt.gather(1, index).where(column < length, -1)


def common_tokens(batch: Rows | Pairs | RowList) -> int:
    """Length of the common prefix of all prompts; 0 if less than COMMON."""
    if not len(batch):
        return 0
    if isinstance(batch, RowList):
        prompts = [row.prompt for row in batch.items]
        alike = [a == b for a, b in zip(min(prompts), max(prompts), strict=False)]
        count = (*alike, False).index(False)
    else:
        rows = batch.both() if isinstance(batch, Pairs) else batch.contexts
        prompt, length = aligned_prompts(rows), rows.prompt_mask.sum(1)
        count = min(int((prompt == prompt[0]).all(0).cumprod(0).sum()), int(length.min()))
    return count if count >= COMMON else 0


def by_tokens(lengths: Int[Tensor, " B"], budget: int) -> Iterator[Int[Tensor, " b"]]:
    """Split rows into micro-batches of at most `budget` padded tokens, longest together. Yields Int[b].

    Rows of similar length share a micro-batch, which minimises padding; a row longer than the budget forms its own.
    Loss weights are computed over the whole batch beforehand, so the split does not affect results.
    """
    order = lengths.argsort(descending=True, stable=True)
    start = 0
    while start < len(order):
        width = max(1, int(lengths[order[start]]))
        count = max(1, budget // width)
        yield order[start : start + count]
        start += count


def split_by_length(batch: Rows | Pairs | RowList, tokens: int) -> Iterator[Int[Tensor, " b"]]:
    """Split a batch into micro-batches of at most `tokens` padded tokens, see `by_tokens`. Yields Int[b]."""
    return by_tokens(batch.lengths(), tokens)


@dataclass(frozen=True)
class RowShare:
    """The part of a row computed by a forward pass in which every prompt and every distinct completion is computed
    once."""

    prompt: Hashable
    prompt_tokens: int
    answer: int
    """Index of the first equal row."""
    own_tokens: int


def shares(batch: Rows | Pairs | RowList) -> list[tuple[RowShare, ...]]:
    """The shares of each row, one for each of its contexts, or of both rows of each pair."""
    if isinstance(batch, RowList):
        first: dict[EncodedRow, int] = {}
        return [
            (RowShare(row.prompt, len(row.prompt), first.setdefault(row, number), len(row.response)),)
            for number, row in enumerate(batch.items)
        ]
    rows = batch.both() if isinstance(batch, Pairs) else batch.contexts
    if not len(rows):
        return []
    unique, same = distinct(rows)
    columns = [rows.families(), rows.prompt_mask.sum(1), unique[same], rows.mask.sum(1)]
    each = [RowShare(*column) for column in torch.stack(columns, 1).tolist()]
    if isinstance(batch, Pairs):
        return list(zip(each[: len(batch)], each[len(batch) :], strict=True))
    if batch.branches is None:
        return [(share,) for share in each]
    own: list[list[RowShare]] = [[] for _ in range(len(batch))]
    for episode, share in zip(batch.branches.episode.tolist(), each, strict=True):
        own[episode].append(share)
    return [tuple(parts) for parts in own]


def by_shared_tokens(items: Sequence[Sequence[RowShare]], budget: int, common: int = 0) -> Iterator[Int[Tensor, " b"]]:
    """Split items into micro-batches of at most `budget` tokens. Repeated prompts and completions, and the `common`
    prefix of all prompts, count once per micro-batch. Yields Int[b].

    An item is a row or a pair of rows. Items with the same prompt stay together if they fit into the budget; otherwise
    items that share a completion are neighbours. A single item beyond the budget forms its own micro-batch.
    """
    groups: dict[Hashable, list[int]] = {}
    for number, item in enumerate(items):
        groups.setdefault(item[0].prompt, []).append(number)
    part: list[int] = []
    for group in groups.values():
        fits = _tokens(items, group, common) <= budget
        pieces = [group] if fits else [[one] for one in _neighbours(items, group)]
        for piece in pieces:
            if part and _tokens(items, part + piece, common) > budget:
                yield torch.tensor(part)
                part = []
            part = part + piece
    if part:
        yield torch.tensor(part)


def _neighbours(items: Sequence[Sequence[RowShare]], which: Sequence[int]) -> list[int]:
    """Some items, sorted by the last and then by the first of their completions."""
    answers = {number: [share.answer for share in items[number]] for number in which}
    return sorted(which, key=lambda number: (max(answers[number]), min(answers[number]), number))


def _tokens(items: Sequence[Sequence[RowShare]], which: Sequence[int], common: int) -> int:
    """Tokens of a forward pass over some items."""
    spans = [share for number in which for share in items[number]]
    prompts = {share.prompt: share.prompt_tokens for share in spans}
    answers = {share.answer: share.own_tokens for share in spans}
    return sum(prompts.values()) - common * (len(prompts) - 1) + sum(answers.values())
