"""Losses that `fit` minimises. Each takes a part of a batch whose weights already add up over the whole of it."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor

from tutelage.core.batch import Pairs, Rows
from tutelage.core.reduce import token_weights
from tutelage.models.policy import Policy


@dataclass(frozen=True, kw_only=True)
class WeightedRows(Rows):
    """Rows with the weight of every response token in the loss of the whole batch."""

    weight: Tensor  # Float[B, R], adds up to 1 over the batch

    @classmethod
    def of(cls, rows: Rows, weights: Sequence[float] | None = None) -> Self:
        """Every response token of the batch weighs the same; with `weights`, one of each row, as much as its row:
        w_it = w_i m_it / Σ_jt w_j m_jt."""
        weight = token_weights(rows.mask, "token_mean", rows.mask.shape[1])
        if weights is not None:
            weight = rows.mask * torch.tensor(weights, device=rows.mask.device)[:, None]
            weight = weight / weight.sum().clamp(min=1e-12)
        return cls(**{f.name: getattr(rows, f.name) for f in fields(Rows)}, weight=weight)


@dataclass(frozen=True, kw_only=True)
class WeightedPairs(Pairs):
    """Pairs whose weights add up to 1 over the batch."""

    @classmethod
    def of(cls, pairs: Pairs) -> Self:
        """Scale the weights of a whole batch."""
        parts = {f.name: getattr(pairs, f.name) for f in fields(Pairs)}
        return cls(**parts | {"weight": pairs.weight / pairs.weight.sum().clamp(min=1e-12)})


def imitate(policy: Policy, rows: WeightedRows) -> tuple[Tensor, dict[str, Tensor]]:
    """Negative log-likelihood of the responses: − Σ w log π(token | prompt, tokens before)."""
    rows = rows.trimmed()
    return -(rows.weight * policy.scores(rows).logp).sum(), {}
