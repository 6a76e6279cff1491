"""Attention of one decoding step over a fixed number of slots, with each prompt's keys and values read once per group
of slots that share it.

    output = softmax(scale · q [K ; k]ᵀ) [V ; v]        K, V: the slot's prompt; k, v: its own tokens so far

Chunks of keys are attended to separately and merged by log-sum-exp, all in float32:

    m_c = max s        z_c = Σ exp(s − m_c)        a_c = Σ exp(s − m_c) v        of the scores s of chunk c
    output = Σ_c exp(m_c − m) a_c / Σ_c exp(m_c − m) z_c        m = max m_c

A step can be captured in a CUDA graph: shapes and grids depend on capacities only, lengths and places are read on the
device. What a slot gets depends neither on other slots nor on their number. Letters: S slots, H heads of queries, K of
keys, w their width, M and R the capacity of the prompts together and of a slot's own tokens, G groups of at most P.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int32
from torch import Tensor
from torch.nn.functional import pad

from tutelage.base.errors import TutelageError

CHUNK = 128
"""Keys of one program, and of one partial result."""
TILE = {2: 64, 4: 16}
"""Keys that a program reads at once, by the bytes of a number: float32 products, which are not made by tensor cores,
keep more in registers."""
MERGED = 16
"""Partial results of a slot and head that are read at once."""


class SlotIndices(NamedTuple):
    """Places and lengths of the keys of all slots, for all layers, contiguous. A slot is in one group
    at most."""

    group_start: Int32[Tensor, " G"]
    """First row of the group's prompt among the packed ones."""
    group_length: Int32[Tensor, " G"]
    """Tokens of the group's prompt, at most the longest that the attention was made for."""
    members: Int32[Tensor, "G P"]
    """Slots of the group; −1 at unused places."""
    length: Int32[Tensor, " S"]
    """Own tokens of a slot with the new one, whose position is length − 1; 0 for an unused slot."""


def triton_kernels() -> ModuleType:
    """The kernels; they are imported here, since only a GPU needs Triton."""
    try:
        from tutelage.engines.gpu import slot_kernels
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "triton":
            raise
        raise TutelageError(
            "decoding on a GPU needs Triton, which is not installed: install a CUDA build of PyTorch, which brings it, "
            "or use --engine plain"
        ) from error
    return slot_kernels


def write_own(
    own_k: Float[Tensor, "S R K w"],
    own_v: Float[Tensor, "S R K w"],
    key: Float[Tensor, "S K w"],
    value: Float[Tensor, "S K w"],
    length: Int32[Tensor, " S"],
) -> None:
    """Write the new key and value of each slot to position length − 1; those of unused slots are left out."""
    if own_k.device.type == "cuda":
        launch_write(own_k, own_v, key, value, length)
        return
    slot, row = torch.arange(len(length), device=length.device), length.clamp(min=1).long() - 1
    used = (length > 0)[:, None, None]
    for own, new in ((own_k, key), (own_v, value)):
        own[slot, row] = torch.where(used, new, own[slot, row])


def launch_write(own_k: Tensor, own_v: Tensor, key: Tensor, value: Tensor, length: Tensor) -> None:
    """`write_own` by one Triton kernel."""
    slots, heads, width = key.shape
    strides = (*_strides(own_k), *_strides(own_v), *_strides(key), *_strides(value))
    triton_kernels().write[slots, heads](
        own_k, own_v, key, value, length, *strides, WIDTH=width, COLUMNS=_power_of_two(width), num_warps=1
    )


