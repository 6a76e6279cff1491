"""Access to a study that an owner grants: tokens of programs, webhooks, invitations."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias, get_args
from urllib.parse import urlsplit

from tutelage.base.sentences import Sentence
from tutelage.people.validation import FieldError, check_ranges, find_named, number, refuse_unstorable

Right: TypeAlias = Literal["read", "add", "export", "manage"]
"""What a token lets a program do; `manage`: the operations."""
RIGHTS: tuple[Right, ...] = get_args(Right)
Topic: TypeAlias = Literal["round", "agreement", "inbox"]
TOPICS: tuple[Topic, ...] = get_args(Topic)
"""Events that an address may be told of: full rounds, low agreement, and everything else in the inbox."""
LONGEST_NAME = 100
LONGEST_NOTE = 200
LEAST_DAYS, MOST_DAYS = 0.01, 3_650
_DAYS = Sentence("The number of days")


class Credential(NamedTuple):
    """The number of a grant in the store, and its secret, which is shown once: of a token and of an invitation only
    the hash is stored."""

    number: int
    secret: str


@dataclass(frozen=True)
class NewToken:
    """A token for a program that uses the API."""

    name: str = field(metadata={"flag": "new"})
    """Name of a new token, which says what it is for."""
    rights: tuple[Right, ...] = ("read",)
    """What it may: read how far the study is, with items and raters; add items; export preferences and votes;
    manage recruiting, consent, the plan, webhooks and the invitations of raters."""
    days: float | None = number(_DAYS, LEAST_DAYS, MOST_DAYS, default=None)
    """How long it works; until it is revoked unless given."""

    def __post_init__(self) -> None:
        if not self.name.strip() or len(self.name) > LONGEST_NAME or not self.name.isprintable():
            raise FieldError(
                "name",
                Sentence(
                    "A token's name has 1 to %(most)s printable characters; %(name)s has not.",
                    most=LONGEST_NAME,
                    name=repr(self.name[:120]),
                ),
            )
        refuse_unstorable(self.name, Sentence("The name of the token"), "name")
        unknown = Sentence("'%(given)s' is no right of a token: give one or more of %(known)s.")
        for right in self.rights:
            find_named("rights", right, dict.fromkeys(RIGHTS), unknown)
        if not self.rights:
            known = ", ".join(RIGHTS)
            raise FieldError(
                "rights",
                Sentence("A token without a right is of no use: give one or more of %(known)s.", known=known),
            )
        check_ranges(self)


@dataclass(frozen=True)
class NewWebhook:
    """An address that is told what happens in a study."""

    url: str = field(metadata={"flag": "add"})
    """Address to tell: https://hooks.example.org/…"""
    topics: tuple[Topic, ...] = ("round", "agreement")
    """What it is told: round, a round is full; agreement, it fell below the least agreement; inbox, everything else
    that comes into the inbox."""

    def __post_init__(self) -> None:
        _check_address(self.url)
        unknown = Sentence("'%(given)s' is nothing to be told of: give one or more of %(known)s.")
        for topic in self.topics:
            find_named("topics", topic, dict.fromkeys(TOPICS), unknown)
        if not self.topics:
            known = ", ".join(TOPICS)
            raise FieldError(
                "topics",
                Sentence("Say what the address is told of: give one or more of %(known)s.", known=known),
            )


def _check_address(url: str) -> None:
    """Raises FieldError for what is no http or https address, and for one with a password in it."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or not url.isprintable() or " " in url or len(url) > 2_000:
        raise FieldError(
            "url",
            Sentence(
                "The webhook '%(url)s' is no address; write it as https://hooks.example.org/….", url=url[:200]
            ),
        )
    if parts.username or parts.password:
        raise FieldError(
            "url", Sentence("Leave name and password out of the webhook; its messages are signed instead.")
        )


@dataclass(frozen=True)
class NewInvitation:
    """A link that lets people in."""

    role: Literal["rater", "reviewer", "owner"] = field(default="rater", metadata={"people": True})
    """What whoever follows the link may do."""
    uses: int = number(Sentence("The number of people"), 1, 100_000, default=1)
    """How many people may use the link."""
    days: float = number(_DAYS, LEAST_DAYS, MOST_DAYS, default=14.0)
    """How long the link is good for."""
    note: str = ""
    """For your own memory: whom it is for."""

    def __post_init__(self) -> None:
        refusal = Sentence("There is no role “%(given)s”; it is %(known)s.")
        find_named("role", self.role, dict.fromkeys(("rater", "reviewer", "owner")), refusal)
        check_ranges(self)
        if len(self.note) > LONGEST_NOTE:
            raise FieldError(
                "note",
                Sentence(
                    "The text has %(length)s characters; at most %(most)s are kept.",
                    length=len(self.note),
                    most=LONGEST_NOTE,
                ),
            )
        refuse_unstorable(self.note, Sentence("The note"), "note")
