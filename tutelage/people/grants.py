"""Access to a study granted by owners: API tokens, webhooks, invitations."""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias, get_args
from urllib.parse import urlsplit

from tutelage.base.sentences import Sentence
from tutelage.people.validation import FieldError, check_ranges, find_named, number, refuse_unstorable

Right: TypeAlias = Literal["read", "add", "export", "manage"]
"""The rights of an API token; `manage`: the operations."""
RIGHTS: tuple[Right, ...] = get_args(Right)
Topic: TypeAlias = Literal["round", "agreement", "inbox"]
TOPICS: tuple[Topic, ...] = get_args(Topic)
"""Topics of webhooks: full rounds, low agreement, and all other notices of the inbox."""
LONGEST_NAME = 100
LONGEST_NOTE = 200
LEAST_DAYS, MOST_DAYS = 0.01, 3_650
_DAYS = Sentence("The number of days")


class Credential(NamedTuple):
    """The number of a grant in the store, and its secret, which is shown once: for tokens and invitations, only the
    hash is stored."""

    number: int
    secret: str


@dataclass(frozen=True)
class NewToken:
    """A token for a program that uses the API."""

    name: str = field(metadata={"flag": "new"})
    """Name of the new token, describing its purpose."""
    rights: tuple[Right, ...] = ("read",)
    """Rights of the token: read progress, items and raters; add items; export preferences and votes; manage
    recruitment, consent, the plan, webhooks and invitations of raters."""
    days: float | None = number(_DAYS, LEAST_DAYS, MOST_DAYS, default=None)
    """Days until the token expires (default: never)."""

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
            names = ", ".join(RIGHTS)
            raise FieldError(
                "rights", Sentence("A token without a right is of no use: give one or more of %(known)s.", known=names)
            )
        check_ranges(self)


@dataclass(frozen=True)
class NewWebhook:
    """A webhook for events of a study."""

    url: str = field(metadata={"flag": "add"})
    """URL of the webhook: https://hooks.example.org/…"""
    topics: tuple[Topic, ...] = ("round", "agreement")
    """Events to send: round, a round is full; agreement, agreement fell below the threshold; inbox, all other notices
    of the inbox."""

    def __post_init__(self) -> None:
        _check_address(self.url)
        unknown = Sentence("'%(given)s' is nothing to be told of: give one or more of %(known)s.")
        for topic in self.topics:
            find_named("topics", topic, dict.fromkeys(TOPICS), unknown)
        if not self.topics:
            names = ", ".join(TOPICS)
            raise FieldError(
                "topics", Sentence("Say what the address is told of: give one or more of %(known)s.", known=names)
            )


def _check_address(url: str) -> None:
    """Raises FieldError unless this is an http or https URL without user name and password."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or not url.isprintable() or " " in url or len(url) > 2_000:
        raise FieldError(
            "url",
            Sentence("The webhook '%(url)s' is no address; write it as https://hooks.example.org/….", url=url[:200]),
        )
    if parts.username or parts.password:
        raise FieldError(
            "url", Sentence("Leave name and password out of the webhook; its messages are signed instead.")
        )


@dataclass(frozen=True)
class NewInvitation:
    """An invitation link."""

    role: Literal["rater", "reviewer", "owner"] = field(default="rater", metadata={"people": True})
    """Role of people who follow the link."""
    uses: int = number(Sentence("The number of people"), 1, 100_000, default=1)
    """Number of people who can use the link."""
    days: float = number(_DAYS, LEAST_DAYS, MOST_DAYS, default=14.0)
    """Days until the link expires."""
    note: str = ""
    """Private note, such as whom the link is for."""

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
