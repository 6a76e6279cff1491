"""The compiled decoding step: packs the weights of a model for `step.cpp` and passes tokens and pointers.

Weights are stored as panels of sixteen rows of W, feature by feature, in one arena. bfloat16 halves their memory; the
time of a step is little more than that of reading them. Adapters are computed beside W, as in a forward pass (see
`fused.linears`).
"""

from collections.abc import Iterable, Sequence
from ctypes import POINTER, c_int64, c_void_p, pointer
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn

from tutelage.base.errors import TutelageError
from tutelage.engines.cpu.activation_cache import Recording
from tutelage.engines.cpu.allocator import Arena
from tutelage.engines.cpu.decoding_weights import is_matrix, matrix, matrix_of
from tutelage.engines.cpu.fused.linears import AdaptedLinear, adapted_linears, is_decoded, panels_of_layers
from tutelage.engines.cpu.native.bindings import LANES, compute, size_of, thread_pool
from tutelage.engines.cpu.native.matrix_products import PanelLinear, floats_of, multiplies_floats, multiply
from tutelage.engines.cpu.native.structs import ActivationBlocks, Layer, Matrix, StepLines, StepModel
from tutelage.engines.cpu.prompt_cache import PromptCache
from tutelage.engines.logprobs import Head
from tutelage.engines.network import epsilon_of, inner, trunk


