"""The setup of `improve`: protocols of its policy and critic, settings beside the recipe, values that are shared."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from tutelage.algorithms.recipe import Recipe
from tutelage.base import config
from tutelage.core.batch import Rows, TokenScores
from tutelage.models.budget import Budget
from tutelage.rewards.reward import Reward
from tutelage.train.learner import Learner


class PolicyModel(Protocol):
    """A distribution over responses, with parameters that training changes, and a frozen reference.

    For rows with M response tokens in all, V words and states of size d:

    is_exact    whether its own samples and `scores` give a token one log-probability
    states      the hidden state before each response token, row by row. Float[M, d]
    logits      the logits at these states over the temperature, differentiable twice. Float[M, V]
    scores      the log-probability of every token, and what else is wanted; `value_head` maps states to values [M, 1]
    reference   a context in which the methods compute the reference's results, without gradients
    split       the rows in parts of at most so many tokens. Yields Int[b]
    backward    adds the gradient of a loss [] to the gradients of the parameters
    total_norm  √ Σ g² over all gradients. []
    metrics     figures of the last step for the log
    """

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def is_exact(self) -> bool: ...

    @property
    def vocabulary(self) -> int: ...

    def parameters(self) -> list[nn.Parameter]: ...

    def states(self, rows: Rows) -> Tensor: ...

    def logits(self, rows: Rows, *, temperature: float) -> Tensor: ...

    def scores(
        self,
        rows: Rows,
        *,
        temperature: float,
        entropy: bool = False,
        value_head: Callable[[Tensor], Tensor] | None = None,
        divergence: float | None = None,
    ) -> TokenScores: ...

    def reference(self) -> AbstractContextManager[None]: ...

    def split(self, batch: Rows, tokens: int) -> Iterator[Tensor]: ...

    def backward(self, loss: Tensor) -> None: ...

    def total_norm(self, gradients: Iterable[Tensor]) -> Tensor: ...

    def metrics(self) -> dict[str, float]:
        return {}


class CriticModel(Protocol):
    """A prediction of the return from every state on the way, with parameters that training changes."""

    @property
    def value_head(self) -> Callable[[Tensor], Tensor] | None:
        """The map from the policy's states to values, Float[M, d] -> Float[M, 1]; None for a critic without them."""
        ...

    def parameters(self) -> list[nn.Parameter]: ...

    def values(self, rows: Rows) -> Tensor:
        """The value of the state before each response token, whose gradient reaches the critic alone. Float[B, R]"""
        ...

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a loss [] to the gradients of the critic."""
        ...


Mismatch = Literal["recompute", "truncated", "none"]
"""What is done where the log-probabilities of sampler and trainer differ, see `batch_scores`."""


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
    logged_rewards: Mapping[str, Reward] = field(default_factory=dict)
    """Further scores to log, by metric name; nothing is trained on them."""
    mix: Callable[[int, Budget], Tensor] | None = None
    """The loss [] on pretraining text in the step with this number (PPO-ptx), see `PretrainingMix`. It accumulates its
    gradient where gradients are recorded."""


@dataclass(frozen=True)
class Setup:
    """The objects that stay the same from one update to the next."""

    recipe: Recipe
    policy: PolicyModel
    critic: CriticModel | None
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
