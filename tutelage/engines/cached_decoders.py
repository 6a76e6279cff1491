"""Decoders that run transformers' own modules, in the first of several forms that passes a trial.

padded     prompts padded on the left, with a mask, beside a preallocated cache of keys and values
aligned    prompts of one length, beside the cache or the recurrent state that the model makes itself
reread     no cache: each token reads its whole row again
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer

from tutelage.base.errors import TutelageError
from tutelage.core.batch import Rollout
from tutelage.core.rows import left_padded, positions, right_padded
from tutelage.engines.interface import Decoder, PromptBatch
from tutelage.engines.logprobs import Head
from tutelage.engines.network import Backbone, cache_name, inner, precision, takes_positions, trunk
from tutelage.engines.trials import decodes

Form = Literal["padded", "aligned", "reread"]
REMARKS: dict[Form, str] = {
    "padded": "",
    "aligned": "padding before a prompt changes what it computes, so prompts of one length are decoded together",
    "reread": "it has no cache with which it decodes what it scores, so each token reads its whole row again: slow",
}
"""The forms, fastest first, and what is said of a model that needs one."""
DEPART_WHEN = 0.75
"""Share of unfinished lines below which finished lines are dropped from the cache, by copying it."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CachedDecoders:
    """Decoder factory of the reference engine."""

    backbone: Backbone
    head: Head
    form: Form = "padded"

    @property
    def mixes_lengths(self) -> bool:
        return self.form != "aligned"

    def decoder(self, batch: PromptBatch, limit: int) -> Decoder:
        is_even = len({len(prompt) for prompt in batch.prompts}) == 1
        if self.form == "reread" or not (self.mixes_lengths or is_even):
            return RereadingDecoder(self.backbone, self.head, batch, limit)
        return CachedDecoder(self.backbone, self.head, batch, limit, padded=self.form == "padded")

    def step(self, decoders: Sequence[Decoder], tokens: Sequence[Int[Tensor, " _"]]) -> list[Float[Tensor, "_ _"]]:
        return [decoder.step(own) for decoder, own in zip(decoders, tokens, strict=True)]

    def restore(self) -> None:
        """See `Decoders.restore`; does nothing."""


def form_of_decoding(backbone: Backbone, head: Head) -> Form:
    """The fastest form in which a model decodes what it scores. Logs a remark if it is a slower one.

    Raises TutelageError if there is none.
    """
    name = type(inner(backbone.model)).__name__
    exact = replace(backbone, dtype=torch.float32)  # in bf16, rounding may change the experts of a token
    for form, remark in REMARKS.items():
        if decodes(CachedDecoders(exact, head, form), exact):
            if remark:
                _log.warning("%s: %s.", name, remark)
            return form
    if any(weight.dtype.itemsize < 4 for weight in backbone.model.parameters()):
        _log.warning("%s decodes otherwise than it scores, by more than the rounding of bf16 weights explains.", name)
        return "padded" if ignores_padding(preallocated(inner(backbone.model).config, 1)) else "reread"
    raise TutelageError(
        f"{name} does not compute the same for a row of tokens in a batch as alone, so it cannot be sampled: use "
        "another architecture."
    )


