"""The weights of a model as `step.cpp` reads them: panels of sixteen rows of W, feature by feature, in one arena.

In bfloat16 they take half of the memory, and a step takes little more than the time of reading them. Adapters are
computed as in a forward pass, beside W (see `fused.linear` and `fused.mixed_linear`).
"""

from collections.abc import Iterable, Sequence
from ctypes import byref
from typing import Any

import torch
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn

from tutelage.base.errors import TutelageError
from tutelage.engines.cpu.decoding_weights import is_matrix, joint_bias, matrix, matrix_of
from tutelage.engines.cpu.fused.linear import Linear
from tutelage.engines.cpu.fused.mixed_linear import MixedLinears, is_decoded
from tutelage.engines.cpu.fused.norm import epsilon_of
from tutelage.engines.cpu.memory import Arena
from tutelage.engines.cpu.native.bindings import LANES, library, thread_pool
from tutelage.engines.cpu.native.half_products import PanelLinear, floats_of, panels_of, places, whole_panels
from tutelage.engines.cpu.native.structs import Layer, Matrix, Model
from tutelage.engines.network import inner, trunk


class NativeWeights:
    """Copies of the weights of a model, and of its head where that is one matrix.

    `model` is the struct for `step.cpp`, `layers` are its layers. Raises TutelageError where a linear layer is not one
    matrix, and where the layers have different shapes. `dtype` is float32 or bfloat16.
    """

    @torch.no_grad()
    def __init__(self, model: nn.Module, dtype: torch.dtype = torch.float32) -> None:
        self.half = dtype == torch.bfloat16
        stack, self.output = trunk(model), inner(model).get_output_embeddings()
        if not is_of_one_shape(stack.layers):
            raise TutelageError(
                "The compiled step serves no model whose layers have several shapes. Use --engine plain."
            )
        found = matrix(self.output)
        self.held: list[Tensor] = []  # the tensors that pointers point to
        self.panels: dict[int, PanelLinear] = {}
        """The products in bfloat16 that `fused.mixed_linear` computes, by the address of their first weight: those
        without merged adapters."""
        products = [parts for layer in stack.layers for parts in _products(layer)]
        if found is not None:
            products.append([self.output])
        self.arena = Arena(floats for parts in products for floats in self._sizes(parts))
        self.layers = (Layer * len(stack.layers))(*map(self._layer, stack.layers))
        self.head = None if found is None else self._matrix([self.output])
        attention, gate = stack.layers[0].self_attn, stack.layers[0].mlp
        width, norm = int(attention.head_dim), stack.norm
        heads, keys = (part.out_features // width for part in (attention.q_proj, attention.k_proj))
        shape = (len(self.layers), len(norm.weight), heads, keys, width, gate.up_proj.out_features)
        self.model = Model(self.layers, *shape, self._held(norm.weight), epsilon_of(norm))

    def _layer(self, layer: Any) -> Layer:
        attention = layer.self_attn
        heads, mixed, gate_and_up, down = _products(layer)
        found = Layer(
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
                setattr(found, f"{name}norm", self._held(norm.weight))
                setattr(found, f"{name}epsilon", epsilon_of(norm))
        return found

    def _adapted(self, parts: Sequence[nn.Module]) -> list[Linear] | None:
        """The layers with their adapters where the step computes these; None where it has none, or they are merged, as
        those of the head are."""
        if parts[0] is self.output:
            return None
        found = [layer for layer in map(Linear.of, parts) if layer is not None]
        has_adapters = any(layer.lora_a is not None for layer in found)
        decoded = not self.half or all(map(is_decoded, found))
        return found if has_adapters and len(found) == len(parts) and decoded else None

    def _sizes(self, parts: Sequence[Any]) -> list[int]:
        """Floats of the panels of a product, and of its adapters."""
        features, outs = int(parts[0].in_features), [int(part.out_features) for part in parts]
        rank = sum(layer.rank() for layer in self._adapted(parts) or [])
        if self.half:
            return floats_of(outs, features, rank)
        return [sum(map(panels_of, outs)) * LANES * (features + rank), panels_of(rank) * LANES * features]

    def _matrix(self, parts: Sequence[nn.Module], *, alternating: bool = False) -> Matrix:
        """The product of layers over the same features, one below the other. The panels of two of one shape may
        alternate."""
        layers = self._adapted(parts) or [Linear(*matrix_of(part)) for part in parts]
        if not self.half:
            return self._exact_matrix(layers, alternating=alternating)
        panels = MixedLinears(layers).panels(alternating=alternating, allocate=self.arena.take)
        merged = [
            layer.weight.data_ptr() != _weight_of(part).data_ptr()
            for layer, part in zip(layers, parts, strict=True)
        ]
        if not any(merged):
            self.panels[layers[0].weight.data_ptr()] = panels
        self.held += panels.held
        return panels.matrix

    def _exact_matrix(self, layers: Sequence[Linear], *, alternating: bool) -> Matrix:
        """`_matrix` in float32: [W | s B] as panels, and A."""
        joint = MixedLinears(layers)
        sizes = [len(layer.weight) for layer in layers]
        weights = [
            torch.cat((layer.weight.float(), columns), 1)
            for layer, columns in zip(layers, joint.columns.split(sizes), strict=True)
        ]
        weights = whole_panels(weights, alternating)
        sizes, width = [len(weight) for weight in weights], weights[0].shape[1]
        panels = self.arena.take(sum(map(panels_of, sizes)) * LANES * width)
        for weight, (own, step) in zip(
            weights, places(sizes, panels, LANES * width, alternating), strict=True
        ):
            _pack(weight, own, step)
        bias = joint_bias([(layer.weight, layer.bias) for layer in layers])
        address = None if bias is None else self._held(bias)
        rank = joint.columns.shape[1]
        found = Matrix(panels.data_ptr(), address, out=sum(sizes), in_=width, rank=rank)
        if rank:
            own = self.arena.take(panels_of(rank) * LANES * (width - rank))
            _pack(
                torch.cat([layer.lora_a for layer in layers if layer.lora_a is not None]),
                own,
                LANES * (width - rank),
            )
            found.lora_a = own.data_ptr()
        return found

    def _held(self, x: Tensor) -> int:
        """The address of a tensor in float32, which is kept alive."""
        self.held.append(x.detach().float().contiguous())
        return self.held[-1].data_ptr()


def _pack(weight: Tensor, panels: Tensor, step: int) -> None:
    """Copy W in float32 into panels that begin `step` floats apart."""
    whole = weight.detach().float().contiguous()
    library().tutelage_pack(byref(thread_pool()), whole.data_ptr(), *whole.shape, panels.data_ptr(), step)


def can_be_laid_out(model: nn.Module, dtype: torch.dtype = torch.float32) -> bool:
    """Whether `NativeWeights` takes the layers of a model that has a fused step, in that precision."""
    stack = trunk(model)
    parts: list[Any] = [part for layer in stack.layers for parts in _products(layer) for part in parts]
    pairs = dtype == torch.bfloat16 and all(int(part.in_features) % 2 == 0 for part in parts)
    fits = dtype == torch.float32 or pairs
    return fits and is_of_one_shape(stack.layers) and all(map(is_matrix, parts))


def is_of_one_shape(layers: Iterable[Any]) -> bool:
    """Whether the linear layers of all layers have the same shapes."""
    return len(set(map(_shape, layers))) == 1


def _shape(layer: Any) -> tuple[int, ...]:
    """The sizes in which layers may differ."""
    attention, gate = layer.self_attn, layer.mlp
    products = (attention.q_proj, attention.k_proj, attention.v_proj, gate.up_proj)
    return (attention.head_dim, *(part.out_features for part in products))


def _weight_of(part: Any) -> Tensor:
    """The weight of a layer without its adapters."""
    base: Any = part.get_base_layer() if isinstance(part, LoraLinear) else part
    weight: Tensor = base.weight
    return weight


def _products(layer: Any) -> list[list[Any]]:
    """The projections of a layer, those over the same features together."""
    attention, gate = layer.self_attn, layer.mlp
    return [
        [attention.q_proj, attention.k_proj, attention.v_proj],
        [attention.o_proj],
        [gate.gate_proj, gate.up_proj],
        [gate.down_proj],
    ]
