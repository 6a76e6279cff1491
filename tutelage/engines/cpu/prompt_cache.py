"""Key/value cache for decoding with shared prompts: each prompt is stored once, beside its completions.

The cache has P prompts × G slots. A slot holds an unfinished completion or is empty. Entries do not move while tokens
are added. A finished completion frees its slot; once enough slots are free, the remaining completions are compacted, so
that compaction costs about as much per rollout as filling the cache once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from tutelage.engines.cpu.decode_attention import over_prompt_and_answer
from tutelage.engines.cpu.forward_pass import Attention
from tutelage.engines.cpu.native.bindings import LANES
from tutelage.engines.cpu.packed_attention import packed_attention
from tutelage.engines.packing import PromptPass

Prompts = Float[Tensor, "K _ _"]
"""Keys or values of whole prompts, as tokens [K, N, w] or as rows [K, R, n]."""
Rows = Float[Tensor, "*outer _ _"]
"""Keys or values, as tokens [..., T, w] or as rows [..., R, n]."""
Token = Float[Tensor, "*outer _"]
"""Keys or values of one token [..., w]."""
BLOCK = LANES
"""Tokens per row of `BlockLayout`."""
MOVE_WHEN = 0.75
"""Share of occupied slots below which the cache is compacted."""
ROOM = 64
"""Tokens initially allocated per completion, doubled as completions grow; a multiple of the rows of a layout."""


@dataclass
class LayerEntry:
    """Keys and values of one layer, in rows of the cache's layout."""

    prompt: tuple[Float[Tensor, "P K Q n"], Float[Tensor, "P K Q m"]]  # zeros after a prompt's end
    answer: tuple[Float[Tensor, "P K G R n"], Float[Tensor, "P K G R m"]]


