"""Loss and explained variance of the critic."""

import torch
from jaxtyping import Float
from torch import Tensor

from tutelage.core.reduce import masked_var
from tutelage.core.shapes import PerToken, Scalar, TokenMask


def value_loss(
    value: Float[Tensor, "*shape"],
    old_value: Float[Tensor, "*shape"],
    target: Float[Tensor, "*shape"],
    clip: float | None,
) -> Float[Tensor, "*shape"]:
    """½ max((V − target)², (V_clipped − target)²), V_clipped = V_old + clip(V − V_old, ±clip).

    Without `clip` it is ½ (V − target)². Clipping follows OpenAI's 2017 baselines and lm-human-preferences.
    """
    error = (value - target) ** 2
    if clip is not None:
        near = old_value + (value - old_value).clamp(-clip, clip)
        error = torch.maximum(error, (near - target) ** 2)
    return 0.5 * error


def explained_variance(value: PerToken, target: PerToken, mask: TokenMask) -> Scalar:
    """1 − Var(target − V) / Var(target) over the unmasked tokens: 1 is perfect, 0 a constant, below 0 harmful.

    nan if the target is constant.
    """
    variance = masked_var(target, mask)
    residual = masked_var(target - value, mask)
    return torch.where(variance > 0, 1 - residual / torch.where(variance > 0, variance, 1.0), torch.nan)
