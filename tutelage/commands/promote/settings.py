"""Settings of a promotion."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from tutelage.base.errors import TutelageError


@dataclass(frozen=True, kw_only=True)
class PromoteSettings:
    """Promote the model of a run over the present one on the evidence of a split test, or report what is missing. The
    decision is recorded in the run and its model card."""

    run: tyro.conf.Positional[Path]
    """Folder of the candidate that a training command wrote with --out."""
    outcomes: str | None = None
    """Table of responses to users: arm (a: the present model, b: the candidate), user, and optionally outcome (0 to 1,
    or true and false), error, seconds, time; or the study of `tutelage serve --feedback` that served both. Required
    unless --undo."""
    study: str = ""
    """Name of the study, if the database of --outcomes holds several."""
    split: float = 0.5
    """Share of the users who were assigned to the candidate."""
    margin: float = 0.0
    """The mean outcome of the candidate has to be higher by more than this."""
    level: float = 0.95
    """Probability with which each statement holds, at however many looks."""
    tolerance: float = 0.05
    """The candidate's shares of failed and of slow responses may be higher by this."""
    slow: float | None = None
    """Seconds from which a response is slow; by default latency is not checked."""
    hours: float = 24.0
    """Hours after a user's first response that count. A user counts once they have passed, by the clock of the newest
    response of either model."""
    link: Path | None = None
    """Symbolic link to the model that is served, moved to the candidate on promotion and back on --undo."""
    undo: bool = False
    """Withdraw the last promotion of the run."""
    json: bool = False
    """Print the result as JSON instead of a table."""

    def __post_init__(self) -> None:
        if self.undo == (self.outcomes is not None):
            raise TutelageError(
                "--undo withdraws a promotion and takes no --outcomes."
                if self.undo
                else "promote needs --outcomes FILE, the responses of the split test (or --undo)."
            )
        for flag, value, low, high in (
            ("split", self.split, 0.0, 1.0),
            ("level", self.level, 0.5, 1.0),
            ("tolerance", self.tolerance, 0.0, 1.0),
        ):
            if not low < value < high:
                raise TutelageError(f"--{flag} is {value:g}, not between {low:g} and {high:g}.")
        if not -1 < self.margin < 1:
            raise TutelageError(f"--margin is {self.margin:g}, not between -1 and 1.")
        for flag, seconds in (("slow", self.slow), ("hours", self.hours)):
            if seconds is not None and not 0 < seconds < float("inf"):
                raise TutelageError(f"--{flag} is {seconds:g}, not a positive number.")