class PromptCache:
    """The key/value cache of all layers and the attention functions that use it (see `attention_by`).

    `lengths` are the prompt lengths, `answers` the number of completions of each prompt, of up to `limit` tokens.
    Completions are lines 0, 1, … of a decoding step, prompt by prompt, without dropped lines.

    If `packed`, the cache uses the layout of the compiled step. Otherwise tokens are stored one by one, and float32
    prompt keys feature by feature.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        answers: Sequence[int],
        limit: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
        packed: bool = False,
    ) -> None:
        self.limit, self.dtype, self.device, self.packed = limit, dtype, device, packed
        self.layout: TokenLayout = BlockLayout(dtype) if packed else TokenLayout()
        self.lengths = torch.tensor(lengths, device=device)
        self.width = max(answers)
        places = [p * self.width + g for p, count in enumerate(answers) for g in range(count)]
        self.place = torch.tensor(places, device=device)  # the slot of each line, ascending
        self.room = self._whole_rows(min(limit, ROOM))
        self.written = 0  # tokens of each completion in the cache, including the current one
        self.layers: dict[nn.Module, LayerEntry] = {}
        self.version = 0  # incremented when lines are dropped or entries move
        self._update()

    def _update(self) -> None:
        """Recompute the sizes and the mask from the lengths and the occupied slots."""
        self.prompts, self.count = len(self.lengths), len(self.place)
        self.slots = self.prompts * self.width
        self.full = self.count == self.slots
        self.longest = int(self.lengths.max())
        self.starts = self.lengths[self.place // self.width]  # the position of the first token of each completion
        self.hidden: Tensor | None = None
        if int(self.lengths.min()) < self.longest:
            beyond = torch.arange(self.longest, device=self.device) >= self.lengths[:, None, None]
            self.hidden = torch.zeros(beyond.shape, device=self.device).masked_fill(beyond, -torch.inf)

    # Attention --------------------------------------------------------------------------------------------------------

    def reader(self, prompts: PromptPass) -> Attention:
        """The attention function of a pass over prompts, for `attention_by`; stores keys and values.

        It returns the log-sum-exp of the scores if available.
        """
        return partial(self._read, prompts, packed_attention(prompts.packed.layout))

    def _read(
        self,
        prompts: PromptPass,
        attend: Attention,
        layer: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        *,
        scaling: float | None = None,
        **more: Any,
    ) -> tuple[Tensor, Tensor | None]:
        query, key, value = (x.to(self.dtype) for x in (query, key, value))
        if layer not in self.layers:
            self.layers[layer] = self._allocated(key[0], value[0])
        keys, values = self.layers[layer].prompt
        parts = (prompts.apart(x[0], 1) for x in (key, value))
        for prompt, (k, v) in enumerate(zip(*parts, strict=True), prompts.first):
            rows = self._rows(k.shape[1])
            keys[prompt, :, :rows], values[prompt, :, :rows] = self.layout.pack(k, v)
        return attend(layer, query, key, value, mask, scaling=scaling)

    def attend(
        self,
        layer: nn.Module,
        query: Float[Tensor, "m H w"],
        key: Float[Tensor, "m K w"],
        value: Float[Tensor, "m K v"],
        scaling: float | None,
    ) -> Float[Tensor, "m H v"]:
        """Store one more token of each completion, and attend to the completion so far and its prompt.

        Lines after the completions are padding for the linear layers, with zero results.
        """
        entry, (lines, heads, width) = self.layers[layer], query.shape
        of_token = (self._in_slots(x).transpose(1, 2) for x in (key, value))
        self.layout.put(*entry.answer, self.written - 1, *of_token)
        so_far = self.layout.unpack(*entry.answer, self.written, width)
        prompt = self.layout.unpack(*entry.prompt, self.longest, width)
        queries = self._in_slots(query).unflatten(2, (key.shape[1], -1)).transpose(1, 2)
        output = over_prompt_and_answer(queries, prompt, so_far, self.hidden, scaling)
        output = output.transpose(1, 2).reshape(self.slots, heads, -1)
        if not self.full:
            output = output[self.place]
        if lines > self.count:
            output = pad(output, (0, 0, 0, 0, 0, lines - self.count))
        return output

    def _in_slots(self, x: Tensor) -> Tensor:
        """Lines [m, h, w] → [P, G, h, w], zeros in empty slots."""
        if x.shape[0] > self.count:
            x = x[: self.count]
        x, shape = x.to(self.dtype), (self.prompts, self.width, *x.shape[1:])
        if self.full:
            return x.view(shape)
        spread = x.new_zeros(self.slots, *x.shape[1:])
        return spread.index_copy_(0, self.place, x).view(shape)

    # Lines of their own -----------------------------------------------------------------------------------------------

    def line(self, prompt: int, limit: int) -> "PromptCache":
        """The cache of a single completion of a prompt that was read, whose keys and values both caches share."""
        length = int(self.lengths[prompt])
        own = PromptCache([length], [1], limit, dtype=self.dtype, device=self.device, packed=self.packed)
        for layer, entry in self.layers.items():
            keys, values = (x[prompt : prompt + 1, :, : self._rows(length)] for x in entry.prompt)
            sizes = (keys.shape[-1], values.shape[-1])
            answer = own._memory(keys, (1, keys.shape[1], 1), own.room, sizes)
            own.layers[layer] = LayerEntry((keys, values), answer)
        return own

    def reserve(self, count: int) -> int:
        """Make room for further tokens of each completion. Returns their number so far."""
        room = self.room
        while room < self.written + count:
            room = self._whole_rows(min(2 * room, self.limit))
        if room > self.room:
            self._grow(room)
        return self.written

    def _grow(self, room: int) -> None:
        """Make room for `room` tokens of each completion."""
        self.room, rows = room, self._rows(self.written)
        self.version += 1
        for entry in self.layers.values():
            keys, values = (x.new_empty(*x.shape[:3], self._rows(room), x.shape[4]) for x in entry.answer)
            for buffer, before in zip((keys, values), entry.answer, strict=True):
                buffer[:, :, :, :rows] = before[:, :, :, :rows]
                buffer[:, :, :, rows:] = 0.0
            entry.answer = keys, values

    # Room -------------------------------------------------------------------------------------------------------------

    def _allocated(self, key: Tensor, value: Tensor) -> LayerEntry:
        """Allocate the prompts and the first tokens of the completions of one layer."""
        sizes = (self.layout.numbers(key.shape[-1]), self.layout.numbers(value.shape[-1]))
        of_prompts, of_answers = (self.prompts, len(key)), (self.prompts, len(key), self.width)
        return LayerEntry(
            self._memory(key, of_prompts, self.longest, sizes), self._memory(key, of_answers, self.room, sizes)
        )

    def _memory(
        self, like: Tensor, outer: tuple[int, ...], tokens: int, sizes: tuple[int, int]
    ) -> tuple[Tensor, Tensor]:
        """Allocate keys and values [*outer, rows, n]; `sizes` are the two n. Cleared if uninitialised entries are
        multiplied by 0."""
        of_prompts = len(outer) == 2
        make = like.new_zeros if of_prompts or self.packed else like.new_empty
        keys, values = (make(*outer, self._rows(tokens), size) for size in sizes)
        if of_prompts and not self.packed and keys.dtype == torch.float32:
            keys = keys.mT.contiguous().mT  # feature by feature, the fastest layout for float32 queries
        return keys, values

    def _rows(self, tokens: int) -> int:
        """Number of layout rows for `tokens` tokens."""
        return -(-tokens // self.layout.tokens)

    def _whole_rows(self, tokens: int) -> int:
        """`tokens` rounded up to whole rows."""
        return self._rows(tokens) * self.layout.tokens

    def open(self) -> Int[Tensor, " n"]:
        """Reserve space for one more token of each completion. Returns the position of that token in each line."""
        self.written = self.reserve(1) + 1
        return self.starts + (self.written - 1)

    def keep(self, lines: Int[Tensor, " n"]) -> None:
        """Drop all lines except `lines` (ascending)."""
        self.version += 1
        self.place, self.count, self.full = self.place[lines], len(lines), False
        self.starts = self.starts[lines]
        prompt = self.place // self.width
        counts = prompt.bincount(minlength=self.prompts)
        remaining, width = counts.nonzero().squeeze(1), int(counts.max())
        if len(remaining) * width > MOVE_WHEN * self.slots:
            return
        rank = torch.arange(self.count, device=self.device) - (counts.cumsum(0) - counts)[prompt]
        place = ((counts > 0).cumsum(0) - 1)[prompt] * width + rank
        # empty slots copy the first line: any finite values will do
        source = self.place.new_full((len(remaining) * width,), int(self.place[0]))
        source[place] = self.place
        self._move(source, width, remaining if len(remaining) < self.prompts else None)
        self.place, self.width, self.lengths = place, width, self.lengths[remaining]
        self._update()

    def _move(self, source: Tensor, width: int, prompts: Tensor | None) -> None:
        """Copy the slots at `source` into new slots, `width` per prompt, keeping only `prompts` unless it is None."""
        old, slot = source // self.width, source % self.width
        self.version += 1
        longest = self.longest if prompts is None else int(self.lengths[prompts].max())

        rows = self._rows(self.written)
        for entry in self.layers.values():
            sizes = (entry.answer[0].shape[-1], entry.answer[1].shape[-1])
            outer = (len(old) // width, entry.answer[0].shape[1])
            moved = self._memory(entry.answer[0], (*outer, width), self.room, sizes)
            for buffer, before in zip(moved, entry.answer, strict=True):
                filled = before[:, :, :, :rows][old, :, slot].unflatten(0, (-1, width))
                buffer[:, :, :, :rows] = filled.transpose(1, 2)
            entry.answer = moved
            if prompts is not None:
                kept = self._memory(moved[0], (len(prompts), outer[1]), longest, sizes)
                for buffer, before in zip(kept, entry.prompt, strict=True):
                    buffer.copy_(before[prompts, :, : buffer.shape[2]])
                entry.prompt = kept


# Layouts --------------------------------------------------------------------------------------------------------------


class TokenLayout:
    """Storage of keys [..., T, w] and values [..., T, v] token by token, as rows [..., R, n] of `tokens` tokens."""

    tokens = 1
    """Tokens per row."""

    def numbers(self, width: int) -> int:
        """Elements per row for heads of this width."""
        return width

    def pack(self, key: Prompts, value: Prompts) -> tuple[Prompts, Prompts]:
        """Rows of whole prompts."""
        return key, value

    def put(self, keys: Rows, values: Rows, token: int, key: Token, value: Token) -> None:
        """Store one more token of each completion."""
        keys.select(-2, token).copy_(key)
        values.select(-2, token).copy_(value)

    def unpack(self, keys: Rows, values: Rows, tokens: int, width: int) -> tuple[Rows, Rows]:
        """The first `tokens` keys and values, token by token, for heads of this width."""
        return keys.narrow(-2, 0, tokens), values.narrow(-2, 0, tokens)


class BlockLayout(TokenLayout):
    """Layout of the compiled step: blocks of `BLOCK` tokens, with features padded to a multiple of `BLOCK`.

    The step multiplies single elements in float32 and pairs in bfloat16 (see `native/attention.hpp`), so `together` is
    1 or 2. A block stores keys as [w / together, 16, together], grouping features, and values as [16 / together, w,
    together], grouping tokens. Keys and values are equally wide.
    """

    tokens = BLOCK

    def __init__(self, dtype: torch.dtype) -> None:
        self.together = 2 if dtype == torch.bfloat16 else 1

    def numbers(self, width: int) -> int:
        """See `TokenLayout.numbers`."""
        return BLOCK * (-(-width // BLOCK) * BLOCK)

    def pack(self, key: Prompts, value: Prompts) -> tuple[Prompts, Prompts]:
        """See `TokenLayout.pack`."""
        padding = (0, -key.shape[2] % BLOCK, 0, -key.shape[1] % BLOCK)
        key, value = (pad(x, padding).unflatten(1, (-1, BLOCK)) for x in (key, value))
        keys = key.unflatten(3, (-1, self.together)).transpose(2, 3)
        values = value.unflatten(2, (-1, self.together)).transpose(3, 4)
        return keys.flatten(2), values.flatten(2)

    def put(self, keys: Rows, values: Rows, token: int, key: Token, value: Token) -> None:
        """See `TokenLayout.put`."""
        (row, place), padding = divmod(token, BLOCK), (0, -key.shape[-1] % BLOCK)
        of_keys, of_values = self._blocks(keys, values)
        of_keys[..., row, :, place, :] = pad(key, padding).unflatten(-1, (-1, self.together))
        group, member = divmod(place, self.together)
        of_values[..., row, group, :, member] = pad(value, padding)

    def unpack(self, keys: Rows, values: Rows, tokens: int, width: int) -> tuple[Rows, Rows]:
        """See `TokenLayout.unpack`."""
        rows = -(-tokens // BLOCK)
        of_keys, of_values = self._blocks(keys[..., :rows, :], values[..., :rows, :])
        key = of_keys.transpose(-3, -2).flatten(-4, -3).flatten(-2)
        value = of_values.transpose(-2, -1).flatten(-4, -2)
        return key[..., :tokens, :width], value[..., :tokens, :width]

    def _blocks(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Rows as blocks: keys [..., R, w / together, 16, together], values [..., R, 16 / together, w, together]."""
        return (
            keys.unflatten(-1, (-1, BLOCK, self.together)),
            values.unflatten(-1, (BLOCK // self.together, -1, self.together)),
        )