class NativeWeights:
    """Copies of the weights of a model, and of its head if that is one matrix.

    `model` is the struct for `step.cpp`, `layers` are its layers. Raises TutelageError if a linear layer is not one
    matrix or the layers differ in shape. `dtype` is float32 or bfloat16.
    """

    @torch.no_grad()
    def __init__(self, model: nn.Module, dtype: torch.dtype = torch.float32) -> None:
        self.half = dtype == torch.bfloat16
        stack, self.output = trunk(model), inner(model).get_output_embeddings()
        if not is_of_one_shape(stack.layers):
            raise TutelageError(
                "The compiled step serves no model whose layers have several shapes. Use --engine plain."
            )
        head = matrix(self.output)
        self.held: list[Tensor] = []  # the tensors that pointers point to
        self.panels: dict[int, PanelLinear] = {}
        """bfloat16 products without merged adapters, as used by `MixedLinears`, keyed by the address of their first
        weight."""
        products = [parts for layer in stack.layers for parts in _products(layer)]
        if head is not None:
            products.append([self.output])
        self.arena = Arena(floats for parts in products for floats in self._sizes(parts))
        self.layers = (Layer * len(stack.layers))(*map(self._layer, stack.layers))
        self.head = None if head is None else self._matrix([self.output])
        attention, gate = stack.layers[0].self_attn, stack.layers[0].mlp
        width, norm = int(attention.head_dim), stack.norm
        heads, keys = (part.out_features // width for part in (attention.q_proj, attention.k_proj))
        shape = (len(self.layers), len(norm.weight), heads, keys, width, gate.up_proj.out_features)
        self.model = StepModel(self.layers, *shape, self._held(norm.weight), epsilon_of(norm))

    def _layer(self, layer: Any) -> Layer:
        attention = layer.self_attn
        heads, mixed, gate_and_up, down = _products(layer)
        struct = Layer(
            heads=self._matrix(heads),
            mixed=self._matrix(mixed),
            gate_and_up=self._matrix(gate_and_up, alternating=True),
            down=self._matrix(down),
            scale=attention.head_dim**-0.5 if attention.scaling is None else attention.scaling,
        )
        norms = {
            "": layer.input_layernorm,
            "query_": getattr(attention, "q_norm", None),
            "key_": getattr(attention, "k_norm", None),
            "gate_": layer.post_attention_layernorm,
        }
        for name, norm in norms.items():
            if norm is not None:
                setattr(struct, f"{name}norm", self._held(norm.weight))
                setattr(struct, f"{name}epsilon", epsilon_of(norm))
        return struct

    def _adapted(self, parts: Sequence[nn.Module]) -> list[AdaptedLinear] | None:
        """The layers with their adapters, if the step computes these; None without adapters or if they are merged, as
        in the head."""
        layers = None if parts[0] is self.output else adapted_linears(parts)
        if layers is None or all(layer.lora_a is None for layer in layers):
            return None
        return layers if not self.half or all(map(is_decoded, layers)) else None

    def _sizes(self, parts: Sequence[Any]) -> list[int]:
        """Floats of the panels of a product and of its adapters."""
        features, outs = int(parts[0].in_features), [int(part.out_features) for part in parts]
        rank = sum(layer.rank() for layer in self._adapted(parts) or [])
        return floats_of(outs, features, rank, half=self.half)

    def _matrix(self, parts: Sequence[nn.Module], *, alternating: bool = False) -> Matrix:
        """The stacked product of layers with a common input. The panels of two layers of equal shape may alternate."""
        layers = self._adapted(parts) or [AdaptedLinear(*matrix_of(part)) for part in parts]
        panels = panels_of_layers(layers, half=self.half, alternating=alternating, allocate=self.arena.take)
        merged = [
            layer.weight.data_ptr() != _weight_of(part).data_ptr() for layer, part in zip(layers, parts, strict=True)
        ]
        if isinstance(panels, PanelLinear) and not any(merged):
            self.panels[layers[0].weight.data_ptr()] = panels
        self.held += panels.held
        return panels.matrix

    def _held(self, x: Tensor) -> int:
        """The address of the tensor in float32, kept alive by this object."""
        self.held.append(x.detach().float().contiguous())
        return self.held[-1].data_ptr()


def can_be_laid_out(model: nn.Module, dtype: torch.dtype = torch.float32) -> bool:
    """Whether `NativeWeights` supports the layers of a model with a fused step in `dtype`."""
    stack = trunk(model)
    parts: list[Any] = [part for layer in stack.layers for parts in _products(layer) for part in parts]
    pairs = dtype == torch.bfloat16 and all(int(part.in_features) % 2 == 0 for part in parts)
    fits = dtype == torch.float32 or pairs
    return fits and is_of_one_shape(stack.layers) and all(map(is_matrix, parts))


def is_of_one_shape(layers: Iterable[Any]) -> bool:
    """Whether the linear layers of all layers have the same shapes."""
    shapes = set()
    for layer in layers:
        attention = layer.self_attn
        products = (attention.q_proj, attention.k_proj, attention.v_proj, layer.mlp.up_proj)
        shapes.add((attention.head_dim, *(part.out_features for part in products)))
    return len(shapes) == 1


def _weight_of(part: Any) -> Tensor:
    """Weight of a layer without its adapters."""
    base: Any = part.get_base_layer() if isinstance(part, LoraLinear) else part
    weight: Tensor = base.weight
    return weight


def _products(layer: Any) -> list[list[Any]]:
    """The projections of a layer, grouped by common input."""
    attention, gate = layer.self_attn, layer.mlp
    return [
        [attention.q_proj, attention.k_proj, attention.v_proj],
        [attention.o_proj],
        [gate.gate_proj, gate.up_proj],
        [gate.down_proj],
    ]


# The step -------------------------------------------------------------------------------------------------------------


class NativeStep:
    """A decoding step in C++ on the keys and values in `cache`, equivalent to `FusedStep`.

    The activations of each layer are written to `recording`, if any.
    """

    def __init__(
        self, model: nn.Module, weights: NativeWeights, cache: PromptCache, recording: Recording | None = None
    ) -> None:
        stack = trunk(model)
        self.embed, self.angles, self.layers = stack.embed_tokens, stack.rotary_emb, list(stack.layers)
        self.weights, self.cache, self.recording = weights, cache, recording
        # separate structs, which point to the keys and values of this step's lines
        self.structs = type(weights.layers).from_buffer_copy(weights.layers)
        self.model = StepModel.from_buffer_copy(weights.model)
        self.model.layers = self.structs
        self.lines, self.version = StepLines(), -1
        self.held: tuple[Tensor, ...] = ()  # the tensors that the pointers of `lines` and `blocks` point to
        self.blocks: ActivationBlocks | None = None
        self.workspace = torch.empty(0)

    def __call__(self, tokens: Int[Tensor, " n"], positions: Int[Tensor, " n"]) -> Float[Tensor, "n d"]:
        """The last hidden states of one token of each line."""
        return joint_states([self], tokens, positions)

    def update(self) -> None:
        """Update the pointers to the lines and to their keys and values."""
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
        """Addresses for the activations of the rows; None if the prompts were not recorded."""
        blocks, groups = recording.blocks(self.layers), recording.groups
        if blocks is None:
            return None
        lines = recording.lines()
        self.held += lines
        places = (c_int64 * len(groups))(*(group.places for group in groups))
        return ActivationBlocks((c_void_p * len(blocks))(*blocks), len(groups), places, *(x.data_ptr() for x in lines))


def joint_states(
    steps: Sequence[NativeStep], tokens: Int[Tensor, " n"], positions: Int[Tensor, " n"]
) -> Float[Tensor, "n d"]:
    """The last hidden states of one token of each line of several steps on the same weights, which are read once.

    Lines are concatenated in the order of the steps. Activations are recorded only for a single step.
    """
    first, count = steps[0], len(steps)
    x = first.embed(tokens).float().contiguous()
    cos, sin = (angle.contiguous() for angle in first.angles(x, positions[:, None]))
    models, lines = line_structs(steps)
    floats = size_of("step_workspace", models, lines, count, thread_pool().threads)
    if first.workspace.numel() < floats:
        first.workspace = torch.empty(floats)
    blocks = None if count > 1 else first.blocks
    compute("step", models, lines, count, blocks, x, cos, sin, first.workspace)
    return x


def piece_attention(
    structs: tuple[Any, Any],
    layer: int,
    ends: Int[Tensor, " n"],
    query: Float[Tensor, "N H w"],
    key: Float[Tensor, "N K w"],
    value: Float[Tensor, "N K w"],
) -> Float[Tensor, "N H w"]:
    """The attention of a layer for the next tokens of the lines of several steps, one line each, by their
    `line_structs`.

    The tokens of line b end before `ends[b]`. Their keys and values are stored; the caches have room for them. The
    result has the dtype of `query`.
    """
    models, lines = structs
    operands = [x.float().contiguous() for x in (query, key, value)]
    out, sizes = torch.empty_like(operands[0]), (models, lines, len(models))
    workspaces = torch.empty(thread_pool().threads * size_of("piece_workspace", *sizes, ends))
    compute("piece_attention", *sizes, layer, ends, *operands, out, workspaces)
    return out.to(query.dtype)


def line_structs(steps: Sequence[NativeStep]) -> tuple[Any, Any]:
    """Arrays of pointers to the models and the lines of several steps, up to date until any of their caches changes."""
    for step in steps:
        step.update()
    models = (POINTER(StepModel) * len(steps))(*(pointer(step.model) for step in steps))
    return models, (POINTER(StepLines) * len(steps))(*(pointer(step.lines) for step in steps))


MANY = 512
"""Rows from which products on blocks of W are faster than on its panels, although they copy W."""


class NativeHead:
    """x Wᵀ + b in C++, for use as the `module` of a `Head`."""

    def __init__(self, weights: NativeWeights, matrix: Matrix, head: Head) -> None:
        self.weights, self.matrix, self.head = weights, matrix, head

    def __call__(self, states: Float[Tensor, "n d"]) -> Float[Tensor, "n V"]:
        """The raw logits of hidden states."""
        states, weight = states.float().contiguous(), self.head.weight if self.head.is_matrix else None
        if len(states) >= MANY and weight is not None and not self.matrix.half and multiplies_floats():
            return multiply(states, weight.T, bias=self.head.bias)
        blocks, features = (-(-size // LANES) for size in states.shape)
        workspace = states.new_empty(thread_pool().threads, blocks, features * LANES, LANES)
        logits = states.new_empty(len(states), self.matrix.out)
        compute("product", self.matrix, len(states), states, logits, workspace)
        return logits


def native_head(head: Head, weights: NativeWeights) -> Head:
    """`head` on the compiled product if its matrix was laid out, else `head` itself."""
    return head if weights.head is None else replace(head, module=NativeHead(weights, weights.head, head))
