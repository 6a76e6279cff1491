"""Setup of `improve`: protocols of policy and critic, settings outside the recipe, shared objects."""

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
    """Distribution over completions with trainable parameters, and a frozen reference.

    For rows with M response tokens in total, a vocabulary of V tokens and states of size d:

    is_exact    whether sampling and `scores` give a token the same log-probability
    extends_exactly  whether sampling from a kept context (see `engines.lines`) gives the bits of `scores`
    context     the most tokens of a row; None without a limit
    states      the hidden state before each response token, row by row. Float[M, d]
    logits      the logits at these states over the temperature, differentiable twice. Float[M, V]
    scores      log-probabilities of all tokens and further requested scores; `value_head` maps states to values [M, 1]
    reference   a context in which the methods use the reference's weights, without gradients
    split       the rows in parts of at most the given number of tokens. Yields Int[b]
    backward    adds the gradient of a loss [] to the gradients of the parameters
    total_norm  √ Σ g² over all gradients. []
    metrics     metrics of the last step
    """

    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def is_exact(self) -> bool: ...

    @property
    def extends_exactly(self) -> bool:
        return False

    @property
    def context(self) -> int | None:
        return None

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
    """Trainable predictor of the return from every state."""

    @property
    def value_head(self) -> Callable[[Tensor], Tensor] | None:
        """Map from the policy's states to values, Float[M, d] -> Float[M, 1]; None for a critic with its own
        network."""
        ...

    def parameters(self) -> list[nn.Parameter]: ...

    def values(self, rows: Rows) -> Tensor:
        """Value of the state before each response token; gradients reach only the critic. Float[B, R]"""
        ...

    def backward(self, loss: Tensor) -> None:
        """Add the gradient of a loss [] to the gradients of the critic."""
        ...


Mismatch = Literal["recompute", "truncated", "none"]
"""Correction for sampler and trainer log-probabilities that differ, see `batch_scores`."""


@dataclass(frozen=True)
class RolloutSettings:
    """Settings of `improve` outside the recipe."""

    sampling: config.Sampling
    budget: Budget
    """Tokens of one forward pass."""
    seed: int
    turns: int = 1
    """Most turns of an episode, each of up to `sampling.max_new_tokens` tokens."""
    continuous: bool = False
    """Whether the turns of episodes are sampled as they arrive, from kept contexts (see `rollout.continuous_batch`)."""
    mismatch: Mismatch | None = None
    """Correction for the mismatch of sampler and trainer. None skips the measurement: the sampler is the policy, and
    old log-probabilities are recomputed if the policy is not exact."""
    mismatch_cap: float = 2.0
    """Cap C of truncated importance sampling."""
    staleness: int = 0
    """Maximum policy lag: steps by which the weights that wrote a token may be behind."""
    reference: bool = True
    """Compute reference log-probabilities. Recipes without a penalty need them only for the metric kl/reference,
    otherwise 0."""
    teacher: Callable[[Rows], Tensor] | None = None
    """Reference log-probabilities Float[B, R] computed by another process."""
    logged_rewards: Mapping[str, Reward] = field(default_factory=dict)
    """Additional scores to log, by metric name; not trained on."""
    mix: Callable[[int, Budget], Tensor] | None = None
    """Pretraining loss [] of the step with this number (PPO-ptx), see `PretrainingMix`. Accumulates its gradient if
    gradients are enabled."""

    @property
    def longest(self) -> int:
        """Most sampled tokens of a row."""
        return self.turns * self.sampling.max_new_tokens


@dataclass(frozen=True)
class Setup:
    """Objects shared by all updates of a run."""

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
        """Whether sampler and trainer give a token the same log-probability, so that the first ratio is 1."""
        return self.policy.is_exact

    @property
    def handles_mismatch(self) -> Mismatch | None:
        """Correction for the sampler's log-probabilities, the same on all ranks.

        Turns of a kept context have the bits of the trainer on an engine that promises them. Those that read their
        whole context again have another order of summation, which matters in bfloat16.
        """
        settings, half = self.settings, self.policy.dtype.itemsize < 4
        if settings.mismatch is not None or not (half or settings.continuous):
            return settings.mismatch
        if settings.continuous:
            same = self.policy.extends_exactly
        else:
            same = self.is_exact and settings.turns == 1
        return "recompute" if settings.budget.ranks.any(not same) else None
