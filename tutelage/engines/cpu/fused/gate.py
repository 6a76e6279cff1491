"""SwiGLU:  y = W_down (silu(g) · u)  (Shazeer 2020, arXiv 2002.05202). Saves g and u for the backward pass."""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import silu

from tutelage.engines.cpu import products
from tutelage.engines.cpu.forward_pass import gradients_are_differentiated
from tutelage.engines.cpu.fused.form import features, wave
from tutelage.engines.cpu.fused.norm import recomputed
from tutelage.engines.cpu.native import elementwise
from tutelage.engines.cpu.native.elementwise import Rows
from tutelage.engines.cpu.weight_gradients import add_product
from tutelage.engines.network import is_one_matrix


class FusedGate:
    """Mixin for a feed-forward module with a gate through SiLU."""

    gate_proj: Callable[[Tensor], Tensor]
    up_proj: Callable[[Tensor], Tensor]
    down_proj: Any

    def forward(self, x: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
        """W_down (silu(W_gate x) · W_up x)"""
        if gradients_are_differentiated():
            out: Tensor = super().forward(x)  # type: ignore[misc]
            return out
        with recomputed(x):
            gate, up = self.gate_proj(x), self.up_proj(x)
        if not torch.is_grad_enabled():
            return self.down_proj(swiglu(gate, up))
        down = self.down_proj
        if is_one_matrix(down) and down.weight.dtype == gate.dtype:
            projected: Tensor = _ProjectedSwiGlu.apply(gate, up, down.weight, down.bias)
            return projected
        return down(_SwiGlu.apply(gate, up))

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Whether `module` is a candidate for the trial."""
        names = {name for name, _ in module.named_children()}
        return names == {"gate_proj", "up_proj", "down_proj", "act_fn"}

    @staticmethod
    def trial(module: Any) -> list[Float[Tensor, "..."]]:
        """The output of `module` for two vectors."""
        weight = next(module.gate_proj.parameters())
        return [module(wave(2, features(module.gate_proj), like=weight))]


class _ProjectedSwiGlu(torch.autograd.Function):
    """p Wᵀ + b with p = silu(g) · u, recomputed in the backward pass; a linear layer would also save p."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(gate, up, weight)
        product = swiglu(gate, up)
        return products.output(product.flatten(0, -2), weight, bias).unflatten(0, product.shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gate, up, weight = ctx.saved_tensors
        flat = grad.flatten(0, -2)
        inner = products.input_gradient(flat, weight).view_as(gate)
        product, to_gate, to_up = gate_gradients(gate, up, inner)
        of_weight, of_bias = ctx.needs_input_grad[2:]
        to_weight = add_product(weight, flat, product.flatten(0, -2)) if of_weight else None
        return to_gate, to_up, to_weight, flat.sum(0) if of_bias else None


def swiglu(gate: Rows, up: Rows) -> Rows:
    """silu(g) · u. With the kernels, the result for a row is bit-identical for any number of rows."""
    return elementwise.swiglu(gate, up) if elementwise.supports(gate, small=True) else silu(gate).mul_(up)


def gate_gradients(gate: Rows, up: Rows, grad: Rows) -> tuple[Rows, Rows, Rows]:
    """p = silu(g) · u, and the gradients of g and u from the gradient of p. `grad` is overwritten."""
    if elementwise.supports(gate):
        return elementwise.gate_gradients(gate, up, grad)
    activated = silu(gate)
    product = activated * up
    to_up = activated.mul_(grad)
    to_gate = grad.mul_(up)
    return product, torch.ops.aten.silu_backward.grad_input(to_gate, gate, grad_input=to_gate), to_up


class _SwiGlu(torch.autograd.Function):
    """silu(g) · u, with silu(g) recomputed in the backward pass."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return swiglu(gate, up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        to_up = silu(gate).mul_(grad)
        inner = grad * up
        return torch.ops.aten.silu_backward.grad_input(inner, gate, grad_input=inner), to_up
