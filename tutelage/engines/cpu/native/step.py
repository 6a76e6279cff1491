"""Tokens and pointers into `step.cpp`, and states or logits out of it."""

from ctypes import byref, c_int64, c_void_p
from dataclasses import replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from tutelage.engines.cpu.activation_cache import Recording
from tutelage.engines.cpu.fused.step import LeanStep
from tutelage.engines.cpu.native.bindings import LANES, Kept, Lines, Matrix, distrust, is_there, library, team
from tutelage.engines.cpu.native.weights import NativeWeights, can_be_laid_out
from tutelage.engines.cpu.prompt_cache import SharedPrompts
from tutelage.engines.logprobs import Head
from tutelage.engines.network import inner, trunk

MOST_LINES = 128
"""Above this the libraries of torch compute a step at least as fast (see bench/NOTES.md)."""
TOLERANCE = 1e-4
"""Of the largest state: what floating point leaves of a difference, layer by layer."""

_tried: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def is_native(model: nn.Module) -> bool:
    """Whether a model in float32 that has a lean step has a native one too, on this machine."""
    return _tried.get(inner(model), True) and can_be_laid_out(model) and is_there()


class NativeStep:
    """Tokens Int[n] at positions Int[n] → their last hidden states Float[n, d], of the lines that `store` has open.

    What each layer computes is left in the places of `recording`, where there is one.
    """

    def __init__(
        self,
        model: nn.Module,
        weights: NativeWeights,
        store: SharedPrompts,
        recording: Recording | None = None,
    ) -> None:
        stack = trunk(model)
        self.embed, self.angles, self.layers = stack.embed_tokens, stack.rotary_emb, list(stack.layers)
        self.weights, self.store, self.recording = weights, store, recording
        self.lines, self.version = Lines(), -1
        self.held: tuple[Tensor, ...] = ()  # what the pointers of `lines` and `kept` point to
        self.kept: Kept | None = None
        self.room = torch.empty(0)

    def __call__(self, tokens: Tensor, where: Tensor) -> Tensor:
        x = self.embed(tokens).contiguous()
        cos, sin = (angle.contiguous() for angle in self.angles(x, where[:, None]))
        if self.version != self.store.version:
            self._look()
        self.lines.written = self.store.written
        functions, threads, model = library(), team(), byref(self.weights.model)
        self._make_room(functions.tutelage_room(model, byref(self.lines), threads.threads))
        kept = None if self.kept is None else byref(self.kept)
        pointers = (tensor.data_ptr() for tensor in (x, cos, sin, self.room))
        functions.tutelage_step(byref(threads), model, byref(self.lines), kept, *pointers)
        return x

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
        self.kept = None if self.recording is None else self._places(self.recording)

    def _places(self, recording: Recording) -> Kept | None:
        """Where the tokens of the lines are kept."""
        blocks, groups = recording.blocks(self.layers), recording.groups
        if blocks is None:
            return None
        where = recording.lines()
        self.held += where
        places = (c_int64 * len(groups))(*(group.places for group in groups))
        return Kept((c_void_p * len(blocks))(*blocks), len(groups), places, *(x.data_ptr() for x in where))


@torch.no_grad()
def agrees(model: nn.Module, step: NativeStep, tokens: Tensor, where: Tensor) -> bool:
    """Whether `step` does what the layers of `model` do as they are. Tried once for each model, on these tokens.

    It was compiled on a machine that nobody has seen. Says so where it does something else.
    """
    whole = inner(model)
    if whole not in _tried:
        expected = LeanStep(model, {})(tokens, where, step.store.attend)
        error = (step(tokens, where) - expected).abs().max() / expected.abs().max()
        _tried[whole] = bool(error <= TOLERANCE)
        if not _tried[whole]:
            distrust(
                "The compiled decoding step is not used: it says something else than the layers of the model (states "
                f"differ by {float(error):.1e} of the largest)."
            )
    return _tried[whole]


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
