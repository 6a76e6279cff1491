"""What layers are tried on, to see whether they compute what is written in this package."""

from typing import Any

import torch
from torch import Tensor, nn

TOLERANCE = 1e-5
"""How far a trial may be from the layer's own result, relative to its largest number."""


def wave(*shape: int, of: Tensor) -> Tensor:
    """Numbers like those of a hidden state, the same every time."""
    count = torch.Size(shape).numel()
    return torch.arange(1.0, count + 1, device=of.device).mul(0.7).sin().mul(2).view(shape).to(of.dtype)


def features(layer: Any) -> int:
    return int(layer.in_features)


def is_one_matrix(layer: nn.Module) -> bool:
    """Whether x Wᵀ + b is all that happens when it is called."""
    return type(layer) is nn.Linear and is_unheard(layer)


def is_unheard(layer: nn.Module) -> bool:
    """Whether nobody hooked into it, or replaced what it does."""
    replaced = "forward" in vars(layer)
    return not (replaced or is_listened_to(layer) or layer._backward_hooks or layer._backward_pre_hooks)


def is_listened_to(layer: nn.Module) -> bool:
    """Whether somebody wants to know when it is called."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks)
