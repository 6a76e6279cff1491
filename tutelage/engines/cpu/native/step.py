"""The compiled decoding step: tokens and pointers for `step.cpp`, and hidden states or logits from it."""

from collections.abc import Sequence
from ctypes import POINTER, byref, c_int64, c_void_p, pointer
from dataclasses import replace
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tutelage.engines.cpu.activation_cache import Recording
from tutelage.engines.cpu.fused.step import FusedStep
from tutelage.engines.cpu.native.bindings import LANES, is_available, library, thread_pool, warn_disabled
from tutelage.engines.cpu.native.structs import ActivationBlocks, Lines, Matrix, Model
from tutelage.engines.cpu.native.weights import NativeWeights, can_be_laid_out
from tutelage.engines.cpu.prompt_cache import PromptCache
from tutelage.engines.logprobs import Head
from tutelage.engines.network import inner, trunk

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.1}
"""The largest difference by rounding between the step and the layers, relative to the largest state: in bfloat16 some
hundred roundings by 2⁻⁹ in the root mean square add up."""

_agrees: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()


def is_native(model: nn.Module, dtype: torch.dtype = torch.float32) -> bool:
    """Whether a model that has a fused step has a compiled one too, on this machine and in that precision."""
    return _agrees.get(inner(model), True) and can_be_laid_out(model, dtype) and is_available()


