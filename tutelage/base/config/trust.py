"""The settings of verbs that train on a reward, which may be held against people's votes first."""

from dataclasses import dataclass

from tutelage.base.errors import TutelageError


@dataclass(frozen=True, kw_only=True)
class TrustSettings:
    """A study that says how far a reward can be trusted."""

    trust: str = ""
    """A study (its database file, its folder, or a postgresql:// URL) whose votes the reward is held against before it
    trains: it is refused where it agrees less with the raters than they do with each other."""
    trust_study: str = ""
    """The study's name, where a database holds several."""
    trust_anyway: bool = False
    """Train on a reward that --trust would refuse."""

    def check_trust(self) -> None:
        """Raise TutelageError for settings that do nothing."""
        if not self.trust and (self.trust_study or self.trust_anyway):
            raise TutelageError("--trust-study and --trust-anyway go with --trust, which names a study.")
