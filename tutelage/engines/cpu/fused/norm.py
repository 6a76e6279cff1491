"""RMSNorm:  y = w · x · r,  r = (mean x² + ε)^-½  (Zhang & Sennrich 2019, arXiv 1910.07467). Saves x and r."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.autograd.graph import saved_tensors_hooks

from tutelage.engines.cpu.forward_pass import gradients_are_differentiated
from tutelage.engines.cpu.fused.form import wave
from tutelage.engines.cpu.native import elementwise
from tutelage.engines.cpu.native.elementwise import Rows, Scale, Weight
from tutelage.engines.network import epsilon_of


class FusedNorm:
    """Mixin for a root-mean-square norm with one weight per feature."""

    weight: Tensor

    def forward(self, x: Rows, *more: Any) -> Rows:
        """w · x · r. Without gradients, the weight may have lower precision than x. With `more` inputs, such as a gate,
        the original code."""
        if more:
            original: Tensor = super().forward(x, *more)  # type: ignore[misc]
            return original
        weight = self.weight if torch.is_grad_enabled() else self.weight.to(x.dtype)
        if gradients_are_differentiated() or x.dtype != weight.dtype or x.dtype.itemsize < 4:
            normed: Tensor = super().forward(x)  # type: ignore[misc]
            return normed
        if torch.is_grad_enabled():
            scaled, r = _RmsNorm.apply(x, weight, epsilon_of(self))
            scaled.norm_inputs = (x.detach(), r, self.weight)  # see `recomputed`
            return cast(Tensor, scaled)
        return rms_norm(x, weight, epsilon_of(self))[0]

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Whether `module` is a candidate for the trial."""
        weights = list(module.named_parameters())
        has_more = [*module.children(), *module.buffers()]
        is_leaf = len(weights) == 1 and not has_more and isinstance(epsilon_of(module), float)
        return is_leaf and weights[0][0] == "weight" and weights[0][1].dim() == 1

    @staticmethod
    def trial(module: Any) -> list[Float[Tensor, "..."]]:
        """The outputs of `module` for two vectors, with its own weights and with weights that differ from one."""
        weight, x = module.weight, wave(2, len(module.weight), like=module.weight)
        original = weight.clone()
        try:
            return [module(x), module(x * weight.copy_(wave(len(weight), like=weight)))]
        finally:
            weight.copy_(original)


def rms_norm(x: Rows, weight: Weight, epsilon: float) -> tuple[Rows, Scale]:
    """y and r of RMSNorm. With the kernels, the result for a row is bit-identical for any number of rows."""
    if elementwise.supports(x, small=True):
        return elementwise.rms_norm(x, weight, epsilon)
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    r = length.square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()
    return scaled(x, r, weight), r


def scaled(x: Rows, r: Scale, weight: Weight) -> Rows:
    """x · r · w"""
    return elementwise.scaled_rows(x, r, weight) if elementwise.supports(x) else (x * r).mul_(weight)


def rms_norm_gradients(grad: Rows, x: Rows, weight: Weight, r: Scale, more: Rows | None = None) -> tuple[Rows, Weight]:
    """The gradients of x and w of RMSNorm from g = `grad`, the gradient of y. With n = x · r:

    ∂x = r · (g · w − n · mean(g · w · n)) + `more`        ∂w = Σ g · n
    """
    if elementwise.supports(x):
        return elementwise.norm_gradients(grad, x, r, weight, more)
    normed = x * r
    product = grad * normed
    to_weight = product.flatten(0, -2).sum(0)
    projection = (product @ weight).div_(len(weight)).unsqueeze(-1)
    to_x = torch.mul(grad, weight, out=product).addcmul_(normed, projection, value=-1).mul_(r)
    return to_x if more is None else to_x.add_(more), to_weight


class _RmsNorm(torch.autograd.Function):
    """`rms_norm` with `rms_norm_gradients`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        y, r = rms_norm(x, weight, epsilon)
        ctx.save_for_backward(x, weight, r)
        ctx.mark_non_differentiable(r)
        return y, r

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
        x, weight, r = ctx.saved_tensors
        to_x, to_weight = rms_norm_gradients(grad, x, weight, r)
        return to_x, to_weight, None


@contextmanager
def recomputed(y: Float[Tensor, "..."]) -> Iterator[None]:
    """Context in which operations save a recipe for recomputing `y`, the output of a fused norm, instead of `y` itself.

    The norm already saves the required inputs. Tensors that are no outputs of a fused norm are saved as usual.
    """
    norm_inputs = getattr(y, "norm_inputs", None)
    if norm_inputs is None or not torch.is_grad_enabled():
        yield
        return
    output = _NormOutput(norm_inputs)

    def pack(x: Tensor) -> object:
        same = x.numel() == y.numel() and x.data_ptr() == y.data_ptr() and x.is_contiguous()
        return output.view(x.shape) if same else x

    with saved_tensors_hooks(pack, lambda held: held if isinstance(held, Tensor) else held()):
        yield


class _NormOutput:
    """The output of a norm, recomputed at its first use in the backward pass and freed after its last."""

    def __init__(self, norm_inputs: tuple[Tensor, Tensor, Tensor]) -> None:
        self.norm_inputs, self.uses = norm_inputs, 0
        self.y: Tensor | None = None

    def view(self, shape: torch.Size) -> Callable[[], Tensor]:
        """A function that returns the output in `shape`. It counts as one use and must be called once."""
        self.uses += 1
        return lambda: self._use().view(shape)

    def _use(self) -> Tensor:
        x, r, weight = self.norm_inputs
        y = scaled(x, r, weight) if self.y is None else self.y
        self.uses -= 1
        self.y = y if self.uses > 0 else None
        return y
