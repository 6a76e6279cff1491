"""What the critic minimises, and how well it does."""

import torch
from torch import Tensor

from tutelage.core.reduce import masked_var


def value_loss(value: Tensor, old_value: Tensor, target: Tensor, clip: float | None) -> Tensor:
    """½ max((V − target)², (V_clipped − target)²), V_clipped = V_old + clip(V − V_old, ±clip). [B, R] -> [B, R]

    Without `clip` it is ½ (V − target)². Clipping is that of OpenAI's 2017 baselines, kept by
    lm-human-preferences.
    """
    error = (value - target) ** 2
    if clip is not None:
        near = old_value + (value - old_value).clamp(-clip, clip)
        error = torch.maximum(error, (near - target) ** 2)
    return 0.5 * error


def explained_variance(value: Tensor, target: Tensor, mask: Tensor) -> Tensor:
    """1 − Var(target − V) / Var(target) over the unmasked tokens: 1 is perfect, 0 a constant, below 0 harmful.

    nan where the target does not vary: there is nothing to explain.
    """
    variance = masked_var(target, mask)
    left = masked_var(target - value, mask)
    return torch.where(variance > 0, 1 - left / torch.where(variance > 0, variance, 1.0), torch.nan)