class DecodeAttention:
    """Attention of one decoding step, with the memory of its partial results; all layers may share one.

    `longest_prompt` is the maximum length of one prompt, `own_capacity` that of a slot's own tokens (R).
    """

    def __init__(
        self,
        slots: int,
        heads: int,
        kv_heads: int,
        width: int,
        longest_prompt: int,
        own_capacity: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.longest_prompt, self.kv_heads, self.width, self.dtype = longest_prompt, kv_heads, width, dtype
        self.prompt_chunks, self.own_chunks = -(-longest_prompt // CHUNK), -(-own_capacity // CHUNK)
        place = (slots, heads, self.prompt_chunks + self.own_chunks)
        self.maxima, self.sums = (torch.empty(place, device=device) for _ in range(2))
        self.accumulators = torch.empty(*place, width, device=device)
        self.output = torch.empty(slots, heads, width, device=device, dtype=dtype)

    def __call__(
        self,
        query: Float[Tensor, "S H w"],
        prompt_k: Float[Tensor, "M K w"],
        prompt_v: Float[Tensor, "M K w"],
        own_k: Float[Tensor, "S R K w"],
        own_v: Float[Tensor, "S R K w"],
        indices: SlotIndices,
        scale: float,
    ) -> Float[Tensor, "S H w"]:
        """Attention of the new token of each slot to its prompt and to its own tokens, the new one included.

        A slot without any keys gets zeros. On a GPU the output is overwritten by the next call.
        """
        if query.device.type == "cuda":
            return self.launch(query, prompt_k, prompt_v, own_k, own_v, indices, scale)
        return attend_reference(query, prompt_k, prompt_v, own_k, own_v, indices, scale, self.longest_prompt)

    def launch(
        self,
        query: Tensor,
        prompt_k: Tensor,
        prompt_v: Tensor,
        own_k: Tensor,
        own_v: Tensor,
        indices: SlotIndices,
        scale: float,
    ) -> Tensor:
        """`__call__` by Triton kernels: own tokens, prompts, then the merged result."""
        kernels, (slots, heads, _) = triton_kernels(), query.shape
        rep, (groups, members) = heads // self.kv_heads, indices.members.shape
        partials, counts = (self.maxima, self.sums, self.accumulators), (heads, self.maxima.shape[-1])
        width: dict[str, Any] = {"WIDTH": self.width, "COLUMNS": _power_of_two(self.width)}
        shape = width | {"REP": rep, "CHUNK": CHUNK, "TILE": TILE[self.dtype.itemsize], "num_stages": 2}
        kernels.own_partials[slots, self.kv_heads, self.own_chunks](
            query, own_k, own_v, indices.length, *partials, scale,
            *_strides(query), *_strides(own_k), *_strides(own_v), *counts,
            **shape, **_rows(rep), BEFORE=self.prompt_chunks, BLOCK=MERGED,
        )  # fmt: skip
        if self.prompt_chunks:
            kernels.prompt_partials[groups, self.kv_heads, self.prompt_chunks](
                query, prompt_k, prompt_v, indices.group_start, indices.group_length, indices.members, *partials, scale,
                *_strides(query), *_strides(prompt_k), *_strides(prompt_v), *counts,
                **shape, **_rows(members * rep), MEMBERS=members,
            )  # fmt: skip
        kernels.merge[slots, heads](
            *partials, self.output, *_strides(self.output), heads,
            **width, CHUNKS=counts[1], ALL=_power_of_two(counts[1]), BLOCK=MERGED, num_warps=4,
        )  # fmt: skip
        return self.output


def attend_reference(
    query: Float[Tensor, "S H w"],
    prompt_k: Float[Tensor, "M K w"],
    prompt_v: Float[Tensor, "M K w"],
    own_k: Float[Tensor, "S R K w"],
    own_v: Float[Tensor, "S R K w"],
    indices: SlotIndices,
    scale: float,
    longest_prompt: int,
) -> Float[Tensor, "S H w"]:
    """The eager twin of the kernels: keys and values of each slot side by side, in one float32 softmax."""
    row, shared = _prompt_rows(indices, longest_prompt)
    own = torch.arange(own_k.shape[1], device=row.device) < indices.length[:, None]
    inside = torch.cat([shared, own], 1)
    keys, values = (
        torch.cat([packed[row], apart], 1).float().masked_fill(~inside[:, :, None, None], 0.0)
        for packed, apart in ((prompt_k, own_k), (prompt_v, own_v))
    )
    grouped = query.float().unflatten(1, (keys.shape[2], -1))
    scores = torch.einsum("skrw,sjkw->skrj", grouped, keys) * scale
    hidden = ~inside[:, None, None]
    shares = scores.masked_fill(hidden, -torch.inf).softmax(-1).masked_fill(hidden, 0.0)
    return torch.einsum("skrj,sjkw->skrw", shares, values).flatten(1, 2).to(query.dtype)


def _prompt_rows(indices: SlotIndices, longest_prompt: int) -> tuple[Tensor, Tensor]:
    """The row of each token of each slot's prompt, 0 beyond its end, and whether it is before the end. [S, Q] each"""
    slots, (groups, members) = len(indices.length), indices.members.shape
    number = torch.arange(groups, device=indices.members.device)[:, None].expand(groups, members)
    place = torch.where(indices.members < 0, slots, indices.members).long()  # unused ones share one more slot
    group = number.new_full((slots + 1,), groups).scatter(0, place.flatten(), number.flatten())[:-1]
    start, length = (pad(x, (0, 1))[group][:, None] for x in (indices.group_start, indices.group_length))
    token = torch.arange(longest_prompt, device=start.device)
    return torch.where(token < length, start + token, 0), token < length


def _strides(x: Tensor) -> Sequence[int]:
    """Strides of all dimensions but the last, which is contiguous."""
    return x.stride()[:-1]


def _rows(queries: int) -> dict[str, int]:
    """Rows of a program for so many queries, at least the 16 of a matrix product, and its warps."""
    rows = max(16, _power_of_two(queries))
    return {"ROWS": rows, "num_warps": 4 if rows < 128 else 8}


def _power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()
