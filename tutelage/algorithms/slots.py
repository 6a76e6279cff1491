"""The slots of a recipe: penalty, critic, update and schedules; their choices; and the quantities these require."""

from dataclasses import dataclass
from typing import Literal, get_args

from tutelage.base.errors import TutelageError
from tutelage.core.advantages import Advantage, RewardToGo, StatefulAdvantage
from tutelage.core.kl import (
    ESTIMATORS,
    K3_RATIO,
    CoefficientState,
    Controller,
    Fixed,
    StatefulController,
    control,
    controlled,
)
from tutelage.core.pieces import Observation, traits
from tutelage.core.reduce import Reduce
from tutelage.core.shaping import ScoreShaping, Shaping, StatefulShaping
from tutelage.core.surrogates import ScoreFunction, Surrogate

Place = Literal["reward", "loss"]
EXACT = "exact"
"""The kind of penalty without sampling noise: a divergence between next-token distributions."""


@dataclass(frozen=True)
class Penalty:
    """KL penalty for moving away from the reference. See `tutelage.core.kl` for the effect of each combination."""

    kind: str = "k1"
    """Estimator of the KL: k1, k2 (also called mse), k3, abs; and in the loss k3_ratio, k3 weighted with π / π_old, or
    exact, over the whole vocabulary."""
    coef: float = 0.05
    """Initial coefficient of the KL."""
    where: Place = "reward"
    """"reward": subtracted from the reward of each token and so credited to earlier tokens too; "loss": added to the
    loss.
    """
    controller: Controller | StatefulController = Fixed()  # noqa: RUF009 - frozen
    """Adapts the coefficient between steps to the KL per completion."""
    mixture: float = 1.0
    """Divergence of kind=exact: 1 is KL(π‖ref), 0 is KL(ref‖π); values in between are the generalised Jensen-Shannon
    divergence with this weight of the reference (β of GKD, TRL's beta). See `core.kl.exact_divergence`."""

    def __post_init__(self) -> None:
        if self.kind not in (*ESTIMATORS, EXACT):
            raise TutelageError(
                f"penalty.kind={self.kind!r} is unknown; choose one of {', '.join((*ESTIMATORS, EXACT))}."
            )
        if self.where not in get_args(Place):
            raise TutelageError(f"penalty.where={self.where!r} is unknown; choose reward or loss.")
        if self.kind == EXACT and self.where == "reward":
            raise TutelageError(
                "penalty.kind=exact acts through its derivative, but a reward has none, so the sampled token would not "
                "be penalised. Use penalty.where=loss, or k1 in the reward, whose mean gradient is exact."
            )
        if self.kind == K3_RATIO and self.where == "reward":
            raise TutelageError(
                f"penalty.kind={K3_RATIO} weights k3 with the ratio of policy to sampler, which is 1 in a reward. Use "
                "penalty.where=loss, or k1 in the reward, whose mean gradient is exact."
            )
        if not 0 <= self.mixture <= 1:
            raise TutelageError(
                f"penalty.mixture={self.mixture:g} must be from 0, KL(reference‖policy), to 1, KL(policy‖reference)."
            )
        if self.kind != EXACT and self.mixture != 1:
            raise TutelageError(
                f"penalty.mixture selects a divergence of penalty.kind=exact, but penalty.kind is {self.kind}: omit "
                "it. The coefficient is penalty.coef."
            )
        if not self.coef > 0:
            raise TutelageError(f"penalty.coef={self.coef:g}: must be above 0. Use penalty=none for no penalty.")

    def init(self) -> CoefficientState:
        """`coef` and the initial state of the controller."""
        return controlled(self.coef, self.controller)

    def observe(self, observation: Observation, state: CoefficientState) -> CoefficientState:
        """The state updated with KL(policy‖reference) of the step, nats per completion."""
        return control(self.controller, observation.kl_reference, observation.rows, state)


@dataclass(frozen=True)
class Critic:
    """A network that predicts the return from the state before each token."""

    coef: float = 0.1
    """Weight of the critic loss relative to the policy's."""
    clip: float | None = 0.2
    """Clip range of values around those at sampling time; None disables clipping."""
    warmup: int = 0
    """Initial steps that train only the critic."""
    bootstrap: bool = False
    """Whether the return of a completion cut at the limit of tokens or turns ends with the critic's value of the state
    after its last token. By default the value after a cut is 0, as after an end; TRL and OpenRLHF do the same."""

    def __post_init__(self) -> None:
        if not (self.coef > 0 and (self.clip is None or self.clip > 0) and self.warmup >= 0):
            raise TutelageError(
                f"critic: coef and clip must be above 0 and warmup at least 0; got {self}. "
                "Use critic=none for no critic, critic.clip=none for no clipping."
            )


