"""The weights of a model as `step.cpp` reads them: panels of sixteen rows of W, feature by feature, in one arena.

In bfloat16 they take half of the memory, and a step takes little more than the time of reading them. Adapters are then
computed as in a forward pass (see `fused.mixed_linear`); in float32 they are merged with W.
"""

from collections.abc import Iterable, Iterator, Sequence
from ctypes import byref
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from tutelage.engines.cpu.decoding_weights import is_matrix, joint_bias, matrix, matrix_of
from tutelage.engines.cpu.fused.linear import Linear
from tutelage.engines.cpu.fused.mixed_linear import MixedLinears, is_decoded
from tutelage.engines.cpu.fused.norm import epsilon_of
from tutelage.engines.cpu.memory import Arena
from tutelage.engines.cpu.native import half_products
from tutelage.engines.cpu.native.bindings import LANES, library, thread_pool
from tutelage.engines.cpu.native.structs import Layer, Matrix, Model
from tutelage.engines.network import inner, trunk
from tutelage.errors import TutelageError


class NativeWeights:
    """Copies of the weights of a model, and of its head where that is one matrix.

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
        products = [parts for layer in stack.layers for parts in _products(layer)]
        if found is not None:
            products.append([output])
        self.arena = Arena(size for parts in products for size in self._sizes(parts))
        self.layers = (Layer * len(stack.layers))(*map(self._layer, stack.layers))
        self.head = None if found is None else self._stacked([output])
        attention, gate = stack.layers[0].self_attn, stack.layers[0].mlp
        width, norm = int(attention.head_dim), stack.norm
        heads, keys = (part.out_features // width for part in (attention.q_proj, attention.k_proj))
        shape = (len(self.layers), len(norm.weight), heads, keys, width, gate.up_proj.out_features)
        self.model = Model(self.layers, *shape, self._held(norm.weight), epsilon_of(norm))

    def _layer(self, layer: Any) -> Layer:
        attention = layer.self_attn
        heads, mixed, gate_and_up, down = _products(layer)
        found = Layer(
            heads=self._stacked(heads),
            mixed=self._stacked(mixed),
            gate_and_up=self._alternating(gate_and_up),
            down=self._stacked(down),
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
        return self._matrix(self._linears(parts), alternate=False)

    def _alternating(self, parts: Sequence[nn.Module]) -> Matrix:
        """Matrices of one shape, whose panels alternate."""
        return self._matrix(self._linears(parts), alternate=True)

    def _linears(self, parts: Sequence[nn.Module]) -> list[Linear]:
        """The layers with their adapters, or with merged weights."""
        return self._adapted(parts) or [Linear(*matrix_of(part)) for part in parts]

    def _adapted(self, parts: Sequence[nn.Module]) -> list[Linear] | None:
        """The layers with their adapters where the step computes these; None where it has none, or they are merged."""
        found = [layer for layer in map(Linear.of, parts) if layer is not None] if self.half else []
        has_adapters = any(layer.lora_a is not None for layer in found)
        return found if has_adapters and len(found) == len(parts) and all(map(is_decoded, found)) else None

    def _sizes(self, parts: Sequence[Any]) -> Iterator[int]:
        """Floats of the panels of a product, and of its adapters."""
        features, rank = int(parts[0].in_features), _rank(self._adapted(parts) or [])
        yield sum(_panels(part.out_features) for part in parts) * self._panel(features + rank)
        if rank:
            yield _panels(rank) * self._panel(features)

    def _matrix(self, layers: Sequence[Linear], *, alternate: bool) -> Matrix:
        """The product of `layers`, whose panels alternate, or follow those of the layer before."""
        weights, joint, rank = [layer.weight for layer in layers], MixedLinears(layers), _rank(layers)
        if not alternate and any(len(weight) % LANES for weight in weights[:-1]):
            weights = [torch.cat(weights)]
        features, sizes = weights[0].shape[1], [len(weight) for weight in weights]
        panel = self._panel(features + rank)
        panels = self.arena.take(sum(map(_panels, sizes)) * panel)
        columns = pad(joint.columns, (0, rank - joint.columns.shape[1])).split(sizes)
        step, first = panel * (len(weights) if alternate else 1), 0
        for weight, beside in zip(weights, columns, strict=True):
            own = panels[first * panel :]
            self._pack(weight, own, step)
            if rank:
                self._pack(beside, own[features // 2 * LANES :], step)
            first += 1 if alternate else _panels(len(weight))
        bias = joint_bias([(layer.weight, layer.bias) for layer in layers])
        found = Matrix(
            panels.data_ptr(),
            None if bias is None else self._held(bias),
            out=sum(sizes),
            in_=features + rank,
            rank=rank,
            half=self.half,
        )
        if joint.lora_a is not None:
            own = self.arena.take(_panels(rank) * self._panel(features))
            self._pack(pad(joint.lora_a, (0, 0, 0, rank - len(joint.lora_a))), own, self._panel(features))
            found.lora_a = own.data_ptr()
        return found

    def _pack(self, weight: Tensor, panels: Tensor, step: int) -> None:
        """Copy a matrix [out, in] into panels that begin `step` apart."""
        (out, features), weight = weight.shape, weight.detach()
        if self.half:
            half_products.pack(weight if weight.dtype == torch.bfloat16 else weight.float(), panels, step)
            return
        weight = weight.float().contiguous()
        library().tutelage_pack(
            byref(thread_pool()), weight.data_ptr(), out, features, panels.data_ptr(), step
        )

    def _panel(self, features: int) -> int:
        """Floats, or pairs of numbers in bfloat16, of a panel."""
        return half_products.panel_pairs(features) if self.half else LANES * features

    def _held(self, x: Tensor) -> int:
        """The address of a tensor in float32, which is kept alive."""
        self.held.append(x.detach().float().contiguous())
        return self.held[-1].data_ptr()


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


def _products(layer: Any) -> list[list[Any]]:
    """The projections of a layer, those over the same features together."""
    attention, gate = layer.self_attn, layer.mlp
    return [
        [attention.q_proj, attention.k_proj, attention.v_proj],
        [attention.o_proj],
        [gate.gate_proj, gate.up_proj],
        [gate.down_proj],
    ]


def _rank(layers: Sequence[Linear]) -> int:
    """The rank of all adapters of a product, an even number: panels have pairs of features."""
    rank = sum(layer.rank() for layer in layers)
    return rank + rank % 2


def _panels(out: int) -> int:
    """The number of panels of a matrix with `out` rows."""
    return -(-out // LANES)
