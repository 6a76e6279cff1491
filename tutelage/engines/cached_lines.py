"""Lines on transformers' own modules: keys and values of all lines in one pool, token by token.

A pass gathers those of its lines, aligned on the right, so that a mask of columns and positions describe it to any
architecture with a cache of keys and values:

    line 1    ·  ·  k₁ k₂ k₃ | k₄         kept | new
    line 2    k₁ k₂ k₃ | k₄ k₅ k₆
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from tutelage.core.rows import left_padded, positions
from tutelage.engines.cached_decoders import PreallocatedLayer, last_states, next_logits, preallocated
from tutelage.engines.lines import READ_AT_ONCE, Lines
from tutelage.engines.logprobs import Head
from tutelage.engines.network import Backbone, cache_name, inner, takes_positions, trunk

Tokens = list[int]
"""Places in the pool, in the order of the tokens."""
ROOM = 1024
"""Places at first; doubled as needed."""


class TokenPool:
    """The places of tokens, and those of the present pass."""

    def __init__(self) -> None:
        self.room = ROOM
        self.free = list(reversed(range(ROOM)))
        self.table: Int[Tensor, "n S"] = torch.empty(0, 0, dtype=torch.long)
        """Places of the tokens of each line, aligned on the right."""
        self.new: tuple[Tensor, Tensor] = self.table, self.table
        """Mask of the new tokens [n, T], and their places [M]."""

    def take(self, count: int) -> Tokens:
        """Places for more tokens."""
        while len(self.free) < count:
            self.free += range(self.room, 2 * self.room)
            self.room *= 2
        return [self.free.pop() for _ in range(count)]


class PoolLayer(DynamicLayer):
    """Keys and values of one layer in buffers [room, K, width]."""

    def __init__(self, pool: TokenPool) -> None:
        super().__init__()
        self.pool = pool

    def lazy_initialization(self, key_states: Float[Tensor, "n K T w"], value_states: Float[Tensor, "n K T v"]) -> None:
        """Allocate buffers with the sizes and dtype of the first keys and values."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys, self.values = (x.new_zeros(0, x.shape[1], x.shape[3]) for x in (key_states, value_states))
        self.is_initialized = True

    def update(
        self, key_states: Float[Tensor, "n K T w"], value_states: Float[Tensor, "n K T v"], *args: Any, **kwargs: Any
    ) -> tuple[Float[Tensor, "n K S w"], Float[Tensor, "n K S v"]]:
        """Store the new tokens of the pass. Returns all tokens of its lines."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        mask, places = self.pool.new
        gathered = []
        for name, x in (("keys", key_states), ("values", value_states)):
            buffer = getattr(self, name)
            if len(buffer) < self.pool.room:
                buffer = torch.cat([buffer, buffer.new_zeros(self.pool.room - len(buffer), *buffer.shape[1:])])
                setattr(self, name, buffer)
            buffer[places] = x.transpose(1, 2)[mask]
            gathered.append(buffer[self.pool.table].transpose(1, 2))
        return gathered[0], gathered[1]

    def get_seq_length(self) -> int:
        """Columns before the new tokens."""
        return self.pool.table.shape[1] - self.pool.new[0].shape[1]


class CachedLines(Lines[Tokens, list[Tokens]]):
    """Lines of the reference engine. A line has the places of its prompt and those of its own tokens."""

    def __init__(self, backbone: Backbone, head: Head) -> None:
        super().__init__()
        self.backbone, self.head, self.device = backbone, head, backbone.device
        self.pool = TokenPool()
        self.cache: Cache = preallocated(inner(backbone.model).config, 1)
        self.cache.layers = [PoolLayer(self.pool) for _ in self.cache.layers]
        stack = trunk(backbone.model)
        self.cache_name, self.takes_positions = cache_name(stack), takes_positions(stack)

    @staticmethod
    def supports(backbone: Backbone) -> bool:
        """Whether every layer of the model keeps all of its keys and values, and nothing else."""
        return all(type(layer) is PreallocatedLayer for layer in preallocated(inner(backbone.model).config, 1).layers)

    def _read(self, prompts: Sequence[tuple[int, ...]]) -> list[tuple[Tokens, Float[Tensor, " V"]]]:
        states: list[Tokens] = [[] for _ in prompts]
        order = sorted(range(len(prompts)), key=lambda place: len(prompts[place]))
        logits: dict[int, Tensor] = {}
        while order:
            part = [place for n, place in enumerate(order) if not n or (n + 1) * len(prompts[place]) <= READ_AT_ONCE]
            order = order[len(part) :]
            read = [prompts[place] for place in part]
            found = self._pass([[states[place]] for place in part], read, [1] * len(part))
            logits |= zip(part, found, strict=True)
        return [(state, logits[place]) for place, state in enumerate(states)]

    def _begin(self, prompt: Tokens) -> list[Tokens]:
        return [prompt, []]

    def _continue(
        self, lines: Sequence[list[Tokens]], pieces: Sequence[Sequence[int]], counts: Sequence[int]
    ) -> Float[Tensor, "N V"]:
        return self._pass(lines, pieces, counts)

    def _cut(self, line: list[Tokens], count: int) -> None:
        self.pool.free += line[-1][-count:]
        del line[-1][-count:]

    def _release(self, line: list[Tokens]) -> None:
        self.pool.free += line[-1]

    def _release_prompt(self, prompt: Tokens) -> None:
        self.pool.free += prompt

    def _pass(
        self, lines: Sequence[list[Tokens]], pieces: Sequence[Sequence[int]], counts: Sequence[int]
    ) -> Float[Tensor, "N V"]:
        """Read pieces of lines, whose last list of places grows."""
        pool, filler = self.pool, pieces[0][0]  # any token: the mask excludes padding
        new = [pool.take(len(piece)) for piece in pieces]
        for line, places in zip(lines, new, strict=True):
            line[-1] += places
        pool.table, mask = left_padded([[place for part in line for place in part] for line in lines], 0, self.device)
        tokens, is_new = left_padded(pieces, filler, self.device)
        pool.new = is_new, torch.tensor([place for places in new for place in places], device=self.device)
        inputs: dict[str, Any] = {"input_ids": tokens, "use_cache": True, "attention_mask": mask.long()}
        inputs[self.cache_name] = self.cache
        if self.takes_positions:
            inputs["position_ids"] = positions(mask)[:, -tokens.shape[1] :]
        states = last_states(self.backbone, self.head, inputs)
        last = torch.cat([own[-count:] for own, count in zip(states, counts, strict=True)])
        return next_logits(self.backbone, self.head, last)
