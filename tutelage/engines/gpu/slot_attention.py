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

from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int32
from torch import Tensor

from tutelage.engines.devices import triton_kernels

PROMPT_CHUNK = 128
"""Keys of a prompt in one partial result."""
OWN_CHUNK = 64
"""Own tokens of a slot in one partial result."""
TILE = {2: 64, 4: 16}
"""Keys that a program reads at once, by the bytes of a number: float32 products, which are not made by tensor cores,
keep more in registers."""
STAGES = 2
"""Stages of the pipeline that reads the tiles of a chunk."""
RESIDENT = 4
"""Programs per multiprocessor, among which the chunks of all slots are dealt out."""
REGISTERS = 128
"""Registers of a thread, at most, with fewer than 64 rows of queries: `RESIDENT` programs of four warps run at once."""
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
    group: Int32[Tensor, " S"]
    """Group of a slot; −1 if it is in none."""
    length: Int32[Tensor, " S"]
    """Own tokens of a slot with the new one, whose position is length − 1; 0 for an unused slot."""


class SlotTensors(NamedTuple):
    """The new token of each slot, and the keys and values of its prompt and of its own tokens."""

    query: Float[Tensor, "S H w"]
    key: Float[Tensor, "S K w"]
    value: Float[Tensor, "S K w"]
    prompt_k: Float[Tensor, "M K w"]
    prompt_v: Float[Tensor, "M K w"]
    own_k: Float[Tensor, "S R K w"]
    own_v: Float[Tensor, "S R K w"]


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
        self.chunks = {
            "PROMPT_CHUNKS": -(-longest_prompt // PROMPT_CHUNK),
            "PROMPT_CHUNK": PROMPT_CHUNK,
            "OWN_CHUNKS": -(-own_capacity // OWN_CHUNK),
            "OWN_CHUNK": OWN_CHUNK,
        }
        place = (slots, heads, self.chunks["PROMPT_CHUNKS"] + self.chunks["OWN_CHUNKS"])
        self.maxima, self.sums = (torch.empty(place, device=device) for _ in range(2))
        self.accumulators = torch.empty(*place, width, device=device)
        self.output = torch.empty(slots, heads, width, device=device, dtype=dtype)
        cuda = device.type == "cuda"
        self.programs = RESIDENT * (torch.cuda.get_device_properties(device).multi_processor_count if cuda else 1)

    def __call__(self, tensors: SlotTensors, indices: SlotIndices, scale: float) -> Float[Tensor, "S H w"]:
        """Attention of the new token of each slot to its prompt and to its own tokens, the new one included.

        Its key and value are written to position length − 1 of the own ones; those of unused slots are left out. A slot
        without any keys gets zeros. On a GPU the output is overwritten by the next call.
        """
        if tensors.query.device.type == "cuda":
            return self.launch(tensors, indices, scale)
        return attend_reference(tensors, indices, scale, self.longest_prompt)

    def launch(self, tensors: SlotTensors, indices: SlotIndices, scale: float) -> Float[Tensor, "S H w"]:
        """`__call__` by two Triton kernels: the partial results of all chunks, then the merged ones."""
        kernels, (slots, heads, width) = triton_kernels("slot_kernels"), tensors.query.shape
        rep, (groups, members) = heads // self.kv_heads, indices.members.shape
        own_rows, prompt_rows = (max(16, _power_of_two(rows)) for rows in (rep, members * rep))  # of a matrix product
        buffers = (self.maxima, self.sums, self.accumulators)
        start, length, table, group, own_length = indices
        shape: dict[str, Any] = self.chunks | {"WIDTH": width, "COLUMNS": _power_of_two(width)}
        kernels.partials[(self.programs,)](
            *tensors, start, length, table, own_length, *buffers, scale, *(n for x in tensors for n in x.stride()[:-1]),
            **shape, KV_HEADS=self.kv_heads, REP=rep, TILE=TILE[self.dtype.itemsize],
            GROUPS=groups, ALL_GROUPS=_power_of_two(groups), MEMBERS=members, PROMPT_ROWS=prompt_rows,
            SLOTS=slots, ALL_SLOTS=_power_of_two(slots), OWN_ROWS=own_rows,
            num_warps=4 if prompt_rows < 128 else 8, num_stages=STAGES,
            maxnreg=REGISTERS if prompt_rows < 64 else None,
        )  # fmt: skip
        kernels.merge[slots, heads](
            *buffers, self.output, group, length, own_length, *self.output.stride()[:-1], heads,
            **shape, BLOCK=MERGED, num_warps=1,
        )  # fmt: skip
        return self.output


def attend_reference(
    tensors: SlotTensors, indices: SlotIndices, scale: float, longest_prompt: int
) -> Float[Tensor, "S H w"]:
    """The eager twin of the kernels: keys and values of each slot side by side, in one float32 softmax."""
    query, key, value, prompt_k, prompt_v, own_k, own_v = tensors
    length = indices.length
    slot, last = torch.arange(len(length), device=length.device), length.clamp(min=1).long() - 1
    used = (length > 0)[:, None, None]
    for apart, new in ((own_k, key), (own_v, value)):
        apart[slot, last] = torch.where(used, new, apart[slot, last])
    row, shared = _prompt_rows(indices, longest_prompt)
    own = torch.arange(own_k.shape[1], device=row.device) < length[:, None]
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
    group, token = indices.group[:, None], torch.arange(longest_prompt, device=indices.group.device)
    start, length = (x[group.clamp(min=0)] for x in (indices.group_start, indices.group_length))
    inside = (token < length) & (group >= 0)
    return torch.where(inside, start + token, 0), inside


def _power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()
