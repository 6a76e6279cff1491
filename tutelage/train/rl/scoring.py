"""Log-probabilities and values of any number of rows, by parts."""

import torch
from torch import Tensor

from tutelage.core.batch import Rows, TokenScores
from tutelage.models.budget import Budget
from tutelage.train.rl.critic import Critic
from tutelage.train.rl.policy import Policy


@torch.no_grad()
def score_rows(
    policy: Policy, rows: Rows, *, temperature: float, budget: Budget, critic: Critic | None = None
) -> TokenScores:
    """The log-probability of every response token and, with a critic, the value of the state before it."""
    return budget.spend(_score_rows, policy, critic, rows, temperature, budget)


@torch.no_grad()
def value_rows(policy: Policy, critic: Critic, rows: Rows, budget: Budget) -> Tensor:
    """The value of the state before every response token. Float[B, R]"""
    return budget.spend(_value_rows, policy, critic, rows, budget)


def _score_rows(
    policy: Policy, critic: Critic | None, rows: Rows, temperature: float, budget: Budget
) -> TokenScores:
    logp, value = (torch.zeros(rows.mask.shape, device=rows.mask.device) for _ in range(2))
    value_head = None if critic is None else critic.value_head
    for index in budget.parts(policy.split, rows):
        part = rows.rows(index).trimmed()
        width = part.mask.shape[1]
        scores = policy.scores(part, temperature=temperature, value_head=value_head)
        logp[index, :width] = scores.logp
        if critic is not None:
            value[index, :width] = critic.values(part) if scores.value is None else scores.value
    budget.ranks.sum_([logp] if critic is None else [logp, value])
    return TokenScores(logp, value=None if critic is None else value)


def _value_rows(policy: Policy, critic: Critic, rows: Rows, budget: Budget) -> Tensor:
    value = torch.zeros(rows.mask.shape, device=rows.mask.device)
    for index in budget.parts(policy.split, rows):
        part = rows.rows(index).trimmed()
        value[index, : part.mask.shape[1]] = critic.values(part)
    budget.ranks.sum_([value])
    return value
