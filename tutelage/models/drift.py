"""The drift of a model: its divergence from another model, and its perplexity under a third."""

import math

from jaxtyping import Float
from torch import Tensor

from tutelage.core.batch import Rollout, Rows
from tutelage.models.budget import Budget, token_values
from tutelage.models.policy import Policy


def response_logp(
    policy: Policy, rows: Rows, *, temperature: float = 1.0, budget: int | Budget = 8192
) -> Float[Tensor, "B R"]:
    """log π of every completion token under `policy`."""
    return token_values(
        policy.split, lambda part: policy.scores(part, temperature=temperature).logp, rows, Budget.of(budget)
    )


def sequence_kl(
    rollout: Rollout, other: Policy, *, temperature: float, budget: int | Budget = 8192
) -> tuple[float, float]:
    """KL(π‖other) in nats per completion, from completions sampled by π: (k1 estimate, its standard error).

    The mean over completions of Σ_t log π(token) − log other(token), both at the sampling temperature. Both models must
    have the same vocabulary.
    """
    theirs = response_logp(other, rollout, temperature=temperature, budget=budget)
    per_answer = ((rollout.logp - theirs) * rollout.mask).sum(1)
    error = float(per_answer.std()) / math.sqrt(len(per_answer)) if len(per_answer) > 1 else math.nan
    return float(per_answer.mean()), error


def perplexity(policy: Policy, rows: Rows, *, budget: int | Budget = 8192) -> float:
    """Perplexity of the completions under `policy`: exp of the mean negative log-likelihood per completion token."""
    logp = response_logp(policy, rows, budget=budget)
    return math.exp(min(700.0, -float((logp * rows.mask).sum() / rows.mask.sum().clamp(min=1))))
