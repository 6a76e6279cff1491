"""Settings of test-time preference optimisation."""

from dataclasses import dataclass

from tutelage.base.config.bounds import at_least


@dataclass(frozen=True)
class SearchSettings:
    """Search effort of test-time preference optimisation (Li et al. 2025)."""

    rounds: int = 0
    """Rounds of critique, advice and revision; 0 disables the search, 2 is usual."""
    width: int = 5
    """Completions sampled initially, and revisions written in each round."""
    words: int = 512
    """Maximum length of a critique or an advice, in tokens."""

    def __post_init__(self) -> None:
        at_least(self, rounds=0, width=2, words=1)
