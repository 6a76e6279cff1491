"""Token ids as padded tensors, and their division by a budget of tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tutelage.core.batch import Rows


@dataclass(frozen=True)
class Encoded:
    """One prompt with one response as token ids."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.response)


def left_padded(rows: Sequence[Sequence[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Token lists → (Int[B, Q], Bool[B, Q]) padded on the left."""
    if any(not row for row in rows):
        raise ValueError("a prompt needs at least one token")
    width = max(len(row) for row in rows)
    tokens = torch.tensor([[pad] * (width - len(row)) + list(row) for row in rows], device=device)
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return tokens, torch.arange(width, device=device) >= width - lengths[:, None]


def right_padded(rows: Sequence[Sequence[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Token lists → (Int[B, R], Bool[B, R]) padded on the right."""
    width = max((len(row) for row in rows), default=0)
    tokens = torch.tensor(
        [list(row) + [pad] * (width - len(row)) for row in rows], dtype=torch.long, device=device
    )
    lengths = torch.tensor([len(row) for row in rows], device=device)
    return tokens, torch.arange(width, device=device) < lengths[:, None]


def collate(rows: Sequence[Encoded], pad: int, device: torch.device) -> Rows:
    """Token ids → one padded batch."""
    prompt, prompt_mask = left_padded([row.prompt for row in rows], pad, device)
    response, mask = right_padded([row.response for row in rows], pad, device)
    return Rows(prompt=prompt, prompt_mask=prompt_mask, response=response, mask=mask)


def by_tokens(lengths: Tensor, budget: int) -> Iterator[Tensor]:
    """Split rows into micro-batches of at most `budget` padded tokens, longest together. Yields Int[b].

    Rows of like length share a micro-batch, so that padding is rare; a row longer than the budget stands alone.
    Since every weight is computed over the whole batch before, the split changes no result.
    """
    order = lengths.argsort(descending=True, stable=True)
    start = 0
    while start < len(order):
        width = max(1, int(lengths[order[start]]))
        count = max(1, budget // width)
        yield order[start : start + count]
        start += count
