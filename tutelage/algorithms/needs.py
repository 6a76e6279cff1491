"""The needs of a recipe: what the loop has to compute for it."""

from tutelage.algorithms.choices import Choices
from tutelage.algorithms.slots import EXACT
from tutelage.core.pieces import traits


def needs_values(recipe: Choices) -> bool:
    """Whether the rollout must carry the values of a critic."""
    return "value" in traits(recipe.advantage).needs


def needs_reference(recipe: Choices) -> bool:
    """Whether the objective depends on the reference; otherwise its log-probabilities serve the metrics alone."""
    return recipe.penalty is not None


def needs_entropy(recipe: Choices) -> bool:
    """Whether the objective has a term for the full entropy of every token's distribution."""
    return recipe.entropy != 0.0


def needs_divergence(recipe: Choices) -> float | None:
    """The `mixture` of the divergence from the reference, over every token's whole distribution, that the objective
    has a term for; None where it has none."""
    exact = recipe.penalty is not None and recipe.penalty.kind == EXACT
    return recipe.penalty.mixture if recipe.penalty is not None and exact else None


def needs_greedy(recipe: Choices) -> bool:
    """Whether `prepare` must be given the scored greedy response to each prompt."""
    return "greedy" in traits(recipe.advantage).needs


def needs_kl_old(recipe: Choices) -> bool:
    """Whether a controller needs KL(old‖policy) after the last optimiser step of an update (`Observation.kl_old`)."""
    return "kl_old" in traits(recipe.surrogate).needs
