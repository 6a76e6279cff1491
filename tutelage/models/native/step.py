"""Tokens and pointers into `step.cpp`, and states or logits out of it."""

from ctypes import byref
from dataclasses import replace

import torch
from torch import Tensor, nn

from tutelage.models.backbone import trunk
from tutelage.models.lean.layer import Computed
from tutelage.models.lean.step import Note
from tutelage.models.logprobs import Head
from tutelage.models.native.bindings import Lines, Matrix, library, team
from tutelage.models.native.weights import LANES, NativeWeights
from tutelage.models.shared_prompts import SharedPrompts

MOST_LINES = 128
"""Above this the libraries of torch compute a step at least as fast (see bench/NOTES.md)."""


class NativeStep:
    """Tokens Int[n] at positions Int[n] → their last hidden states Float[n, d], of the lines that `store` has open.

    It tells `note` what each layer computes, if anybody wants to know.
    """

    def __init__(
        self, model: nn.Module, weights: NativeWeights, store: SharedPrompts, note: Note | None = None
    ) -> None:
        stack = trunk(model)
        self.embed, self.angles, self.layers = stack.embed_tokens, stack.rotary_emb, list(stack.layers)
        self.weights, self.store, self.note = weights, store, note
        self.lines, self.version = Lines(), -1
        self.held: tuple[Tensor, ...] = ()  # what the pointers of `lines` point to
        self.room = torch.empty(0)

    def __call__(self, tokens: Tensor, where: Tensor) -> Tensor:
        record = None
        if self.note is not None:
            record = torch.empty(len(self.layers), len(tokens), sum(self._widths()))
        x = self.embed(tokens).contiguous()
        cos, sin = (angle.contiguous() for angle in self.angles(x, where[:, None]))
        if self.version != self.store.version:
            self._look()
        self.lines.written = self.store.written
        functions, threads, model = library(), team(), byref(self.weights.model)
        self._make_room(functions.tutelage_room(model, byref(self.lines), threads.threads))
        tensors = (x, cos, sin, record, self.room)
        pointers = (None if tensor is None else tensor.data_ptr() for tensor in tensors)
        functions.tutelage_step(byref(threads), model, byref(self.lines), *pointers)
        if self.note is not None and record is not None:
            self._tell(self.note, record)
        return x

    def _widths(self) -> tuple[int, ...]:
        """Of what a record has of each line side by side: the fields of `Computed`."""
        shape = self.weights.model
        keys = shape.keys * shape.width
        return (shape.heads * shape.width, keys, keys, shape.hidden, shape.inner, shape.inner, shape.hidden)

    def _tell(self, note: Note, record: Tensor) -> None:
        """Hand out a record Float[layers, n, W]."""
        for layer, of_layer in zip(self.layers, record, strict=True):
            *heads, h, gate, up, y = of_layer.split(self._widths(), 1)
            query, key, value = (part.unflatten(1, (-1, self.weights.model.width)) for part in heads)
            note(layer, Computed(query, key, value, h, gate, up, y))

    def _make_room(self, floats: int) -> None:
        if self.room.numel() < floats:
            self.room = torch.empty(floats)

    def _look(self) -> None:
        """Point to the lines and to what is stored, where they are now."""
        store, lines = self.store, self.lines
        counts = (store.place // store.width).bincount(minlength=store.prompts)
        first = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        self.held = (first, store.lengths.contiguous(), store.place % store.width)
        lines.first, lines.lengths, lines.slots = (each.data_ptr() for each in self.held)
        lines.count, lines.prompts, lines.longest = store.count, store.prompts, store.longest
        for module, layer in zip(self.layers, self.weights.layers, strict=True):
            stored = store.layers[module.self_attn]
            (prompt_keys, prompt_values), (keys, values) = stored.prompt, stored.answer
            layer.prompt_keys, layer.prompt_values = prompt_keys.data_ptr(), prompt_values.data_ptr()
            layer.keys, layer.values = keys.data_ptr(), values.data_ptr()
        p, k, _, w = prompt_keys.stride()
        lines.prompt_key_steps[:] = (p, k, w)
        lines.prompt_value_steps[:] = prompt_values.stride()[:3]
        lines.answer_steps[:] = keys.stride()[:4]
        self.version = store.version


class NativeHead:
    """x Wᵀ + b of states Float[n, d], for the place of the module in a `Head`."""

    def __init__(self, weights: NativeWeights, by: Matrix) -> None:
        self.weights, self.by = weights, by

    def __call__(self, states: Tensor) -> Tensor:
        states, lines, threads = states.contiguous(), len(states), team()
        room = states.new_empty(threads.threads, -(-lines // LANES) * LANES, states.shape[1])
        logits = states.new_empty(lines, self.by.out)
        library().tutelage_product(
            *(byref(threads), byref(self.by), lines),
            *(tensor.data_ptr() for tensor in (states, logits, room)),
        )
        return logits


def native_head(head: Head, weights: NativeWeights) -> Head:
    """The same head on the product that was laid out for it, where it was."""
    return head if weights.head is None else replace(head, module=NativeHead(weights, weights.head))
