"""The choices that make an on-policy algorithm. `tutelage.algorithms.checks` says whether they go together."""

from dataclasses import dataclass

from tutelage.algorithms.slots import Critic, GradientSteps, Penalty, Schedule, Update
from tutelage.core.advantages import Advantage, RewardToGo, StatefulAdvantage
from tutelage.core.reduce import Reduce
from tutelage.core.shaping import ScoreShaping, Shaping, StatefulShaping
from tutelage.core.surrogates import ScoreFunction, Surrogate


@dataclass(frozen=True, kw_only=True)
class Choices:
    """A piece or a value for each slot of an on-policy algorithm. `Recipe` holds choices that go together."""

    name: str
    paper: str = ""
    """Where it was published, as `arXiv:...` or author and year."""
    samples: int = 1
    """Responses per prompt, G."""
    dynamic_sampling: int = 0
    """Rounds of sampling at most to fill the batch with prompts whose responses score differently; 0 keeps
    the others too, 1 leaves them out and trains on what remains.
    """
    shaping: Shaping | StatefulShaping = ScoreShaping()  # noqa: RUF009 - frozen
    """From the reward's score to the one that is trained on."""
    penalty: Penalty | None = Penalty()  # noqa: RUF009 - frozen
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
    update: Update = GradientSteps()  # noqa: RUF009 - frozen
    ptx: float = 0.0
    """Weight of the language-modelling loss on pretraining text beside the objective (InstructGPT's PPO-ptx)."""
