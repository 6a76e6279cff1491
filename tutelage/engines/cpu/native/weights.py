"""The weights of a model as `step.cpp` reads them: panels of sixteen rows of W, feature by feature, in one arena.

In bfloat16 they take half of the memory, and a step takes little more than the time of reading them."""

from collections.abc import Iterable, Sequence
from ctypes import byref
from typing import Any

import torch
from torch import Tensor, nn

from tutelage.engines.cpu.decoding_weights import is_matrix, joint_bias, matrix, matrix_in
from tutelage.engines.cpu.fused.norm import epsilon_of
from tutelage.engines.cpu.memory import Arena
from tutelage.engines.cpu.native import half_products
from tutelage.engines.cpu.native.bindings import LANES, library, thread_pool
from tutelage.engines.cpu.native.structs import Layer, Matrix, Model
from tutelage.engines.network import inner, trunk
from tutelage.errors import TutelageError


class NativeWeights:
    """Copies of the weights of a model, and of its head where that is one matrix, with the adapters merged.

    `model` is the struct for `step.cpp`, `layers` are its layers. Raises TutelageError where a linear layer is not one
    matrix, and where the layers have different shapes. `dtype` is float32 or bfloat16.
    """

    @torch.no_grad()
    def __init__(self, model: nn.Module, dtype: torch.dtype = torch.float32) -> None:
        self.half = dtype == torch.bfloat16
        stack, output = trunk(model), inner(model).get_output_embeddings()
        if not is_of_one_shape(stack.layers):
            raise TutelageError(
                "The compiled step serves no model whose layers have several shapes. Use --engine plain."
            )
        found = matrix(output)
        self.held: list[Tensor] = []  # the tensors that pointers point to
        parts = [*_linear(stack), *([] if found is None else [output])]
        self.arena = Arena(_panels(part.out_features) * self._panel(int(part.in_features)) for part in parts)
        self.layers = (Layer * len(stack.layers))(*map(self._layer, stack.layers))
        self.head = None if found is None else self._stacked([output])
        attention, gate = stack.layers[0].self_attn, stack.layers[0].mlp
        width, norm = int(attention.head_dim), stack.norm
        heads, keys = (part.out_features // width for part in (attention.q_proj, attention.k_proj))
        shape = (len(self.layers), len(norm.weight), heads, keys, width, gate.up_proj.out_features)
        self.model = Model(self.layers, *shape, self._held(norm.weight), epsilon_of(norm))

    def _layer(self, layer: Any) -> Layer:
        attention, gate = layer.self_attn, layer.mlp
        found = Layer(
            heads=self._stacked([attention.q_proj, attention.k_proj, attention.v_proj]),
            mixed=self._stacked([attention.o_proj]),
            gate_and_up=self._alternating([gate.gate_proj, gate.up_proj]),
            down=self._stacked([gate.down_proj]),
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

    def _stacked(self, parts: Sequence[nn.Module]) -> Matrix:
        """Matrices over the same features, one below the other."""
        matrices = [matrix_in(part, torch.float32) for part in parts]
        weight = torch.cat([weight for weight, _ in matrices])
        panels = self.arena.take(_panels(len(weight)) * self._panel(weight.shape[1]))
        self._pack(weight, panels, 1)
        return self._matrix(panels, joint_bias(matrices), *weight.shape)

    def _alternating(self, parts: Sequence[nn.Module]) -> Matrix:
        """Matrices of one shape, whose panels alternate."""
        matrices = [matrix_in(part, torch.float32) for part in parts]
        out, features = matrices[0][0].shape
        panels = self.arena.take(_panels(out) * self._panel(features) * len(parts))
        for index, (weight, _) in enumerate(matrices):
            self._pack(weight, panels[index * self._panel(features) :], len(parts))
        return self._matrix(panels, joint_bias(matrices), len(parts) * out, features)

    def _pack(self, weight: Tensor, panels: Tensor, apart: int) -> None:
        """Copy a matrix [out, in] into panels, of which every `apart`-th is its own."""
        weight, (out, features) = weight.contiguous(), weight.shape
        step = apart * self._panel(features)
        if self.half:
            half_products.pack(weight, panels, step)
            return
        library().tutelage_pack(
            byref(thread_pool()), weight.data_ptr(), out, features, panels.data_ptr(), step
        )

    def _panel(self, features: int) -> int:
        """Floats, or pairs of numbers in bfloat16, of a panel."""
        return half_products.panel_pairs(features) if self.half else LANES * features

    def _matrix(self, panels: Tensor, bias: Tensor | None, out: int, features: int) -> Matrix:
        return Matrix(panels.data_ptr(), None if bias is None else self._held(bias), out, features, self.half)

    def _held(self, x: Tensor) -> int:
        """The address of a tensor in float32, which is kept alive."""
        self.held.append(x.detach().float().contiguous())
        return self.held[-1].data_ptr()


def can_be_laid_out(model: nn.Module, dtype: torch.dtype = torch.float32) -> bool:
    """Whether `NativeWeights` takes the layers of a model that has a fused step, in that precision."""
    stack = trunk(model)
    parts: list[Any] = _linear(stack)
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


def _linear(stack: Any) -> list[nn.Module]:
    """The projections of all layers of a trunk."""
    return [
        part
        for layer in stack.layers
        for module in (layer.self_attn, layer.mlp)
        for name, part in module.named_children()
        if name.endswith("_proj")
    ]


def _panels(out: int) -> int:
    """The number of panels of a matrix with `out` rows."""
    return -(-out // LANES)
