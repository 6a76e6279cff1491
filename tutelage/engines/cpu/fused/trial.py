"""Inputs on which layers are tried, and the state in which a layer may be replaced by its fused form."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

TOLERANCE = 1e-5
"""The largest difference of a fused form from the layer itself, relative to the largest number."""

HALF_TOLERANCE = 0.1
"""The same of a whole model in bfloat16, whose layers were tried in float32: some hundred roundings by 2⁻⁹ in the root
mean square."""


def wave(*shape: int, like: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Numbers of the size of hidden states in a given shape, with the device and type of `like`; not random."""
    count = torch.Size(shape).numel()
    return torch.arange(1.0, count + 1, device=like.device).mul(0.7).sin().mul(2).view(shape).to(like.dtype)


def features(layer: Any) -> int:
    """The number of features that a linear layer reads."""
    return int(layer.in_features)


def is_one_matrix(layer: nn.Module) -> bool:
    """Whether calling `layer` computes x Wᵀ + b and nothing else."""
    return type(layer) is nn.Linear and is_unmodified(layer)


def is_unmodified(layer: nn.Module) -> bool:
    """Whether `layer` has no hooks and the `forward` of its class."""
    replaced = "forward" in vars(layer)
    return not (replaced or has_forward_hooks(layer) or layer._backward_hooks or layer._backward_pre_hooks)


def has_forward_hooks(layer: nn.Module) -> bool:
    """Whether hooks are called before or after the forward pass of `layer`."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks)