@dataclass(frozen=True)
class GradientSteps:
    """An update of `epochs` passes over the rollout, in `minibatches` optimiser steps each."""

    epochs: int = 1
    minibatches: int = 1
    max_kl: float | None = None
    """Stop the passes early, before the step of a minibatch with a larger KL(old‖policy) in nats per token; None
    disables."""

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.minibatches < 1:
            raise TutelageError(f"update: epochs and minibatches must be at least 1; got {self}.")
        if self.max_kl is not None and not self.max_kl > 0:
            raise TutelageError(f"update.max_kl={self.max_kl:g} would stop before the first step; it must be above 0.")
        if self.max_kl is not None and self.steps == 1:
            raise TutelageError("update.max_kl stops between optimiser steps, but there is only one per rollout.")

    @property
    def steps(self) -> int:
        """Optimiser steps per rollout."""
        return self.epochs * self.minibatches


@dataclass(frozen=True)
class NaturalStep:
    """An update of one step along F⁻¹g, with a length such that the KL is `max_kl` to second order."""

    max_kl: float = 0.01
    """KL(old‖policy) of the step, nats per token."""
    damping: float = 0.1
    """Added to the Fisher matrix: F + damping · I."""
    cg: int = 10
    """Conjugate-gradient iterations for F⁻¹g."""
    backtracks: int = 10
    """Maximum number of shorter steps tried by the line search."""
    decay: float = 0.8
    """Factor from one step length to the next."""
    search: bool = True
    """Line search until the surrogate improves within the KL bound (TRPO); False takes the full step (natural
    gradient)."""
    critic_steps: int = 5
    """Optimiser steps of the critic per rollout, each over the whole rollout."""

    def __post_init__(self) -> None:
        above_zero = self.max_kl > 0 and self.cg >= 1 and self.critic_steps >= 1 and 0 < self.decay < 1
        if not above_zero or self.damping < 0 or self.backtracks < 0:
            raise TutelageError(
                "update: max_kl must be above 0, decay between 0 and 1, cg and critic_steps at least 1, "
                f"damping and backtracks at least 0; got {self}."
            )
        whole = (self.backtracks, self.decay) == (NaturalStep.backtracks, NaturalStep.decay)
        if not self.search and not whole:
            raise TutelageError("update.search=false takes the full step, so backtracks and decay have no effect.")


Update = GradientSteps | NaturalStep


@dataclass(frozen=True)
class Linear:
    """A linear schedule from `start` to `end` over `steps` training steps, then constant."""

    start: float = 0.01
    end: float = 0.0
    steps: int = 100

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise TutelageError(f"a Linear schedule requires at least one step, not {self.steps}.")

    def __call__(self, step: float) -> float:
        return self.start + (self.end - self.start) * min(step / self.steps, 1.0)


Schedule = float | Linear


def at_step(schedule: Schedule, step: float) -> float:
    """The value of a schedule at a training step."""
    return schedule(step) if isinstance(schedule, Linear) else schedule


@dataclass(frozen=True, kw_only=True)
class Choices:
    """A piece or a value for each slot of an on-policy algorithm. `Recipe` validates them."""

    name: str
    paper: str = ""
    """Publication, as `arXiv:...` or author and year."""
    samples: int = 1
    """Completions per prompt, G."""
    dynamic_sampling: int = 0
    """Maximum rounds of sampling to fill the batch with prompts whose completions score differently. 0 disables
    filtering; 1 filters without resampling.
    """
    shaping: Shaping | StatefulShaping = ScoreShaping()  # noqa: RUF009 - frozen
    """Transforms the score of the reward before training."""
    penalty: Penalty | None = Penalty()
    """Penalty for moving away from the reference."""
    advantage: Advantage | StatefulAdvantage = RewardToGo()  # noqa: RUF009 - frozen
    """The estimator of Ψ."""
    surrogate: Surrogate = ScoreFunction()  # noqa: RUF009 - frozen
    """The per-token objective."""
    entropy: Schedule = 0.0
    """Coefficient of the entropy bonus, over full next-token distributions."""
    reduce: Reduce = "token_mean"
    """Weighting of tokens in the mean."""
    critic: Critic | None = None
    update: Update = GradientSteps()
    ptx: float = 0.0
    """Weight of an additional language-modelling loss on pretraining text (InstructGPT's PPO-ptx)."""


def needs_values(recipe: Choices) -> bool:
    """Whether the rollout must include the values of a critic."""
    return "value" in traits(recipe.advantage).needs


def needs_reference(recipe: Choices) -> bool:
    """Whether the objective depends on the reference; otherwise its log-probabilities are used only for metrics."""
    return recipe.penalty is not None


def needs_entropy(recipe: Choices) -> bool:
    """Whether the objective includes the entropy of next-token distributions."""
    return recipe.entropy != 0.0


def needs_divergence(recipe: Choices) -> float | None:
    """The `mixture` of the exact divergence from the reference in the objective; None if there is none."""
    exact = recipe.penalty is not None and recipe.penalty.kind == EXACT
    return recipe.penalty.mixture if recipe.penalty is not None and exact else None


def needs_greedy(recipe: Choices) -> bool:
    """Whether `prepare` requires a scored greedy completion per prompt."""
    return "greedy" in traits(recipe.advantage).needs


def needs_kl_old(recipe: Choices) -> bool:
    """Whether a controller needs KL(old‖policy) after the last optimiser step of an update (`Observation.kl_old`)."""
    return "kl_old" in traits(recipe.surrogate).needs
