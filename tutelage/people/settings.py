"""Settings of a study: the plan for assigning questions, the consent text, and what owners grant access by: API tokens,
webhooks and invitations.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias, get_args
from urllib.parse import urlsplit

from tutelage.base.sentences import Sentence, Share
from tutelage.people.validation import FieldError, check_ranges, find_named, number, refuse_unstorable

Unranked: TypeAlias = Literal["finish_first", "random"]
Policy: TypeAlias = Literal[Unranked, "priority"]
MOST_KNOWN = 0.5
"""Maximum share of questions that have a known answer or are repeats."""


@dataclass(frozen=True)
class Plan:
    """The plan for assigning questions to raters."""

    overlap: int = number(Sentence("The number of raters"), 1, 100, default=2)
    """Raters per item."""
    policy: Policy = "finish_first"
    """Order of items: finish_first, started items, then new ones at random; random, any open item; priority, new items
    by the priorities set with `collect next`."""
    gold_rate: float = number(Sentence("The share of known answers"), 0, MOST_KNOWN, share=True, default=0.05)
    """Share of questions with a known answer."""
    repeat_rate: float = number(Sentence("The share asked again"), 0, MOST_KNOWN, share=True, default=0.04)
    """Share of questions that are repeated with swapped sides."""
    training_pass: float = number(Sentence("The share of practice"), 0, 1, share=True, default=0.8)
    """Share of right answers required to pass the practice."""
    lease_seconds: int = number(Sentence("The time"), 1, 86_400, default=900)
    """Seconds for which a question is reserved for a rater."""

    def __post_init__(self) -> None:
        refusal = Sentence("There is no order “%(given)s” of items; it is %(known)s.")
        find_named("policy", self.policy, dict.fromkeys(get_args(Policy)), refusal)
        check_ranges(self)
        if self.gold_rate + self.repeat_rate > MOST_KNOWN:
            raise FieldError(
                "gold_rate",
                "Known answers (%(gold)s) and questions asked again (%(repeats)s) must not be negative, nor take "
                "more than half of all questions together.",
                gold=Share(self.gold_rate),
                repeats=Share(self.repeat_rate),
            )


VotesOfForgotten: TypeAlias = Literal["keep", "erase"]
LONGEST_CONSENT = 50_000


@dataclass(frozen=True)
class Consent:
    """The consent text of raters, and the retention of their votes and data."""

    text: str = field(default="", metadata={"file": True})
    """Consent text in Markdown (default: the standard text)."""
    votes: VotesOfForgotten = "keep"
    """Votes of a forgotten rater: keep (under a number) or erase."""
    retention_days: int | None = number(Sentence("The number of days"), 1, 36_500, default=None)
    """Days of inactivity after which a rater is forgotten automatically (default: never)."""

    def __post_init__(self) -> None:
        if self.votes not in ("keep", "erase"):
            raise FieldError(
                "votes",
                "Votes of a forgotten rater are kept under a number (keep) or erased (erase), not “%(given)s”.",
                given=self.votes[:50],
            )
        check_ranges(self)
        if len(self.text) > LONGEST_CONSENT:
            raise FieldError(
                "text",
                "The text has %(length)s characters; at most %(most)s are kept.",
                length=len(self.text),
                most=LONGEST_CONSENT,
            )
        refuse_unstorable(self.text, Sentence("The text"), "text")


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
                "A token's name has 1 to %(most)s printable characters; %(name)s has not.",
                most=LONGEST_NAME,
                name=repr(self.name[:120]),
            )
        refuse_unstorable(self.name, Sentence("The name of the token"), "name")
        unknown = Sentence("'%(given)s' is no right of a token: give one or more of %(known)s.")
        for right in self.rights:
            find_named("rights", right, dict.fromkeys(RIGHTS), unknown)
        if not self.rights:
            names = ", ".join(RIGHTS)
            raise FieldError(
                "rights", "A token without a right is of no use: give one or more of %(known)s.", known=names
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
            raise FieldError("topics", "Say what the address is told of: give one or more of %(known)s.", known=names)


def _check_address(url: str) -> None:
    """Raises FieldError unless this is an http or https URL without user name and password."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable or not url.isprintable() or " " in url or len(url) > 2_000:
        raise FieldError(
            "url", "The webhook '%(url)s' is no address; write it as https://hooks.example.org/….", url=url[:200]
        )
    if parts.username or parts.password:
        raise FieldError("url", "Leave name and password out of the webhook; its messages are signed instead.")


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
                "The text has %(length)s characters; at most %(most)s are kept.",
                length=len(self.note),
                most=LONGEST_NOTE,
            )
        refuse_unstorable(self.note, Sentence("The note"), "note")