class CachedDecoder:
    """A decoder with a cache, one line per completion. `padded`: prompts are padded on the left, with a mask and a
    preallocated cache of keys and values; otherwise they have one length, and the model makes its cache.

    Raises TypeError if padding would change a state of the model.
    """

    def __init__(self, backbone: Backbone, head: Head, batch: PromptBatch, limit: int, *, padded: bool = True) -> None:
        self.backbone, self.head, self.batch, self.device = backbone, head, batch, backbone.device
        filler = batch.prompts[0][0]  # any token: the mask excludes padding
        self.prompt, mask = left_padded(batch.prompts, filler, self.device)
        self.mask = pad(mask, (0, limit), value=True)
        self.filled = mask.shape[1]
        self.padded = padded
        self.takes_positions = takes_positions(trunk(backbone.model))
        self.cache: Any = None
        if padded:
            self.cache = preallocated(inner(backbone.model).config, self.filled + limit)
            if not ignores_padding(self.cache):
                raise TypeError("a recurrent state reads padding")
        self.cache_name = cache_name(trunk(backbone.model))
        self.live = torch.arange(sum(batch.answers), device=self.device)  # cache line of each completion

    def start(self) -> Float[Tensor, "n V"]:
        """See `Decoder.start`. Reads a prompt once if its cache can be copied to the lines of its completions."""
        answers = torch.tensor(self.batch.answers, device=self.device)
        source = torch.arange(len(answers), device=self.device).repeat_interleave(answers)
        logits = self._logits(self.prompt)
        self.mask = self.mask[source]
        if not self._rows_can_move:
            self.cache = None
            return self._logits(self.prompt[source])
        self.cache.reorder_cache(source)
        return logits[source]

    @property
    def _rows_can_move(self) -> bool:
        return self.padded or type(self.cache) is DynamicCache  # others may leave states where they are

    def step(self, tokens: Int[Tensor, " n"]) -> Float[Tensor, "n V"]:
        """See `Decoder.step`. Lines of finished completions read arbitrary tokens."""
        self.filled += 1
        of_lines = tokens.new_zeros(len(self.mask)).index_copy_(0, self.live, tokens)
        return self._logits(of_lines[:, None])[self.live]

    def keep(self, lines: Int[Tensor, " n"]) -> None:
        """See `Decoder.keep`. Lines are dropped from the cache if supported and enough of them are idle."""
        self.live = self.live[lines]
        if self._rows_can_move and len(self.live) < DEPART_WHEN * len(self.mask):
            self.cache.reorder_cache(self.live)
            self.mask = self.mask[self.live]
            self.live = torch.arange(len(self.live), device=self.live.device)

    def close(self, rows: Rollout) -> None:
        """See `Decoder.close`."""

    def _logits(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B V"]:
        """The logits after `tokens`, the last T of each line."""
        inputs: dict[str, Any] = {"input_ids": tokens, "use_cache": True}
        if self.cache is not None:
            inputs[self.cache_name] = self.cache
        mask = self.mask[:, : self.filled]
        if self.padded:
            inputs["attention_mask"] = mask.long()
        if self.takes_positions:
            inputs["position_ids"] = positions(mask)[:, -tokens.shape[1] :]
        states, output = _forward(self.backbone, self.head, inputs)
        if not self.padded:
            self.cache = output[self.cache_name]
        return next_logits(self.backbone, self.head, states[:, -1])


class RereadingDecoder:
    """A decoder without a cache, for prompts of any lengths: each step is a forward pass over all tokens so far."""

    def __init__(self, backbone: Backbone, head: Head, batch: PromptBatch, limit: int) -> None:
        self.backbone, self.head = backbone, head
        prompts = [prompt for prompt, count in zip(batch.prompts, batch.answers, strict=True) for _ in range(count)]
        tokens, mask = right_padded(prompts, 0, backbone.device)
        self.tokens, self.lengths, self.width = pad(tokens, (0, limit)), mask.sum(1), tokens.shape[1]

    def start(self) -> Float[Tensor, "n V"]:
        states = last_states(self.backbone, self.head, {"input_ids": self.tokens[:, : self.width], "use_cache": False})
        line = torch.arange(len(states), device=states.device)
        return next_logits(self.backbone, self.head, states[line, self.lengths - 1])

    def step(self, tokens: Int[Tensor, " n"]) -> Float[Tensor, "n V"]:
        self.tokens.scatter_(1, self.lengths[:, None], tokens[:, None])
        self.lengths, self.width = self.lengths + 1, self.width + 1
        return self.start()

    def keep(self, lines: Int[Tensor, " n"]) -> None:
        self.tokens, self.lengths = self.tokens[lines], self.lengths[lines]

    def close(self, rows: Rollout) -> None:
        """See `Decoder.close`."""


def _forward(backbone: Backbone, head: Head, inputs: dict[str, Any]) -> tuple[Float[Tensor, "B T d"], Any]:
    """`last_states` and the whole output of the forward pass."""
    with precision(backbone.device, backbone.dtype):
        if not head.is_known:
            output = backbone.model(**inputs)
            return output.logits, output
        output = trunk(backbone.model)(**inputs)
        return output.last_hidden_state, output


def last_states(backbone: Backbone, head: Head, inputs: dict[str, Any]) -> Float[Tensor, "B T d"]:
    """Last hidden states for the `inputs` of the model's forward pass; logits [B, T, V] if the head is unknown."""
    return _forward(backbone, head, inputs)[0]


def next_logits(backbone: Backbone, head: Head, states: Float[Tensor, "n d"]) -> Float[Tensor, "n V"]:
    """Logits of the next token of each line, in the precision of the backbone."""
    with precision(backbone.device, backbone.dtype):
        return head.logits(states)


class PreallocatedLayer(DynamicLayer):
    """Keys and values of one layer in buffers [B, heads, room, width]; the first `length` positions are filled.

    They are allocated once for the whole completion and returned as views, where the dynamic cache of transformers
    concatenates them for every token; and finished rows can be dropped.
    """

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
    cache = DynamicCache(config=model_config)
    layers = cache.layers or [DynamicLayer() for _ in range(model_config.get_text_config().num_hidden_layers)]
    cache.layers = [PreallocatedLayer(room) if type(layer) is DynamicLayer else layer for layer in layers]
    return cache


def ignores_padding(cache: Cache) -> bool:
    """Whether every layer of the cache holds only keys and values, which a mask can exclude. A recurrent state has read
    the padding before a prompt."""
    return all(type(layer) in (PreallocatedLayer, DynamicSlidingWindowLayer) for layer in cache.layers)
