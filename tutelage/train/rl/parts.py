"""Work of both kinds of update on a part of a batch: scoring, fitting the critic, the mismatch to the sampler."""

from dataclasses import dataclass

from torch import Tensor

from tutelage.algorithms.recipe import critic_loss, needs_divergence, needs_entropy
from tutelage.base.errors import TutelageError
from tutelage.core.batch import Batch, TokenScores
from tutelage.train.learner import LossTerms
from tutelage.train.rl.settings import Setup

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