class NativeStep:
    """A decoding step in C++, on the keys and values in `cache`. It computes what `FusedStep` computes.

    The activations of each layer are written to the memory of `recording`, where there is one.
    """

    def __init__(
        self,
        model: nn.Module,
        weights: NativeWeights,
        cache: PromptCache,
        recording: Recording | None = None,
    ) -> None:
        self.whole, stack = model, trunk(model)
        self.embed, self.angles, self.layers = stack.embed_tokens, stack.rotary_emb, list(stack.layers)
        self.weights, self.cache, self.recording = weights, cache, recording
        # structs of its own: they point to the keys and values of this step's lines
        self.structs = type(weights.layers).from_buffer_copy(weights.layers)
        self.model = Model.from_buffer_copy(weights.model)
        self.model.layers = self.structs
        self.lines, self.version = Lines(), -1
        self.held: tuple[Tensor, ...] = ()  # the tensors that the pointers of `lines` and `blocks` point to
        self.blocks: ActivationBlocks | None = None
        self.workspace = torch.empty(0)

    def __call__(self, tokens: Int[Tensor, " n"], positions: Int[Tensor, " n"]) -> Float[Tensor, "n d"]:
        """The last hidden states of one token of each line."""
        return joint_states([self], tokens, positions)

    @property
    def is_verified(self) -> bool:
        """Whether a trial has shown that the step computes what the layers compute."""
        return _agrees.get(inner(self.whole), False)

    def update(self) -> None:
        """Point to the lines and to their keys and values, where they are now."""
        self.lines.written = self.cache.written
        if self.version == self.cache.version:
            return
        cache, lines = self.cache, self.lines
        counts = (cache.place // cache.width).bincount(minlength=cache.prompts)
        first = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        self.held = (first, cache.lengths.contiguous(), cache.place % cache.width)
        lines.first, lines.lengths, lines.slots = (each.data_ptr() for each in self.held)
        lines.count, lines.prompts, lines.longest = cache.count, cache.prompts, cache.longest
        for module, layer in zip(self.layers, self.structs, strict=True):
            entry = cache.layers[module.self_attn]
            (prompt_keys, prompt_values), (keys, values) = entry.prompt, entry.answer
            layer.prompt_keys, layer.prompt_values = prompt_keys.data_ptr(), prompt_values.data_ptr()
            layer.keys, layer.values = keys.data_ptr(), values.data_ptr()
        lines.prompt_steps[:], lines.answer_steps[:] = prompt_keys.stride()[:2], keys.stride()[:3]
        self.version = cache.version
        self.blocks = None if self.recording is None else self._activation_blocks(self.recording)

    def _activation_blocks(self, recording: Recording) -> ActivationBlocks | None:
        """Addresses at which the activations of the rows are kept; None where the prompts were not recorded."""
        blocks, groups = recording.blocks(self.layers), recording.groups
        if blocks is None:
            return None
        lines = recording.lines()
        self.held += lines
        places = (c_int64 * len(groups))(*(group.places for group in groups))
        return ActivationBlocks(
            (c_void_p * len(blocks))(*blocks), len(groups), places, *(x.data_ptr() for x in lines)
        )


def joint_states(
    steps: Sequence[NativeStep], tokens: Int[Tensor, " n"], positions: Int[Tensor, " n"]
) -> Float[Tensor, "n d"]:
    """The last hidden states of one token of each line of several steps on the same weights, which are read once.

    The lines of a step follow those of the steps before it. Activations are recorded of a single step only.
    """
    first, count = steps[0], len(steps)
    x = first.embed(tokens).float().contiguous()
    cos, sin = (angle.contiguous() for angle in first.angles(x, positions[:, None]))
    for step in steps:
        step.update()
    functions, pool = library(), thread_pool()
    models = (POINTER(Model) * count)(*(pointer(step.model) for step in steps))
    lines = (POINTER(Lines) * count)(*(pointer(step.lines) for step in steps))
    floats = functions.tutelage_step_workspace(models, lines, count, pool.threads)
    if first.workspace.numel() < floats:
        first.workspace = torch.empty(floats)
    blocks = None if first.blocks is None or count > 1 else byref(first.blocks)
    pointers = (tensor.data_ptr() for tensor in (x, cos, sin, first.workspace))
    functions.tutelage_step(byref(pool), models, lines, count, blocks, *pointers)
    return x


@torch.no_grad()
def agrees(
    model: nn.Module, step: NativeStep, tokens: Int[Tensor, " n"], positions: Int[Tensor, " n"]
) -> bool:
    """Whether `step` computes what the layers of `model` compute. Tried once for each model, on these tokens.

    The step was compiled for a processor that the tests may never have run on. A warning is logged where it differs.
    """
    whole = inner(model)
    if whole not in _agrees:
        with torch.autocast("cpu", torch.bfloat16, enabled=step.weights.half):
            expected = FusedStep(model, {})(tokens, positions, step.cache.attend)
        error = (step(tokens, positions) - expected).abs().max() / expected.abs().max()
        _agrees[whole] = bool(error <= TOLERANCE[torch.bfloat16 if step.weights.half else torch.float32])
        if not _agrees[whole]:
            warn_disabled(
                f"The compiled decoding step is not used: its states differ by {float(error):.1e} of the largest from "
                "those of the model's layers."
            )
    return _agrees[whole]


class NativeHead:
    """x Wᵀ + b in C++, to be the `module` of a `Head`."""

    def __init__(self, weights: NativeWeights, matrix: Matrix) -> None:
        self.weights, self.matrix = weights, matrix

    def __call__(self, states: Float[Tensor, "n d"]) -> Float[Tensor, "n V"]:
        """The raw logits of hidden states."""
        states, lines, pool = states.float().contiguous(), len(states), thread_pool()
        blocks, features = (-(-size // LANES) for size in states.shape)
        workspace = states.new_empty(pool.threads, blocks, features * LANES, LANES)
        logits = states.new_empty(lines, self.matrix.out)
        library().tutelage_product(
            *(byref(pool), byref(self.matrix), lines),
            *(tensor.data_ptr() for tensor in (states, logits, workspace)),
        )
        return logits


def native_head(head: Head, weights: NativeWeights) -> Head:
    """`head` on the compiled product, where its matrix was laid out; else `head` itself."""
    return head if weights.head is None else replace(head, module=NativeHead(weights, weights.head))
