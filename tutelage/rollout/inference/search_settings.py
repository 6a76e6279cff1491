"""Settings of test-time preference optimisation."""

from dataclasses import dataclass

from tutelage.base.config.bounds import at_least


@dataclass(frozen=True)
class SearchSettings:
    """How far test-time preference optimisation looks (Li et al. 2025)."""

    rounds: int = 0
    """Rounds of critique, advice and revision; 0 does without, 2 is usual."""
    width: int = 5
    """Answers sampled at first, and revisions written in each round."""
    words: int = 512
    """Length limit of a critique and of an advice in tokens."""

    def __post_init__(self) -> None:
        at_least(self, rounds=0, width=2, words=1)
