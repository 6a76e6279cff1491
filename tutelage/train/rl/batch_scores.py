"""Micro-batched scores for both kinds of update, and corrections for the mismatch between sampler and trainer.

In bfloat16, decoding and the training forward pass round differently, so samples come from a slightly different
distribution than the one whose gradient is taken. The gap is larger if rollouts are generated ahead, by an older
policy. Three corrections (`Mismatch`):

    none        the old log-probabilities are the sampler's own
    recompute   they are recomputed by the trainer, so the first ratio is 1
    truncated   they are recomputed, and each token's surrogate is weighted by w = min(π_trainer / π_sampler, C)

The last is truncated importance sampling: while C is not reached, E_sampler[w ∇log π Ψ] is the gradient under the
trainer's own distribution of the token; C bounds the influence of a single token (Yao et al. 2025, "Your efficient
RL framework secretly brings you off-policy RL training"; Ionides 2008 for the truncation).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from tutelage.algorithms.recipe import critic_loss, needs_divergence, needs_entropy
from tutelage.base.errors import TutelageError
from tutelage.core.batch import Batch, Rollout, Rows, TokenScores
from tutelage.core.kl import kl_estimate
from tutelage.core.reduce import masked_mean
from tutelage.core.rows import read_at
from tutelage.models.budget import Budget, token_values
from tutelage.train.learner import LossTerms
from tutelage.train.rl.setup import CriticModel, PolicyModel, Setup


@torch.no_grad()
def score_rows(
    policy: PolicyModel, rows: Rows, *, temperature: float, budget: Budget, critic: CriticModel | None = None
) -> TokenScores:
    """Log-probability of every response token and, with a critic, the value of the state before it."""
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


def value_rows(policy: PolicyModel, critic: CriticModel, rows: Rows, budget: Budget) -> Tensor:
    """Value of the state before every response token. Float[B, R]"""

    return token_values(policy.split, critic.values, rows, budget)


def last_values(policy: PolicyModel, critic: CriticModel, rollout: Rollout, budget: Budget) -> Tensor:
    """Value of the state after the last token of each truncated row, 0 for the others. Float[B]

    It is the value before a further token, whatever that is. A row that fills the context loses the first token of its
    prompt for it.
    """
    last = torch.zeros(len(rollout), device=rollout.mask.device)
    cut = rollout.truncated & rollout.mask.any(1)
    if not cut.any():
        return last
    rows = rollout.rows(cut)
    contexts = rows.contexts if rows.branches is None else rows.branches.last(len(rows))
    end = contexts.mask.sum(1, keepdim=True) - 1
    marked = torch.zeros_like(contexts.mask).scatter(1, end, value=True)
    longer = read_at(contexts, marked, longest=policy.context)
    last[cut] = value_rows(policy, critic, longer, budget).squeeze(1).to(last)
    return last


def staleness_metrics(rollout: Rollout, version: int) -> dict[str, float]:
    """Policy lag of the tokens, in versions behind `version`: staleness/mean per token, and staleness/max."""
    if rollout.version is None:
        return {}
    behind = (version - rollout.version).where(rollout.mask, 0).float()
    return {"staleness/mean": float(masked_mean(behind, rollout.mask)), "staleness/max": float(behind.max())}


def mismatch_metrics(sampler: Tensor, trainer: Tensor, mask: Tensor) -> dict[str, float]:
    """Difference between two log-probabilities of the sampled tokens, Float[B, R].

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
    """w = min(π_trainer / π_sampler, cap) of every token; 1 for padding. Float[B, R]"""
    return (trainer - sampler).where(mask, 0.0).exp().clamp(max=cap)


def share_truncated(weight: Tensor, mask: Tensor, cap: float) -> float:
    """sampler/truncated: fraction of tokens whose weight is at the cap."""
    return float(masked_mean((weight >= cap).float(), mask))


RATIO_TOLERANCE = 1e-3
"""Tolerance of |log π − log π_old| before the first step in float32: 7e-6 is usual, rounding of large logits exceeds
1e-4, and real faults exceed 0.01."""


@dataclass(frozen=True)
class UpdateResult:
    """Result of an update: KL(old‖policy) in nats per token for the controllers, and metrics for the log."""

    kl_old: float
    metrics: dict[str, float]


def cut(rows: Batch, weight: Tensor, index: Tensor) -> tuple[Batch, Tensor]:
    """Trimmed rows at `index`, and their token weights Float[B, R]."""
    part = rows.rows(index).trimmed()
    return part, weight[index.to(weight.device)][:, : part.mask.shape[1]]


def policy_scores(setup: Setup, part: Batch, *, with_values: bool = False) -> TokenScores:
    """Policy scores required by the objective, with critic values if the critic shares the policy's trunk."""
    critic = setup.critic if with_values else None
    return setup.policy.scores(
        part,
        temperature=setup.settings.sampling.temperature,
        entropy=needs_entropy(setup.recipe),
        divergence=needs_divergence(setup.recipe),
        value_head=None if critic is None else critic.value_head,
    )


def critic_backward(setup: Setup, part: Batch, weight: Tensor, terms: LossTerms) -> Tensor:
    """Accumulate the gradient of the critic's loss on a part of a batch, in a separate pass. Returns the loss and
    adds it to `terms`. []"""
    assert setup.critic is not None
    assert setup.recipe.critic is not None
    loss = critic_loss(setup.recipe, part, setup.critic.values(part), weight)
    terms.note({"value/loss": loss}, named(part))
    setup.critic.backward(setup.recipe.critic.coef * loss)
    return loss


def distance(part: Batch, logp: Tensor) -> Tensor:
    """Largest |log π − log π_old| of a token. []"""
    return (logp - part.logp).abs().where(part.mask, 0.0).max()


def named(part: Batch) -> str:
    """Names of the first prompts of a part, for an error message."""
    return ", ".join(part.ids[:4])


def refuse_disagreement(nats: float) -> None:
    """Raise TutelageError if policy and sampler disagree on a token although their weights are equal."""
    if nats > RATIO_TOLERANCE:
        raise TutelageError(
            f"Before the first step the policy and the sampler disagree by {nats:.2g} nats on a token, although "
            "their weights are the same. The usual causes are dropout that is still on, a truncated sampling "
            "distribution, or a model that depends on padding."
        )
