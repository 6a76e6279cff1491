"""Linear layers that read the same tensor as one product in bfloat16, with their adapters.

    y = [W | s B] [x; t] + b        t = A x        (for several layers: W one below the other, s B as blocks, A too)

The columns of s B beside W make an adapter part of the product: its sum is accumulated in float32 with the others, and
the backward pass finds the gradients of x and of t in one product too. Operands are rounded to bfloat16, and so are
t, y and the gradients; biases and gradients of weights are float32. Products of the forward pass are those of decoding
(see `native.half_products`), with the adapters (see `is_decoded`), and those of the backward pass torch's. Prompts are
read for decoding on the panels of the decoding step (see `using_panels`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import torch
from jaxtyping import BFloat16, Float, Float32
from torch import Tensor

from tutelage.engines.cpu.decoding_weights import joint_bias
from tutelage.engines.cpu.fused.linear import Linear
from tutelage.engines.cpu.gradients import add_term
from tutelage.engines.cpu.native.half_products import TILE, PanelLinear

HALF = torch.bfloat16

_laid_out: ContextVar[Mapping[int, PanelLinear]] = ContextVar("laid_out", default=MappingProxyType({}))


@dataclass(frozen=True)
class MixedLinears:
    """Linear layers over the same features. R is the sum of the ranks of their adapters."""

    layers: Sequence[Linear]

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
        """The rows s B of all layers, each B in columns of its own."""
        sizes, ranks = [len(layer.weight) for layer in self.layers], [layer.rank() for layer in self.layers]
        found = self.layers[0].weight.new_zeros(sum(sizes), sum(ranks))
        column = 0
        for rows, layer, rank in zip(found.split(sizes), self.layers, ranks, strict=True):
            if layer.lora_b is not None:
                rows[:, column : column + rank] = layer.scale * layer.lora_b
            column += rank
        return found

    @cached_property
    def lora_a(self) -> BFloat16[Tensor, "R in"] | None:
        """A, rounded; None where no layer has an adapter."""
        adapters = [layer.lora_a for layer in self.layers if layer.lora_a is not None]
        return torch.cat(adapters).to(HALF) if adapters else None

    def panels(
        self, *, alternating: bool = False, allocate: Callable[[int], Float32[Tensor, " _"]] = torch.empty
    ) -> PanelLinear:
        """The layers on panels, with their adapters (see `PanelLinear`)."""
        bias = joint_bias([(layer.weight, layer.bias) for layer in self.layers])
        adapter = None if self.lora_a is None else (self.lora_a, self.columns)
        weights = [layer.weight for layer in self.layers]
        return PanelLinear(weights, bias, adapter, alternating=alternating, allocate=allocate)

    def __call__(
        self, x: BFloat16[Tensor, "N in"]
    ) -> tuple[BFloat16[Tensor, "N out"], BFloat16[Tensor, "N R"] | None]:
        """y of all layers side by side, and t where there are adapters."""
        return (_laid_out.get().get(self.layers[0].weight.data_ptr()) or self.panels())(x)

    def inside(self, x: BFloat16[Tensor, "N in"]) -> BFloat16[Tensor, "N R"] | None:
        """t of all layers side by side; None where no layer has an adapter."""
        return None if self.lora_a is None else PanelLinear([self.lora_a])(x)[0]

    def to_input(
        self, grad: BFloat16[Tensor, "N out"]
    ) -> tuple[BFloat16[Tensor, "N in"], BFloat16[Tensor, "N R"] | None]:
        """The gradients of x and of t from `grad`, that of y."""
        both = grad @ self.matrix
        if self.lora_a is None:
            return both, None
        to_x, to_t = both.split((self.lora_a.shape[1], len(self.lora_a)), 1)
        return torch.addmm(to_x, to_t, self.lora_a), to_t

    def to_tensors(
        self,
        grad: BFloat16[Tensor, "N out"],
        x: BFloat16[Tensor, "N in"],
        t: BFloat16[Tensor, "N R"] | None,
        to_t: BFloat16[Tensor, "N R"] | None,
        wanted: Sequence[Sequence[bool]],
    ) -> list[Float[Tensor, "..."] | None]:
        """The gradients of W, b, A and B of each layer from those of y and t.

        None where one is not `wanted`, and where one was added in place.
        """
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


@contextmanager
def using_panels(panels: Mapping[int, PanelLinear]) -> Iterator[None]:
    """Inside, the outputs of `MixedLinears` are computed on these panels, which are looked up by the address of the
    first weight; on new ones where there are none. The weights do not change inside."""
    token = _laid_out.set(panels)
    try:
        yield
    finally:
        _laid_out.reset(token)


def is_decoded(layer: Linear) -> bool:
    """Whether a decoding step computes the adapter of `layer`, if any, as the forward pass does: beside W.

    Elsewhere it is merged with W, whose sum is rounded. Features of x have to be whole tiles.
    """
    return layer.lora_a is None or layer.weight.shape[1] % TILE == 0
