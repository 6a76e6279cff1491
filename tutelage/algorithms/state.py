"""What a recipe carries from one step of the loop to the next: a handful of numbers that go into the checkpoint."""

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Self

from torch import Tensor

from tutelage.core.surrogates import Driven
from tutelage.errors import TutelageError

if TYPE_CHECKING:
    from tutelage.algorithms.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class RecipeState:
    """Numbers only, so that a checkpoint can hold them as JSON."""

    step: float = 0.0  # steps of the loop behind us
    penalty_coef: float = 0.0  # price of a nat from the reference
    surrogate_coef: float = 0.0  # price of a nat from the sampler, where the surrogate has one
    moving_sum: float = 0.0  # exponential average of returns, before dividing by its weight
    moving_weight: float = 0.0
    score_count: float = 0.0  # running statistics of the scores
    score_mean: float = 0.0
    score_squares: float = 0.0  # sum of squared deviations from the mean

    @property
    def moving_mean(self) -> float:
        """Exponential average of the returns of the steps behind us; 0 before the first."""
        return self.moving_sum / self.moving_weight if self.moving_weight > 0 else 0.0

    @property
    def score_std(self) -> float:
        """Standard deviation of all scores so far; 0 before the first."""
        return float((self.score_squares / self.score_count) ** 0.5) if self.score_count > 0 else 0.0

    def with_return(self, mean: float, decay: float) -> Self:
        """The state after a batch of this mean return."""
        return replace(
            self,
            moving_sum=decay * self.moving_sum + (1 - decay) * mean,
            moving_weight=decay * self.moving_weight + (1 - decay),
        )

    def with_scores(self, score: Tensor) -> Self:
        """The state after these scores (the pairwise update of Chan et al. 1983). Float[B]"""
        count, mean = float(len(score)), float(score.mean())
        total = self.score_count + count
        apart = mean - self.score_mean
        squares = float(((score - mean) ** 2).sum()) + apart**2 * self.score_count * count / total
        return replace(
            self,
            score_count=total,
            score_mean=self.score_mean + apart * count / total,
            score_squares=self.score_squares + squares,
        )

    def to_dict(self) -> dict[str, float]:
        """For the checkpoint."""
        return asdict(self)

    @classmethod
    def from_dict(cls, numbers: dict[str, float]) -> Self:
        """From the checkpoint. Raises TutelageError when it holds other numbers than this version knows."""
        known = {f.name for f in fields(cls)}
        if set(numbers) != known:
            odd = ", ".join(sorted(known ^ set(numbers)))
            raise TutelageError(
                f"the recipe's state in this checkpoint was written by another version: {odd} differ."
            )
        return cls(**numbers)


def initial_state(recipe: "Recipe") -> RecipeState:
    """The state before the first step."""
    return RecipeState(
        penalty_coef=recipe.penalty.coef if recipe.penalty else 0.0,
        surrogate_coef=recipe.surrogate.coef if isinstance(recipe.surrogate, Driven) else 0.0,
    )


def after_update(
    recipe: "Recipe", state: RecipeState, *, kl_reference: float, kl_old: float, rows: int
) -> RecipeState:
    """The state after a step: the controllers see what it did. In the critic's warm-up, in which the policy does
    nothing, they wait.

    kl_reference: KL(policy‖reference), nats per sequence; kl_old: KL(old‖policy) once the step was taken, nats per
    token; rows: responses in the step, over all processes.
    """
    if recipe.critic is not None and state.step < recipe.critic.warmup:
        return replace(state, step=state.step + 1)
    penalty_coef, surrogate_coef = state.penalty_coef, state.surrogate_coef
    if recipe.penalty:
        penalty_coef = recipe.penalty.controller(penalty_coef, kl_reference, rows)
    if isinstance(recipe.surrogate, Driven):
        surrogate_coef = recipe.surrogate.controller(surrogate_coef, kl_old, rows)
    return replace(state, step=state.step + 1, penalty_coef=penalty_coef, surrogate_coef=surrogate_coef)
