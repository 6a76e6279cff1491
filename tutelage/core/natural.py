"""Natural-gradient steps (Kakade 2001) and the trust region of TRPO (Schulman et al. 2015), over flat
vectors.

    maximise g·d  subject to  ½ dᵀ F d ≤ δ        d = √(2δ / xᵀFx) x,   F x = g

F is the Fisher matrix, the Hessian of KL(old‖π) at π = old, used only through products v ↦ F v.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

Vector: TypeAlias = Float[Tensor, " N"]
Product = Callable[[Vector], Vector]


def conjugate_gradient(product: Product, g: Vector, iterations: int, tolerance: float = 1e-10) -> Vector:
    """x with A x ≈ g for a symmetric positive definite A given by `product` (Hestenes & Stiefel 1952). [N]
    -> [N]

    Stops after `iterations` products or when |A x − g|² falls below `tolerance` · |g|².
    """
    x = torch.zeros_like(g)
    residual, direction = g.clone(), g.clone()
    squared = residual @ residual
    goal = tolerance * squared
    for _ in range(iterations):
        if squared <= goal:
            break
        a_direction = product(direction)
        curvature = direction @ a_direction
        if curvature <= 0:
            break
        length = squared / curvature
        x = x + length * direction
        residual = residual - length * a_direction
        before, squared = squared, residual @ residual
        direction = residual + (squared / before) * direction
    return x


def natural_direction(product: Product, g: Vector, *, max_kl: float, damping: float, iterations: int) -> Vector:
    """d = √(2δ / xᵀ(F + λI)x) x with (F + λI) x = g, so that ½ dᵀ(F + λI) d = δ = `max_kl`. [N] -> [N]

    `product` is v ↦ F v without the damping λ. As in TRPO, the damping is included in the length, so the KL of the step
    is below δ to second order. A gradient of 0 gives a step of 0.
    """

    def damped(v: Vector) -> Vector:
        return product(v) + damping * v

    x = conjugate_gradient(damped, g, iterations)
    curvature = x @ damped(x)
    return x * torch.where(curvature > 0, torch.sqrt(2 * max_kl / curvature.clamp(min=1e-30)), 0.0)


@dataclass(frozen=True)
class LineSearchResult:
    """The share of a step accepted by a line search, with its measurements."""

    share: float  # of the full step; 0 if none was accepted
    improvement: float  # of the objective, relative to before the step
    kl: float  # KL(old‖π)
    tried: int  # number of shares evaluated


def line_search(
    evaluate: Callable[[float], tuple[float, float]], *, max_kl: float, backtracks: int, decay: float
) -> LineSearchResult:
    """The largest share decayʲ of a step, j = 0 … backtracks, that improves the surrogate within the KL bound.

    `evaluate(share)` moves the policy by that share and returns (improvement of the surrogate, KL(old‖π)). Non-finite
    values are rejected. If no share is accepted, the result has share 0 and the caller must restore the parameters.
    """
    for j in range(backtracks + 1):
        share = decay**j
        improvement, kl = evaluate(share)
        if improvement > 0 and kl <= max_kl:  # false for nan
            return LineSearchResult(share, improvement, kl, j + 1)
    return LineSearchResult(0.0, 0.0, 0.0, backtracks + 1)
