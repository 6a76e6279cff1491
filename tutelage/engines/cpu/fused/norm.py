"""RMSNorm:  y = w · x · r,  r = (mean x² + ε)^-½  (Zhang & Sennrich 2019, arXiv 1910.07467). Keeps x and r."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.autograd.graph import saved_tensors_hooks

from tutelage.engines.cpu.attention_interface import gradients_are_differentiated
from tutelage.engines.cpu.fused.trial import wave
from tutelage.engines.cpu.native import passes


class LeanNorm:
    """Mixed into a module that normalises by the root mean square and has one weight for each feature."""

    weight: Tensor

    def forward(self, x: Tensor) -> Tensor:
        if gradients_are_differentiated() or x.dtype != self.weight.dtype or x.dtype.itemsize < 4:
            normed: Tensor = super().forward(x)  # type: ignore[misc]
            return normed
        if torch.is_grad_enabled():
            scaled, r = _RmsNorm.apply(x, self.weight, epsilon_of(self))
            scaled.made_from = (x.detach(), r, self.weight)  # see `made_again`
            return cast(Tensor, scaled)
        return rms_norm(x, self.weight, epsilon_of(self))[0]

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Whether it might be one."""
        weights = list(module.named_parameters())
        lonely = len(weights) == 1 and not any(module.children()) and not any(module.buffers())
        return (
            lonely
            and weights[0][0] == "weight"
            and weights[0][1].dim() == 1
            and epsilon_of(module) is not None
        )

    @staticmethod
    def trial(module: Any) -> list[Tensor]:
        """What it makes of two vectors, also with weights that are not all one."""
        weight, x = module.weight, wave(2, len(module.weight), of=module.weight)
        kept = weight.clone()
        try:
            return [module(x), module(x * weight.copy_(wave(len(weight), of=weight)))]
        finally:
            weight.copy_(kept)


def epsilon_of(module: Any) -> Any:
    """The ε of a norm, by whatever name; None where there is none."""
    return getattr(module, "variance_epsilon", getattr(module, "eps", None))


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """(y, r). Float[..., d], Float[d] → Float[..., d], Float[..., 1]"""
    r = reciprocal_rms(x, epsilon)
    return scaled(x, r, weight), r


def scaled(x: Tensor, r: Tensor, weight: Tensor) -> Tensor:
    """x · r · w. Float[..., d], Float[..., 1], Float[d]"""
    return passes.scaled_rows(x, r, weight) if passes.serve(x) else (x * r).mul_(weight)


def reciprocal_rms(x: Tensor, epsilon: float) -> Tensor:
    """r. Float[..., d] → Float[..., 1]"""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return length.square_().div_(x.shape[-1]).add_(epsilon).rsqrt_()


def rms_norm_gradients(
    grad: Tensor, x: Tensor, weight: Tensor, r: Tensor, more: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """With n = x · r and g the gradient of y:  ∂x = r · (g · w − n · mean(g · w · n)),  ∂w = Σ g · n.

    Float[..., d] each but ∂w, Float[d]. `more` is added to ∂x.
    """
    if passes.serve(x):
        return passes.norm_gradients(grad, x, r, weight, more)
    normed = x * r
    product = grad * normed
    to_weight = product.flatten(0, -2).sum(0)
    along = (product @ weight).div_(len(weight)).unsqueeze(-1)
    to_x = torch.mul(grad, weight, out=product).addcmul_(normed, along, value=-1).mul_(r)
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
def made_again(y: Tensor) -> Iterator[None]:
    """Inside, who wants to keep y, which came of a norm, keeps how to make it: the norm has kept what that takes."""
    made_from = getattr(y, "made_from", None)
    if made_from is None or not torch.is_grad_enabled():
        yield
        return
    again = _Again(made_from)

    def pack(x: Tensor) -> object:
        same = x.numel() == y.numel() and x.data_ptr() == y.data_ptr() and x.is_contiguous()
        return again.kept(x.shape) if same else x

    with saved_tensors_hooks(pack, lambda held: held if isinstance(held, Tensor) else held()):
        yield


class _Again:
    """The output of a norm, made for the first who asks for it in the backward pass and held until the last has."""

    def __init__(self, made_from: tuple[Tensor, Tensor, Tensor]) -> None:
        self.made_from, self.waiting = made_from, 0
        self.y: Tensor | None = None

    def kept(self, shape: torch.Size) -> Callable[[], Tensor]:
        """What to call for it, in a shape."""
        self.waiting += 1
        return lambda: self._given().view(shape)

    def _given(self) -> Tensor:
        x, r, weight = self.made_from
        y = scaled(x, r, weight) if self.y is None else self.y
        self.waiting -= 1
        self.y = y if self.waiting > 0 else None
        return y
