"""Settings of rejection-sampling fine-tuning."""

from dataclasses import dataclass, field

from tutelage.base import config
from tutelage.base.config.bases import BatchSettings, RoundSettings
from tutelage.base.config.bounds import a_share, at_least
from tutelage.base.errors import TutelageError


@dataclass(frozen=True, kw_only=True)
class RejectionSettings(RoundSettings, BatchSettings):
    """Rejection sampling (RAFT, Dong et al. 2023, arXiv 2304.06767): sample completions of each prompt, keep the best,
    fine-tune on them; in --rounds, each with completions of the current policy."""

    keep: int = 1
    """Best completions per prompt to train on."""
    overall: float = 0.0
    """Instead of --keep, share of all completions of a round to train on, the best across prompts; prompts with high
    scores then weigh more."""
    optimiser: config.Optimiser = field(default_factory=lambda: config.Optimiser(warmup=0.03))
    epochs: float = 1.0
    """Passes over the completions of a round."""
    held_out: float = 0.05
    """Share of held-out prompts, to measure the score of a new completion."""
    evaluate_every: int = 50
    """Evaluate on the held-out prompts every N steps."""

    RATES = config.Rates(all=2e-5, lora=3e-4)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, keep=1)
        a_share(self, "overall")
        if not self.prompts or not self.reward:
            raise TutelageError("rejection needs --prompts, and a --reward that scores the completions.")
        if self.keep >= self.samples:
            raise TutelageError(
                f"--keep {self.keep} of --samples {self.samples} rejects nothing: keep fewer, or sample more."
            )
        if self.overall and self.keep != type(self).keep:
            raise TutelageError("--keep counts per prompt and --overall across prompts: give one of the two.")
