"""Preallocated key/value cache for transformers.

The dynamic cache of transformers concatenates all keys and values for every decoded token. This cache is allocated once
for the whole completion, returns views, and supports dropping finished rows.
"""

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer


class PreallocatedLayer(DynamicLayer):
    """Keys and values of one layer in buffers [B, heads, room, width]; the first `length` positions are filled."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room
        self.length = 0

    def lazy_initialization(self, key_states: Float[Tensor, "B K T w"], value_states: Float[Tensor, "B K T v"]) -> None:
        """Allocate buffers with the sizes and dtype of the first keys and values."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self.key_buffer, self.value_buffer = (
            x.new_empty(*x.shape[:2], self.room, x.shape[3]) for x in (key_states, value_states)
        )
        self.is_initialized = True

    def update(
        self, key_states: Float[Tensor, "B K T w"], value_states: Float[Tensor, "B K T v"], *args: Any, **kwargs: Any
    ) -> tuple[Float[Tensor, "B K S w"], Float[Tensor, "B K S v"]]:
        """Append keys and values of T positions. Returns views of all S positions so far."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[2]
        self.key_buffer[:, :, self.length : end] = key_states
        self.value_buffer[:, :, self.length : end] = value_states
        self.length = end
        self.keys, self.values = self.key_buffer[:, :, :end], self.value_buffer[:, :, :end]
        return self.keys, self.values

    def get_seq_length(self) -> int:
        """The number of filled positions."""
        return self.length

    def reorder_cache(self, beam_idx: Int[Tensor, " n"]) -> None:
        """Replace the rows by those at `beam_idx`, in which a row may be missing or stand several times."""
        if not self.is_initialized:
            return
        for name in ("key_buffer", "value_buffer"):
            filled = getattr(self, name)[beam_idx, :, : self.length]
            buffer = filled.new_empty(*filled.shape[:2], self.room, filled.shape[3])
            buffer[:, :, : self.length] = filled
            setattr(self, name, buffer)
        self.keys, self.values = self.key_buffer[:, :, : self.length], self.value_buffer[:, :, : self.length]


def preallocated(model_config: Any, room: int) -> Cache:
    """A cache with `room` positions for the model.

    Sliding-window and recurrent layers, which do not keep every key, use the cache layers of transformers.
    """
    from transformers import DynamicCache

    cache = DynamicCache(config=model_config)
    layers = cache.layers or [DynamicLayer() for _ in range(model_config.get_text_config().num_hidden_layers)]
    cache.layers = [PreallocatedLayer(room) if type(layer) is DynamicLayer else layer for layer in layers]
    return cache


def ignores_padding(cache: Cache) -> bool:
    """Whether every layer of the cache holds only keys and values, which a mask can exclude. A recurrent state has read
    the padding before a prompt."""
    return all(type(layer) in (PreallocatedLayer, DynamicSlidingWindowLayer) for layer in cache.layers)
