"""Linear layers with a common input, their adapters, and their gradients in both precisions.

    y = W x + b + s · B A x        (LoRA: Hu et al. 2021, arXiv 2106.09685)

A [r, in] and B [out, r] are trained; W is frozen if there is an adapter, so it needs no gradient. `ExactLinears`
computes in the dtype of the tensors, layer by layer. `MixedLinears` computes all layers as one product in bfloat16:

    y = [W | s B] [x; t] + b    t = A x        (several layers: W and A stacked, s B block-diagonal)

With the columns s B beside W, the adapter is part of the product: its terms are accumulated in float32 with the others,
and the backward pass computes the gradients of x and t in one product too. Operands are rounded to bfloat16, and so are
t, y and the gradients; biases and gradients of weights are float32. The forward pass uses the products of decoding (see
`native.matrix_products`), including adapters (see `is_decoded`); the backward pass uses torch's. When decoding, prompts
are read with the panels of the decoding step (see `ForwardPass.panels`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import BFloat16, Float, Float32
from torch import Tensor, nn

from tutelage.engines.cpu import products
from tutelage.engines.cpu.decoding_weights import joint_bias
from tutelage.engines.cpu.forward_pass import current
from tutelage.engines.cpu.native.matrix_products import TILE, PanelLinear, Panels
from tutelage.engines.cpu.weight_gradients import add_product, add_term
from tutelage.engines.network import LinearTensors, UnsupportedModel

HALF = torch.bfloat16
TENSORS = 4
"""Tensors of a linear layer: W, b, A and B; all except W may be None."""

Inputs = Float[Tensor, "N in"]
Outputs = Sequence[Float[Tensor, "N _"]]
"""y or its gradient: one tensor per layer, or one for all layers."""
Inside = BFloat16[Tensor, "N R"] | None
"""t of all layers side by side, if there are adapters."""
TensorGradients = list[Float[Tensor, "..."] | None]
"""Gradients of W, b, A and B of layers; None for those not required or accumulated in place (see
`tutelage.engines.cpu.weight_gradients`)."""
Wanted = Sequence[Sequence[bool]]
"""Flags for the required gradients of W, b, A and B of each layer."""


class AdaptedLinear(LinearTensors):
    """The tensors of a linear layer, and its computation."""

    __slots__ = ()

    def tensors(self) -> list[Float[Tensor, "..."] | None]:
        """W, b, A and B."""
        return [self.weight, self.bias, self.lora_a, self.lora_b]

    def rank(self) -> int:
        """The rank r of the adapter, 0 without one."""
        return 0 if self.lora_a is None else len(self.lora_a)

    def __call__(self, x: Float[Tensor, "N in"]) -> Float[Tensor, "N out"]:
        """y, without a gradient."""
        if self.lora_a is None or self.lora_b is None:
            return products.output(x, self.weight, self.bias)
        inside = products.output(x, self.lora_a)
        return products.output(inside, self.scale * self.lora_b, self.bias, products.output(x, self.weight))

    def add_to_input(self, grad: Float[Tensor, "N out"], total: Inputs | None = None) -> Inputs:
        """The gradient of x from `grad`, the gradient of y, added to `total` if given."""
        to_x = products.input_gradient(grad, self.weight, total)
        if self.lora_a is None or self.lora_b is None:
            return to_x
        to_inside = products.input_gradient(grad, self.lora_b.mul(self.scale))
        return products.input_gradient(to_inside, self.lora_a, to_x)

    def gradients(self, grad: Float[Tensor, "N out"], x: Inputs, wanted: Sequence[bool]) -> TensorGradients:
        """The gradients of W, b, A and B from `grad`, the gradient of y."""
        weight, bias, a, b = wanted
        found = [add_product(self.weight, grad, x) if weight else None, grad.sum(0) if bias else None]
        if self.lora_a is None or self.lora_b is None:
            return [*found, None, None]
        to_inside = products.input_gradient(grad, self.lora_b.mul(self.scale)) if a else None
        to_a = None if to_inside is None else add_product(self.lora_a, to_inside, x)
        inside = products.output(x, self.lora_a).mul_(self.scale) if b else None
        return [*found, to_a, None if inside is None else add_product(self.lora_b, grad, inside)]


@dataclass(frozen=True)
class ExactLinears:
    """Linear layers with a common input, computed one by one. y is a tuple with one tensor per layer."""

    layers: Sequence[AdaptedLinear]
    has_inside = False
    """Whether `inside` must be saved for the gradients."""

    def __call__(self, x: Inputs) -> tuple[Outputs, None]:
        """y of each layer. No other tensor is needed for the gradients."""
        return tuple(layer(x) for layer in self.layers), None

    def inside(self, x: Inputs) -> None:
        """See `MixedLinears.inside`; always None."""

    def to_input(self, grads: Outputs) -> tuple[Inputs, None]:
        """The gradient of x from the gradients of y."""
        total: Tensor | None = None
        for layer, grad in zip(self.layers, grads, strict=True):
            total = layer.add_to_input(grad, total)
        assert total is not None
        return total, None

    def to_tensors(self, grads: Outputs, x: Inputs, t: None, to_t: None, wanted: Wanted) -> TensorGradients:
        """The gradients of W, b, A and B of each layer (see `AdaptedLinear.gradients`)."""
        parts = zip(self.layers, grads, wanted, strict=True)
        return [found for layer, grad, own in parts for found in layer.gradients(grad, x, own)]


@dataclass(frozen=True)
class MixedLinears:
    """Linear layers with a common input as one product. y is a tuple of one tensor with the layers side by side. R is
    the sum of the ranks of their adapters."""

    layers: Sequence[AdaptedLinear]

    @cached_property
    def matrix(self) -> BFloat16[Tensor, "out in_R"]:
        """[W | s B], rounded."""
        features = self.layers[0].weight.shape[1]
        columns = self.columns
        matrix = columns.new_empty(len(columns), features + columns.shape[1], dtype=HALF)
        matrix[:, features:] = columns
        rows = matrix.split([len(layer.weight) for layer in self.layers])
        for part, layer in zip(rows, self.layers, strict=True):
            part[:, :features] = layer.weight
        return matrix

    @cached_property
    def columns(self) -> Float[Tensor, "out R"]:
        """The rows s B of all layers."""
        return columns_of(self.layers)

    @property
    def has_inside(self) -> bool:
        """See `ExactLinears.has_inside`; true if a layer has an adapter."""
        return self.lora_a is not None

    @cached_property
    def lora_a(self) -> BFloat16[Tensor, "R in"] | None:
        """A, rounded; None if no layer has an adapter."""
        adapters = [layer.lora_a for layer in self.layers if layer.lora_a is not None]
        return torch.cat(adapters).to(HALF) if adapters else None

    def __call__(self, x: Inputs) -> tuple[Outputs, Inside]:
        """y, and t if there are adapters."""
        y, t = (current().panels.get(self.layers[0].weight.data_ptr()) or self._panels())(x)
        return (y,), t

    def _panels(self) -> PanelLinear:
        panels = panels_of_layers(self.layers, half=True)
        assert isinstance(panels, PanelLinear)
        return panels

    def inside(self, x: Inputs) -> Inside:
        """t of all layers side by side; None if no layer has an adapter."""
        return None if self.lora_a is None else PanelLinear([self.lora_a])(x)[0]

    def to_input(self, grads: Outputs) -> tuple[Inputs, Inside]:
        """The gradients of x and t from the gradient of y."""
        both = grads[0] @ self.matrix
        if self.lora_a is None:
            return both, None
        to_x, to_t = both.split((self.lora_a.shape[1], len(self.lora_a)), 1)
        return torch.addmm(to_x, to_t, self.lora_a), to_t

    def to_tensors(self, grads: Outputs, x: Inputs, t: Inside, to_t: Inside, wanted: Wanted) -> TensorGradients:
        """The gradients of W, b, A and B of each layer from the gradients of y and t."""
        (grad,) = grads
        sizes = [len(layer.weight) for layer in self.layers]
        nothing: list[Tensor | None] = [None] * len(sizes)
        to_weights = (grad.T @ x).split(sizes) if any(each[0] for each in wanted) else nothing
        ranks = [layer.rank() for layer in self.layers]
        to_a = nothing if to_t is None else (to_t.T @ x).split(ranks)
        inside = nothing if t is None else t.split(ranks, 1)
        found: list[Tensor | None] = []
        for layer, of_weight, of_a, part, t_part, (weight, bias, a, b) in zip(
            self.layers, to_weights, to_a, grad.split(sizes, 1), inside, wanted, strict=True
        ):
            found.append(add_term(layer.weight, of_weight) if weight and of_weight is not None else None)
            found.append(part.sum(0, dtype=torch.float32) if bias else None)
            found.append(add_term(layer.lora_a, of_a) if a and layer.lora_a is not None else None)
            if b and layer.lora_b is not None and t_part is not None:
                found.append(add_term(layer.lora_b, (part.T @ t_part).mul_(layer.scale)))
            else:
                found.append(None)
        return found


def adapted_linears(layers: Sequence[nn.Module]) -> list[AdaptedLinear] | None:
    """The tensors of linear layers; None unless all are (see `LinearTensors.of`)."""
    try:
        return list(map(AdaptedLinear.of, layers))
    except UnsupportedModel:
        return None


def linears(scales: Sequence[float], tensors: Sequence[Any]) -> list[AdaptedLinear]:
    """Linear layers from their scales and concatenated tensors."""
    return [AdaptedLinear(*part, scale) for part, scale in zip(by_layer(tensors), scales, strict=True)]  # type: ignore[call-arg]


def columns_of(layers: Sequence[AdaptedLinear]) -> Float[Tensor, "out R"]:
    """The rows s B of layers with a common input, as a block-diagonal matrix."""
    sizes, ranks = [len(layer.weight) for layer in layers], [layer.rank() for layer in layers]
    columns = layers[0].weight.new_zeros(sum(sizes), sum(ranks))
    column = 0
    for rows, layer, rank in zip(columns.split(sizes), layers, ranks, strict=True):
        if layer.lora_b is not None:
            rows[:, column : column + rank] = layer.scale * layer.lora_b
        column += rank
    return columns


def panels_of_layers(
    layers: Sequence[AdaptedLinear],
    *,
    half: bool,
    alternating: bool = False,
    allocate: Callable[[int], Float32[Tensor, " _"]] = torch.empty,
) -> Panels:
    """Layers with a common input on panels, with their adapters; a `PanelLinear` if `half`."""
    bias = joint_bias([(layer.weight, layer.bias) for layer in layers])
    adapters = [layer.lora_a for layer in layers if layer.lora_a is not None]
    adapter = (torch.cat(adapters), columns_of(layers)) if adapters else None
    weights, kind = [layer.weight for layer in layers], PanelLinear if half else Panels
    return kind(weights, bias, adapter, alternating=alternating, allocate=allocate)


def by_layer(items: Sequence[Any]) -> list[Sequence[Any]]:
    """The items, one per tensor, grouped by layer."""
    return [items[start : start + TENSORS] for start in range(0, len(items), TENSORS)]


def all_of_type(layers: Sequence[AdaptedLinear], dtype: torch.dtype) -> bool:
    """Whether all tensors of all layers have the dtype."""
    return all(x.dtype == dtype for layer in layers for x in layer.tensors() if x is not None)


def is_decoded(layer: AdaptedLinear) -> bool:
    """Whether a bfloat16 decoding step computes the adapter of `layer`, if any, as the forward pass does: beside W.

    Otherwise the adapter is merged with W, which rounds the sum. Features of x must fill whole tiles.
    """
    return layer.lora_a is None or layer.weight.shape[1] % TILE == 0
