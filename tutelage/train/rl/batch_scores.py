"""Scores of a batch by parts, for both kinds of update, and the mismatch of the sampler's to the trainer's.

In bfloat16 decoding rounds otherwise than the forward pass that is trained through, so that what was sampled comes from
another distribution than the one whose gradient is taken. So it does, and further from it, where rollouts are written
ahead of the steps that learn from them, by an older policy. Three ways to go on (`Mismatch`):

    none        the old log-probabilities are the sampler's own
    recompute   they are the trainer's, so that the first ratio is that of the trainer to itself
    truncated   the trainer's, and the surrogate of every token is weighed by w = min(π_trainer / π_sampler, C)

The last is truncated importance sampling: where C is never reached, E_sampler[w ∇log π Ψ] is the gradient under the
trainer's own distribution of the token, and C bounds what a single token can do (Yao et al. 2025, "Your efficient RL
framework secretly brings you off-policy RL training"; Ionides 2008 for the truncation).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tutelage.algorithms.recipe import critic_loss, needs_divergence, needs_entropy
from tutelage.base.errors import TutelageError
from tutelage.core.batch import Batch, Rollout, Rows, TokenScores
from tutelage.core.kl import kl_estimate
from tutelage.core.reduce import masked_mean
from tutelage.models.budget import Budget
from tutelage.train.learner import LossTerms
from tutelage.train.rl.setup import CriticModel, PolicyModel, Setup


@torch.no_grad()
def score_rows(
    policy: PolicyModel, rows: Rows, *, temperature: float, budget: Budget, critic: CriticModel | None = None
) -> TokenScores:
    """The log-probability of every response token and, with a critic, the value of the state before it."""
    value_head = None if critic is None else critic.value_head

    def compute() -> TokenScores:
        logp, value = (torch.zeros(rows.mask.shape, device=rows.mask.device) for _ in range(2))
        for index in budget.parts(policy.split, rows):
            part = rows.rows(index).trimmed()
            width = part.mask.shape[1]
            scores = policy.scores(part, temperature=temperature, value_head=value_head)
            logp[index, :width] = scores.logp
            if critic is not None:
                value[index, :width] = critic.values(part) if scores.value is None else scores.value
        budget.ranks.sum_([logp] if critic is None else [logp, value])
        return TokenScores(logp, value=None if critic is None else value)

    return budget.spend(compute)


@torch.no_grad()
def value_rows(policy: PolicyModel, critic: CriticModel, rows: Rows, budget: Budget) -> Tensor:
    """The value of the state before every response token. Float[B, R]"""

    def compute() -> Tensor:
        value = torch.zeros(rows.mask.shape, device=rows.mask.device)
        for index in budget.parts(policy.split, rows):
            part = rows.rows(index).trimmed()
            value[index, : part.mask.shape[1]] = critic.values(part)
        budget.ranks.sum_([value])
        return value

    return budget.spend(compute)


def staleness_metrics(rollout: Rollout, version: int) -> dict[str, float]:
    """How many versions behind `version` the weights were that wrote the tokens: staleness/mean per token, and
    staleness/max."""
    if rollout.version is None:
        return {}
    behind = (version - rollout.version).where(rollout.mask, 0).float()
    return {"staleness/mean": float(masked_mean(behind, rollout.mask)), "staleness/max": float(behind.max())}


def mismatch_metrics(sampler: Tensor, trainer: Tensor, mask: Tensor) -> dict[str, float]:
    """The difference of two log-probabilities of the sampled tokens, Float[B, R].

    sampler/mismatch    mean |log π_trainer − log π_sampler| per token
    sampler/kl          KL(sampler‖trainer) per token in nats, by k3
    sampler/ratio_max   the largest π_trainer / π_sampler of a token
    """
    difference = (trainer - sampler).where(mask, 0.0)
    return {
        "sampler/mismatch": float(masked_mean(difference.abs(), mask)),
        "sampler/kl": float(masked_mean(kl_estimate(sampler, trainer, "k3"), mask)),
        "sampler/ratio_max": float(difference.where(mask, -torch.inf).max().exp()),
    }


def truncated_importance(sampler: Tensor, trainer: Tensor, mask: Tensor, cap: float) -> Tensor:
    """w = min(π_trainer / π_sampler, cap) of every token, 1 where there is none. Float[B, R]"""
    return (trainer - sampler).where(mask, 0.0).exp().clamp(max=cap)


def share_truncated(weight: Tensor, mask: Tensor, cap: float) -> float:
    """sampler/truncated: the share of tokens whose weight is held at the cap."""
    return float(masked_mean((weight >= cap).float(), mask))


RATIO_TOLERANCE = 1e-3
"""How far log π − log π_old may be from 0 before the first step in float32: 7e-6 is usual, large logits round to more
than 1e-4, and every real fault is above 0.01."""


@dataclass(frozen=True)
class UpdateResult:
    """The result of an update: KL(old‖policy) in nats per token, for the controllers, and metrics, for the log."""

    kl_old: float
    metrics: dict[str, float]


def cut(rows: Batch, weight: Tensor, index: Tensor) -> tuple[Batch, Tensor]:
    """The rows at `index`, trimmed, and the weights of their tokens Float[B, R] among those of all rows."""
    part = rows.rows(index).trimmed()
    return part, weight[index.to(weight.device)][:, : part.mask.shape[1]]


def policy_scores(setup: Setup, part: Batch, *, with_values: bool = False) -> TokenScores:
    """The policy's scores that the objective needs; with the critic's values where it shares the policy's trunk."""
    critic = setup.critic if with_values else None
    return setup.policy.scores(
        part,
        temperature=setup.settings.sampling.temperature,
        entropy=needs_entropy(setup.recipe),
        divergence=needs_divergence(setup.recipe),
        value_head=None if critic is None else critic.value_head,
    )


def critic_backward(setup: Setup, part: Batch, weight: Tensor, terms: LossTerms) -> Tensor:
    """Accumulate the gradient of the critic's loss on a part of a batch, in a pass of its own. Returns the loss, which
    is noted among `terms`. []"""
    assert setup.critic is not None
    assert setup.recipe.critic is not None
    loss = critic_loss(setup.recipe, part, setup.critic.values(part), weight)
    terms.note({"value/loss": loss}, named(part))
    setup.critic.backward(setup.recipe.critic.coef * loss)
    return loss


def distance(part: Batch, logp: Tensor) -> Tensor:
    """The largest |log π − log π_old| on a token. []"""
    return (logp - part.logp).abs().where(part.mask, 0.0).max()


def named(part: Batch) -> str:
    """The prompts of a few rows, for an error."""
    return ", ".join(part.ids[:4])


def refuse_disagreement(nats: float) -> None:
    """Raise TutelageError where policy and sampler differ on a token although their weights are equal."""
    if nats > RATIO_TOLERANCE:
        raise TutelageError(
            f"Before the first step the policy and the sampler disagree by {nats:.2g} nats on a token, where "
            "they are the same weights. The usual causes are dropout that is still on, a truncated sampling "
            "distribution, or a model that depends on padding."
        )
