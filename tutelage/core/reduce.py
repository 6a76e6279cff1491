"""Masked means, variances and token weights."""

from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from tutelage.core.shapes import PerRow, PerToken, Scalar, TokenMask

Reduce = Literal["token_mean", "sequence_mean", "sequence_sum", "fixed_length"]


def masked_mean(x: Float[Tensor, "*shape"], mask: Bool[Tensor, "*shape"]) -> Scalar:
    """Mean of `x` where `mask` is true; 0 for an empty mask. [...] -> []"""
    return torch.where(mask, x, 0.0).sum() / mask.sum().clamp(min=1)


def masked_var(x: Float[Tensor, "*shape"], mask: Bool[Tensor, "*shape"]) -> Scalar:
    """Population variance of `x` where `mask` is true (divides by n, not n − 1). [...] -> []"""
    return masked_mean((x - masked_mean(x, mask)) ** 2, mask)


def whiten(
    x: Float[Tensor, "*shape"], mask: Bool[Tensor, "*shape"], *, shift_mean: bool = True
) -> Float[Tensor, "*shape"]:
    """(x − mean) / std over the unmasked entries, 0 elsewhere; `shift_mean=False` keeps the mean.

    The 1e-8 inside the root is that of OpenAI's lm-human-preferences (2019).
    """
    mean = masked_mean(x, mask)
    white = (x - mean) * torch.rsqrt(masked_var(x, mask) + 1e-8)
    return torch.where(mask, white if shift_mean else white + mean, 0.0)


def token_weights(
    mask: TokenMask, how: Reduce, max_length: int = 0, *, rows: float | None = None, tokens: float | None = None
) -> PerToken:
    """The weight w of every token, such that loss = −(w · objective).sum() is exactly additive over any split of the
    rows.

        token_mean      1 / tokens in the batch                   every token counts the same
        sequence_mean   1 / (length · rows)                       every completion counts the same
        sequence_sum    1 / rows                                  the policy gradient as it is derived
        fixed_length    1 / (max_length · rows)                   the same, scaled by a constant (Dr. GRPO)

    Compute them once per optimiser step over the global batch, then split. If a process has only part of the batch,
    `rows` and `tokens` are the global counts. `rows` counts completions of at least one token: an empty completion has
    weight 0. [B, R] -> [B, R]
    """
    length = mask.sum(-1, keepdim=True)
    if rows is None:
        rows = float((length > 0).sum())
    if tokens is None:
        tokens = float(length.sum())
    if how == "token_mean":
        return mask / max(tokens, 1.0)
    if how == "sequence_mean":
        return mask / length.clamp(min=1) / max(rows, 1.0)
    if how == "sequence_sum":
        return mask / max(rows, 1.0)
    if how == "fixed_length":
        if max_length < 1:
            raise ValueError(
                f"fixed_length divides by the limit on response tokens, but max_length is {max_length}. "
                "Give the limit that sampling uses (never the width of the padding)."
            )
        return mask / (max_length * max(rows, 1.0))
    raise ValueError(f"reduce={how!r} is not known; choose one of {', '.join(get_args(Reduce))}.")


def at_last_token(score: PerRow, mask: TokenMask) -> PerToken:
    """Per-token rewards with the score on the last token, 0 elsewhere and for empty completions.

    Float[B], Bool[B, R] -> Float[B, R]
    """
    after = torch.nn.functional.pad(mask[:, 1:], (0, 1), value=False)
    return torch.where(mask & ~after, score.unsqueeze(-1), 0.0)
