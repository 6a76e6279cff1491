"""Settings of reward modelling."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tutelage.base import config
from tutelage.base.config.bases import BatchSettings, WeightSettings
from tutelage.base.config.bounds import at_least, changed_flags
from tutelage.base.errors import TutelageError
from tutelage.commands.study import StudySettings

NEWLINE = "\\n"
LossName: TypeAlias = Literal["soft", "bt", "margin", "scaled", "davidson"]


@dataclass(frozen=True, kw_only=True)
class RewardSettings(StudySettings, WeightSettings, BatchSettings):
    """Train a reward model: a language model with one linear output at the last token, fitted to preferences by −log
    σ(score of the chosen − score of the rejected). With --steps a process reward model, which scores every step."""

    data: str
    """Preferences: a file or hub data set with chosen and rejected answers, whose format is detected; or a study: its
    folder, its database file, or a postgresql:// URL. With --steps a file or data set of rated steps."""
    loss: LossName = "soft"
    """soft: labels as probabilities; bt: labels as certain; margin: requires a margin by strength; scaled: weights by
    strength; davidson: keeps ties, and fits the raters' tendency to declare them."""
    steps: bool = field(default=False, metadata=config.LATER)
    """Train a process reward model: --data has completions in rated steps, and the score at the end of each step is the
    log-odds that it is good, fitted by cross-entropy."""
    separator: str = field(default=NEWLINE, metadata=config.LATER)
    """Text after each step, if --steps are texts, at which completions are split later; \\n is a line break."""
    test: str = ""
    """Preferences, or rated steps, for the final accuracy, such as single votes; by default the held-out pairs."""
    centre: str = ""
    """Demonstrations on which the mean score is set to 0; by default the chosen answers."""
    optimiser: config.Optimiser = field(default_factory=lambda: config.Optimiser(warmup=0.05))
    epochs: float = 1.0
    """Passes over the preferences; more than one or two overfit."""
    held_out: float = 0.1
    """Share of held-out prompts, to measure loss and accuracy."""
    evaluate_every: int = 20
    """Evaluate on the held-out pairs every N steps; the model with the lowest loss is kept."""
    patience: int = 5
    """Stop after this many evaluations without a better held-out loss; 0 never stops early."""

    RATES = config.Rates(all=1e-5, lora=3e-4)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, patience=0)
        if self.steps:
            self._check_steps()
        elif self.separator != NEWLINE:
            raise TutelageError("--separator is about the steps of --steps; it has no other effect.")

    @property
    def separator_text(self) -> str:
        """The separator, with line breaks and tabs for \\n and \\t."""
        return self.separator.replace("\\n", "\n").replace("\\t", "\t")

    def _check_steps(self) -> None:
        """Raise TutelageError for settings of preferences, and without a separator."""
        for flag in changed_flags(self, ("loss", "centre", "study", "kinds", "study_rows")):
            raise TutelageError(
                f"{flag} is about preferences, and --steps trains on the labels of single steps: omit one of the two."
            )
        if not self.separator:
            raise TutelageError("--separator is empty, so no completion could be split into steps: name a text.")
