"""The slots of a recipe: penalty, critic, update, schedules; the choices that fill them; what these need computed."""

from dataclasses import dataclass
from typing import Literal, get_args

from tutelage.base.errors import TutelageError
from tutelage.core.advantages import Advantage, RewardToGo, StatefulAdvantage
from tutelage.core.kl import (
    ESTIMATORS,
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
"""The penalty that is no estimate: a divergence between the next token's whole distributions."""


@dataclass(frozen=True)
class Penalty:
    """The price of moving away from the reference. `tutelage.core.kl` tells the effect of each combination."""

    kind: str = "k1"
    """Estimator of the KL: k1, k2 (also called mse), k3, abs; or exact, over the whole vocabulary, in the loss."""
    coef: float = 0.05
    """Price of a nat, at the start."""
    where: Place = "reward"
    """"reward": subtracted from each token's reward, so that earlier tokens are credited with it too; "loss": added to
    the loss.
    """
    controller: Controller | StatefulController = Fixed()  # noqa: RUF009 - frozen
    """Changes the coefficient between steps, from the KL per completion."""
    mixture: float = 1.0
    """Which divergence kind=exact is: 1 is KL(π‖ref), 0 KL(ref‖π), and between them lies the generalised Jensen-Shannon
    divergence, by the weight of the reference in the mixture (β of GKD, TRL's beta). See `core.kl.exact_divergence`."""

    def __post_init__(self) -> None:
        if self.kind not in (*ESTIMATORS, EXACT):
            raise TutelageError(
                f"penalty.kind={self.kind!r} is not known; choose one of {', '.join((*ESTIMATORS, EXACT))}."
            )
        if self.where not in get_args(Place):
            raise TutelageError(
                f"penalty.where={self.where!r} is not known; the penalty goes into the reward or the loss."
            )
        if self.kind == EXACT and self.where == "reward":
            raise TutelageError(
                "penalty.kind=exact acts through its derivative, and a reward has none: the token itself would not be "
                "charged. Use penalty.where=loss, or k1 in the reward, whose mean gradient is exact."
            )
        if not 0 <= self.mixture <= 1:
            raise TutelageError(
                f"penalty.mixture={self.mixture:g} must be from 0, KL(reference‖policy), to 1, KL(policy‖reference)."
            )
        if self.kind != EXACT and self.mixture != 1:
            raise TutelageError(
                f"penalty.mixture chooses among the divergences of penalty.kind=exact, and the kind is {self.kind}: "
                "leave it out. The price of a nat is penalty.coef."
            )
        if not self.coef > 0:
            raise TutelageError(
                f"penalty.coef={self.coef:g}: a price must be above 0. Write penalty=none for no penalty."
            )

    def init(self) -> CoefficientState:
        """`coef` and the initial state of the controller."""
        return controlled(self.coef, self.controller)

    def observe(self, observation: Observation, state: CoefficientState) -> CoefficientState:
        """The state after the controller has seen KL(policy‖reference) of the step, nats per completion."""
        return control(self.controller, observation.kl_reference, observation.rows, state)


@dataclass(frozen=True)
class Critic:
    """A network that predicts the return from the state before each token."""

    coef: float = 0.1
    """Weight of its loss beside the policy's."""
    clip: float | None = 0.2
    """How far a value may move from the one at sampling time before its gradient stops; None lets it."""
    warmup: int = 0
    """Steps at the start in which only the critic learns."""

    def __post_init__(self) -> None:
        if not (self.coef > 0 and (self.clip is None or self.clip > 0) and self.warmup >= 0):
            raise TutelageError(
                f"critic: coef and clip must be above 0 and warmup not below it; given {self}. "
                "Write critic=none for no critic, critic.clip=none for no clipping."
            )


@dataclass(frozen=True)
class GradientSteps:
    """An update of `epochs` passes over the rollout, in `minibatches` optimiser steps each."""

    epochs: int = 1
    minibatches: int = 1
    max_kl: float | None = None
    """A minibatch on which KL(old‖policy), in nats per token, is above this ends the passes before its step; None
    never does."""

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.minibatches < 1:
            raise TutelageError(f"update: epochs and minibatches must be at least 1; given {self}.")
        if self.max_kl is not None and not self.max_kl > 0:
            raise TutelageError(
                f"update.max_kl={self.max_kl:g} would stop before the first step; give a number above 0."
            )
        if self.max_kl is not None and self.steps == 1:
            raise TutelageError(
                "update.max_kl stops between optimiser steps, but there is only one per rollout."
            )

    @property
    def steps(self) -> int:
        """Optimiser steps per rollout."""
        return self.epochs * self.minibatches


@dataclass(frozen=True)
class NaturalStep:
    """An update of one step along F⁻¹g, with the length that moves the policy by `max_kl` to second order."""

    max_kl: float = 0.01
    """KL(old‖policy) of the step, nats per token."""
    damping: float = 0.1
    """Added to the Fisher matrix: F + damping · I."""
    cg: int = 10
    """Conjugate-gradient iterations for F⁻¹g."""
    backtracks: int = 10
    """Shorter steps that the search tries after the whole one."""
    decay: float = 0.8
    """Factor from one step length to the next."""
    search: bool = True
    """Shorten until the surrogate rises and the KL holds (TRPO); False takes the whole step (natural gradient)."""
    critic_steps: int = 5
    """Optimiser steps of the critic on the same rollout, each over the whole of it."""

    def __post_init__(self) -> None:
        above_zero = self.max_kl > 0 and self.cg >= 1 and self.critic_steps >= 1 and 0 < self.decay < 1
        if not above_zero or self.damping < 0 or self.backtracks < 0:
            raise TutelageError(
                "update: max_kl must be above 0, decay between 0 and 1, cg and critic_steps at least 1, "
                f"damping and backtracks not below 0; given {self}."
            )
        whole = (self.backtracks, self.decay) == (NaturalStep.backtracks, NaturalStep.decay)
        if not self.search and not whole:
            raise TutelageError(
                "update.search=false takes the whole step, so backtracks and decay would do nothing."
            )


Update = GradientSteps | NaturalStep


@dataclass(frozen=True)
class Linear:
    """A schedule: from `start` to `end` in `steps` steps of the loop, then `end`."""

    start: float = 0.01
    end: float = 0.0
    steps: int = 100

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise TutelageError(f"a Linear schedule needs at least one step, not {self.steps}.")

    def __call__(self, step: float) -> float:
        return self.start + (self.end - self.start) * min(step / self.steps, 1.0)


Schedule = float | Linear


def at_step(schedule: Schedule, step: float) -> float:
    """The value of a schedule at a step of the loop."""
    return schedule(step) if isinstance(schedule, Linear) else schedule


@dataclass(frozen=True, kw_only=True)
class Choices:
    """A piece or a value for each slot of an on-policy algorithm. `Recipe` holds choices that go together."""

    name: str
    paper: str = ""
    """Where it was published, as `arXiv:...` or author and year."""
    samples: int = 1
    """Completions per prompt, G."""
    dynamic_sampling: int = 0
    """Rounds of sampling at most to fill the batch with prompts whose completions score differently; 0 keeps
    the others too, 1 leaves them out and trains on what remains.
    """
    shaping: Shaping | StatefulShaping = ScoreShaping()  # noqa: RUF009 - frozen
    """From the reward's score to the one that is trained on."""
    penalty: Penalty | None = Penalty()
    """What moving away from the reference costs."""
    advantage: Advantage | StatefulAdvantage = RewardToGo()  # noqa: RUF009 - frozen
    """The estimator of Ψ."""
    surrogate: Surrogate = ScoreFunction()  # noqa: RUF009 - frozen
    """What is maximised, per token."""
    entropy: Schedule = 0.0
    """Coefficient of the full entropy of each token's distribution."""
    reduce: Reduce = "token_mean"
    """How tokens are weighed against each other."""
    critic: Critic | None = None
    update: Update = GradientSteps()
    ptx: float = 0.0
    """Weight of the language-modelling loss on pretraining text beside the objective (InstructGPT's PPO-ptx)."""


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
    has a term for; None if it has none."""
    exact = recipe.penalty is not None and recipe.penalty.kind == EXACT
    return recipe.penalty.mixture if recipe.penalty is not None and exact else None


def needs_greedy(recipe: Choices) -> bool:
    """Whether `prepare` must be given the scored greedy completion to each prompt."""
    return "greedy" in traits(recipe.advantage).needs


def needs_kl_old(recipe: Choices) -> bool:
    """Whether a controller needs KL(old‖policy) after the last optimiser step of an update (`Observation.kl_old`)."""
    return "kl_old" in traits(recipe.surrogate).needs
