"""SwiGLU:  y = W_down (silu(g) · u)  (Shazeer 2020, arXiv 2002.05202). Keeps g and u."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear, silu

from tutelage.engines.cpu.attention_interface import gradients_are_differentiated
from tutelage.engines.cpu.fused.norm import made_again
from tutelage.engines.cpu.fused.trial import features, is_one_matrix, wave
from tutelage.engines.cpu.gradients import add_product
from tutelage.engines.cpu.native import passes


class LeanGate:
    """Mixed into a feed-forward module with a gate through SiLU."""

    gate_proj: Callable[[Tensor], Tensor]
    up_proj: Callable[[Tensor], Tensor]
    down_proj: Any

    def forward(self, x: Tensor) -> Tensor:
        if gradients_are_differentiated():
            out: Tensor = super().forward(x)  # type: ignore[misc]
            return out
        with made_again(x):
            gate, up = self.gate_proj(x), self.up_proj(x)
        if not torch.is_grad_enabled():
            return self.down_proj(silu(gate).mul_(up))
        down = self.down_proj
        if is_one_matrix(down) and down.weight.dtype == gate.dtype:
            lowered: Tensor = _LoweredSwiGlu.apply(gate, up, down.weight, down.bias)
            return lowered
        return down(_SwiGlu.apply(gate, up))

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Whether it might be one."""
        return {name for name, _ in module.named_children()} == {
            "gate_proj",
            "up_proj",
            "down_proj",
            "act_fn",
        }

    @staticmethod
    def trial(module: Any) -> list[Tensor]:
        """What it makes of two vectors."""
        weight = next(module.gate_proj.parameters())
        return [module(wave(2, features(module.gate_proj), of=weight))]


class _LoweredSwiGlu(torch.autograd.Function):
    """p Wᵀ + b with p = silu(g) · u, of which W would keep a third copy: it is computed again for the backward pass."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(gate, up, weight)
        return linear(silu(gate).mul_(up), weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        gate, up, weight = ctx.saved_tensors
        return lowered_swiglu_gradients(grad, gate, up, weight, ctx.needs_input_grad[2:])


def lowered_swiglu_gradients(
    grad: Tensor, gate: Tensor, up: Tensor, weight: Tensor, wants: tuple[bool, bool]
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """Of g, u, and as far as they are wanted W and b, from that of y = (silu(g) · u) Wᵀ + b."""
    flat, inner = grad.flatten(0, -2), grad @ weight
    product, to_gate, to_up = gate_gradients(gate, up, inner)
    to_weight = add_product(weight, flat.T, product.flatten(0, -2)) if wants[0] else None
    return to_gate, to_up, to_weight, flat.sum(0) if wants[1] else None


def gate_gradients(gate: Tensor, up: Tensor, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """p = silu(g) · u, and the gradients of g and u from that of p, which is used up. Float[..., m] each"""
    if passes.serve(gate):
        return passes.gate_gradients(gate, up, grad)
    through = silu(gate)
    product = through * up
    to_up = through.mul_(grad)
    to_gate = grad.mul_(up)
    return product, torch.ops.aten.silu_backward.grad_input(to_gate, gate, grad_input=to_gate), to_up


class _SwiGlu(torch.autograd.Function):
    """silu(g) · u, with silu(g) computed again for the backward pass."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return silu(gate).mul_(up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        to_up = silu(gate).mul_(grad)
        inner = grad * up
        return torch.ops.aten.silu_backward.grad_input(inner, gate, grad_input=inner), to_up
