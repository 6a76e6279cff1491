"""The settings of the commands of `tutelage collect` about programs: tokens for the API, and webhooks."""

from dataclasses import dataclass
from typing import Literal

from tutelage.base.errors import TutelageError
from tutelage.commands.collecting.settings import CollectSettings


@dataclass(frozen=True, kw_only=True)
class Token(CollectSettings):
    """Make a token for a program that uses the API, and print it: only its hash is kept. Without --new and --revoke the
    tokens are listed."""

    new: str = ""
    """Name of a new token, which says what it is for."""
    rights: tuple[Literal["read", "add", "export"], ...] = ("read",)
    """What it may: read how far the study is, with items and raters; add items; export preferences and votes."""
    days: float | None = None
    """How long it works; until it is revoked unless given."""
    revoke: str = ""
    """Name of a token to revoke."""

    def __post_init__(self) -> None:
        if self.new and self.revoke:
            raise TutelageError("Make a token or revoke one: give --new or --revoke.")
        if not self.new and (self.days is not None or self.rights != ("read",)):
            raise TutelageError("--rights and --days are those of a new token; name it with --new.")


@dataclass(frozen=True, kw_only=True)
class Webhook(CollectSettings):
    """Tell an address what happens in the study, and print the secret that messages are signed with. Without --add,
    --remove, --rotate and --test the webhooks are listed. `collect serve` sends the messages."""

    add: str = ""
    """Address to tell: https://hooks.example.org/…"""
    topics: tuple[Literal["round", "agreement", "inbox"], ...] = ("round", "agreement")
    """What it is told: round, a round is full; agreement, it fell below --least-agreement; inbox, everything else that
    comes into the inbox."""
    least_agreement: float | None = None
    """Share below which agreement is told of, for the whole study; 0 for never."""
    remove: int | None = None
    """Number of a webhook to remove."""
    rotate: int | None = None
    """Number of a webhook to give a new secret, which is printed."""
    overlap_hours: int = 24
    """Hours for which messages are signed with the former secret as well, with --rotate; 0 where somebody else has
    learnt it."""
    test: int | None = None
    """Number of a webhook to send a test to; the status is 1 where it does not arrive."""

    def __post_init__(self) -> None:
        done = (bool(self.add), *(each is not None for each in (self.remove, self.rotate, self.test)))
        if sum(done) > 1:
            raise TutelageError("Do one thing at a time: give --add, --remove, --rotate or --test.")
        if self.rotate is None and self.overlap_hours != 24:
            raise TutelageError(
                "--overlap-hours is for the former secret of a webhook; name it with --rotate."
            )
        if not self.add and self.topics != ("round", "agreement"):
            raise TutelageError("--topics are those of a new webhook; name its address with --add.")
