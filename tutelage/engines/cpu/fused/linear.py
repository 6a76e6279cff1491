"""Linear layers as tensors, with the adapter of a layer that has one.

    y = W x + b + s · B A x        (LoRA: Hu et al. 2021, arXiv 2106.09685)

A [r, in] and B [out, r] are trained; W is frozen, so that it needs no gradient.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float
from peft.tuners.lora import Linear as LoraLinear
from torch import Tensor, nn

from tutelage.engines.cpu import products
from tutelage.engines.cpu.decoding_weights import active_adapters, is_matrix
from tutelage.engines.cpu.fused.trial import is_one_matrix, is_unmodified
from tutelage.engines.cpu.gradients import add_product

TENSORS = 4
"""Tensors of a linear layer: W, b, A and B, of which all but W may be None."""


class Linear(NamedTuple):
    """The tensors of a linear layer, and the scale s of its adapter."""

    weight: Float[Tensor, "out in"]
    bias: Float[Tensor, " out"] | None = None
    lora_a: Float[Tensor, "r in"] | None = None
    lora_b: Float[Tensor, "out r"] | None = None
    scale: float = 0.0

    @classmethod
    def of(cls, layer: nn.Module) -> "Linear | None":
        """The tensors of `layer`; None where it computes anything else, or where hooks have to be called."""
        if is_one_matrix(layer):
            return cls(*_matrix(layer))
        if not isinstance(layer, LoraLinear) or not (is_unmodified(layer) and is_matrix(layer)):
            return None
        base = layer.get_base_layer()
        if not is_one_matrix(base):
            return None
        names = active_adapters(layer)
        if not names:
            return cls(*_matrix(base))
        a, b = (cast(nn.Linear, parts[names[0]]) for parts in (layer.lora_A, layer.lora_B))
        plain = all(is_one_matrix(part) and part.bias is None for part in (a, b))
        if len(names) > 1 or not plain or _drops(layer.lora_dropout[names[0]]):
            return None
        return cls(*_matrix(base), a.weight, b.weight, float(layer.scaling[names[0]]))

    def tensors(self) -> list[Float[Tensor, "..."] | None]:
        """W, b, A and B."""
        return [self.weight, self.bias, self.lora_a, self.lora_b]

    def rank(self) -> int:
        """The rank r of the adapter, 0 without one."""
        return 0 if self.lora_a is None else len(self.lora_a)

    def __call__(self, x: Float[Tensor, "N in"]) -> Float[Tensor, "N out"]:
        """y, without a gradient."""
        if self.lora_a is None:
            return products.output(x, self.weight, self.bias)
        inside = products.output(x, self.lora_a)
        return products.output(inside, self.scale * self._b(), self.bias, products.output(x, self.weight))

    def add_to_input(
        self, grad: Float[Tensor, "N out"], total: Float[Tensor, "N in"] | None = None
    ) -> Float[Tensor, "N in"]:
        """The gradient of x from `grad`, that of y, added to `total` where there is one already."""
        to_x = products.input_gradient(grad, self.weight, total)
        if self.lora_a is None:
            return to_x
        return products.input_gradient(grad @ self._b().mul(self.scale), self.lora_a, to_x)

    def gradients(
        self, grad: Float[Tensor, "N out"], x: Float[Tensor, "N in"], wanted: Sequence[bool]
    ) -> list[Float[Tensor, "..."] | None]:
        """The gradients of W, b, A and B from `grad`, that of y.

        None where one is not `wanted`, and where one was added in place (see `tutelage.engines.cpu.gradients`).
        """
        of_weight, of_bias, of_a, of_b = wanted
        return [
            add_product(self.weight, grad, x) if of_weight else None,
            grad.sum(0) if of_bias else None,
            add_product(self._a(), (grad @ self._b()).mul_(self.scale), x) if of_a else None,
            add_product(self._b(), grad, (x @ self._a().T).mul_(self.scale)) if of_b else None,
        ]

    def _a(self) -> Tensor:
        assert self.lora_a is not None
        return self.lora_a

    def _b(self) -> Tensor:
        assert self.lora_b is not None
        return self.lora_b


def linears(scales: Sequence[float], tensors: Sequence[Any]) -> list[Linear]:
    """Linear layers from their scales and their tensors, one layer after the other."""
    return [Linear(*part, scale) for part, scale in zip(by_layer(tensors), scales, strict=True)]  # type: ignore[call-arg]


def by_layer(items: Sequence[Any]) -> list[Sequence[Any]]:
    """What belongs to the tensors of each layer."""
    return [items[start : start + TENSORS] for start in range(0, len(items), TENSORS)]


def _matrix(layer: Any) -> tuple[Tensor, Tensor | None]:
    return layer.weight, layer.bias


def _drops(dropout: nn.Module) -> bool:
    return not isinstance(dropout, nn.Identity) and dropout.training and getattr(dropout, "p", 1.0) > 0


def all_of_type(layers: Sequence[Linear], dtype: torch.dtype) -> bool:
    """Whether all tensors of all layers are of that type."""
    return all(x.dtype == dtype for layer in layers for x in layer.tensors() if x is not None)
