"""The settings of the commands of `tutelage collect` about people: recruiting, paying and forgetting them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from tutelage.base.errors import TutelageError
from tutelage.commands.collecting.settings import CollectSettings


@dataclass(frozen=True, kw_only=True)
class Recruit(CollectSettings):
    """Recruit raters on Prolific, Mechanical Turk or SONA: set what is given, and print the link for the platform and
    what the study will cost. What is not given stays as it is."""

    platform: Literal["prolific", "mturk", "sona"] | None = None
    """The platform; needed the first time."""
    code: str | None = None
    """Completion code, which raters get when they are done. Empty, each visit has its own."""
    screened_code: str | None = None
    """Code of those who fail the practice."""
    return_url: str | None = None
    """Address that leads back to the platform, where it does not follow from the code: the completion URL of SONA."""
    answers: int | None = None
    """Answers of a visit. [default: 20]"""
    places: int | None = None
    """How many people may take part; 0 for any number. Whoever leaves gives the place back. [default: 0]"""
    again: bool | None = None
    """Let the same person come a second time."""
    minutes: int | None = None
    """Minutes without a sign of life until a place comes back. [default: 60]"""
    pay: float | None = None
    """Pay per hour."""
    currency: str | None = None
    """Its currency."""
    fee: float | None = None
    """Fee of the platform as a share of the pay: 0.2 is 20 %."""
    seconds: float | None = None
    """Seconds per answer, until enough are measured. [default: 45]"""
    url: str = "http://127.0.0.1:8000"
    """Where the site is reached."""


@dataclass(frozen=True, kw_only=True)
class Payments(CollectSettings):
    """Write time and counts of every visit as CSV, to pay by: with the names of raters and the identifiers of the
    platform, so keep it apart from exports."""

    out: Path | None = None
    """File to write; it must not exist. Without one the table is printed."""


@dataclass(frozen=True, kw_only=True)
class Consent(CollectSettings):
    """Set what raters agree to, as a new version; what is not given stays as it is. Prints the present version."""

    text: Path | None = None
    """File in Markdown, in place of the standard text."""
    votes: Literal["keep", "erase"] | None = None
    """What becomes of votes when a rater is forgotten: kept under a number, or erased. [default: keep]"""
    retention_days: int | None = None
    """Days after the last sign of life until a rater is forgotten unasked; 0 for never. [default: 0]"""


@dataclass(frozen=True, kw_only=True)
class Forget(CollectSettings):
    """Erase name, platform identifiers, free texts, sessions and links of a rater for good; votes stay under a number
    or are erased, as the rater agreed. The same is erased in backups; prints those where that
    is not possible."""

    rater: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RATER")] = ""
    """Name of the rater."""
    due: bool = False
    """Forget everybody whose time of retention is over, instead."""
    delete_backups: bool = False
    """Delete the backups that were made since the rater came."""

    def __post_init__(self) -> None:
        if bool(self.rater) == self.due:
            raise TutelageError("Name the rater to forget, or give --due.")
        if self.due and self.delete_backups:
            raise TutelageError("--delete-backups goes with a name; --due prints the backups.")
