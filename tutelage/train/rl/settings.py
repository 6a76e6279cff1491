"""Settings of `improve` beside the recipe, and values that its functions share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from tutelage.algorithms.recipe import Recipe
from tutelage.base import config
from tutelage.core.batch import Rows
from tutelage.models.budget import Budget
from tutelage.rewards.reward import Reward
from tutelage.train.learner import Learner
from tutelage.train.rl.critic import Critic
from tutelage.train.rl.mismatch import Mismatch
from tutelage.train.rl.policy import Policy


@dataclass(frozen=True)
class RolloutSettings:
    """The settings of a run of `improve` that are not the recipe's."""

    sampling: config.Sampling
    budget: Budget
    """Tokens of one forward pass."""
    seed: int
    mismatch: Mismatch | None = None
    """What is done where sampler and trainer disagree. With None nothing is computed to find out: the sampler is the
    policy, and old log-probabilities are recomputed where that is not exact."""
    mismatch_cap: float = 2.0
    """C of truncated importance sampling."""
    staleness: int = 0
    """How many steps the weights that wrote a token may be behind those that learn from it."""
    reference: bool = True
    """Compute the reference's log-probabilities. A recipe without a penalty needs them only for the metric
    kl/reference, which is 0 without."""
    teacher: Callable[[Rows], Tensor] | None = None
    """The log-probabilities Float[B, R] of the reference, where another process computes them."""
    watch: Mapping[str, Reward] = field(default_factory=dict)
    """Further scores to log, by metric name; nothing is trained on them."""
    mix: Callable[[int, Budget], Tensor] | None = None
    """The loss [] on pretraining text in the step with this number (PPO-ptx), see `PretrainingMix`. It accumulates its
    gradient where gradients are recorded."""


@dataclass(frozen=True)
class Setup:
    """The objects that stay the same from one update to the next."""

    recipe: Recipe
    policy: Policy
    critic: Critic | None
    learner: Learner
    settings: RolloutSettings

    def __post_init__(self) -> None:
        if self.recipe.critic is not None and self.critic is None:
            raise ValueError(f"the recipe {self.recipe.name} has a critic, but none was given")

    @property
    def is_exact(self) -> bool:
        """Whether the policy gives a token one log-probability as sampler and as trainer: the first ratio is 1."""
        return self.policy.is_exact

    @property
    def handles_mismatch(self) -> Mismatch | None:
        """What is done about the sampler's log-probabilities: one thing on all ranks."""
        if self.settings.mismatch is not None or self.policy.dtype.itemsize >= 4:
            return self.settings.mismatch
        return "recompute" if self.settings.budget.ranks.any(not self.is_exact) else None
