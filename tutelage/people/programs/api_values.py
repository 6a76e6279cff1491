"""What the API takes and answers. The server encodes these values, the description of the API is made of them, and the
client returns them.

Times are milliseconds since the epoch, shares lie between 0 and 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

Limit: TypeAlias = Annotated[int, Meta(ge=1, le=500, description="How many at most.")]
Cursor: TypeAlias = Annotated[
    str, Meta(max_length=40, description="Where to go on: the `cursor` of the page before.")
]
RaterKind: TypeAlias = Literal["human", "llm", "simulated"]
MOST_ROWS = 10_000


@dataclass(frozen=True)
class RoundProgress:
    """How far one round of a study is."""

    number: int
    items: int
    done: int
    """Items that have all their answers."""
    agreement: float | None
    """The share of pairs of votes on the same item that agree."""


@dataclass(frozen=True)
class Overview:
    """How far a study is."""

    study: str
    state: Literal["open", "paused", "closed"]
    kind: str
    version: int
    """The version of the question that is asked."""
    items: int
    items_done: int
    """Items that have all their answers."""
    votes: int
    """Answers to items that fill their places; skipped ones, practice, known answers and repeats are not among them."""
    votes_wanted: int
    """Votes with which every item is done."""
    judgements: int
    """All answers in force, skipped ones included."""
    skipped: int
    flagged: int
    raters: int
    rounds: tuple[RoundProgress, ...]


@dataclass(frozen=True)
class AgreementFigures:
    """How often two raters choose the same side, with a 95 % interval; `note` says why there is no value."""

    value: float | None
    low: float | None
    high: float | None
    items: int
    """Items with two raters or more."""
    pairs: int
    note: str
    by_criterion: Mapping[str, float | None]
    """Krippendorff's alpha of each criterion, in studies whose raters rate responses one by one."""
    at: int
    """When the figures were computed."""


@dataclass(frozen=True)
class MessageValue:
    """A turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class ResponseValue:
    """A response to a prompt, with the name of the model that wrote it."""

    id: str
    text: str
    model: str


@dataclass(frozen=True)
class ItemValue:
    """A question of the study: a prompt, responses in canonical order (a, b, …), and what was said so far."""

    key: str
    round: int
    pool: Literal["production", "gold", "training"]
    gold: str | None
    messages: tuple[MessageValue, ...]
    responses: tuple[ResponseValue, ...]
    target: int
    """How many raters the item needs."""
    answered: int
    skipped: int
    votes: Mapping[str, int]
    """Votes that count, by verdict: a, b, tie, both_bad."""
    excluded: str | None
    """Why the item does not count."""


@dataclass(frozen=True)
class ItemPage:
    """A page of items; `cursor` leads to the next one, and is null on the last."""

    items: tuple[ItemValue, ...]
    cursor: str | None


@dataclass(frozen=True)
class RaterCounts:
    """What a rater has done, in numbers."""

    rater: str
    """What stands for the rater in judgements, exports and messages of webhooks."""
    name: str
    kind: RaterKind
    state: Literal["training", "active", "paused"]
    excluded: str | None
    seen: int | None
    """The last sign of life."""
    answered: int
    skipped: int
    flagged: int
    gold_seen: int
    gold_right: int
    repeat_seen: int
    repeat_same: int


@dataclass(frozen=True)
class RaterPage:
    """A page of raters; `cursor` leads to the next one, and is null on the last."""

    raters: tuple[RaterCounts, ...]
    cursor: str | None


@dataclass(frozen=True)
class NewRows:
    """Rows to add as items: preferences in any format that `collect init --from-pairs` reads (their labels are left
    aside), or lines of the items.jsonl of an export."""

    rows: Annotated[tuple[Mapping[str, Any], ...], Meta(min_length=1, max_length=MOST_ROWS)]
    round: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    """The round that preferences become items of; lines of an export say theirs."""


@dataclass(frozen=True)
class Added:
    """What came of rows."""

    items: int
    """New items."""
    known: int
    """Items that were in the study before, with the same content."""
    prompts: int
    responses: int
    read_as: str
    """The format that the rows were read as."""
    notes: tuple[str, ...]
    """Rows that were left out, and why: ties, which prefer nothing."""


@dataclass(frozen=True)
class Problem:
    """Why a request was refused."""

    what: str
    """What is wrong."""
    where: str
    """Where it is wrong: a header, a part of the query, a row."""
    instead: str
    """What to do instead; may be empty."""
    message: str
    """All of it as text."""


@dataclass(frozen=True)
class Refused:
    """The answer to a request that was refused."""

    error: Problem


@dataclass(frozen=True)
class NoQuery:
    """A query without parts."""


@dataclass(frozen=True)
class PageQuery:
    """Which page of a list."""

    limit: Limit = 100
    cursor: Cursor = ""


@dataclass(frozen=True)
class ItemQuery(PageQuery):
    """Which items."""

    state: Annotated[
        Literal["", "open", "done", "disagreed", "excluded"],
        Meta(
            description="open: answers are wanted still; done: all are there; disagreed: votes for both sides."
        ),
    ] = ""
    pool: Literal["", "production", "gold", "training"] = ""
    round: Annotated[int, Meta(ge=1)] | None = None


@dataclass(frozen=True)
class VoteQuery:
    """Which judgements are listed."""

    kinds: Annotated[
        tuple[RaterKind, ...], Meta(description="Kinds of rater; simulated raters where they are named.")
    ] = ("human", "llm")


@dataclass(frozen=True)
class PreferenceLine:
    """A preference, as a line of preferences.jsonl of an export: TRL's columns, and where they come from."""

    prompt: str | tuple[Mapping[str, str], ...]
    chosen: str | tuple[Mapping[str, str], ...]
    rejected: str | tuple[Mapping[str, str], ...]
    p_chosen: float
    weight: float
    margin: float
    n_votes: int
    votes: Mapping[str, int]
    strength: float
    item_id: str
    chosen_id: str
    rejected_id: str
    chosen_model: str
    rejected_model: str
    split: str
    round: int
    study: str


@dataclass(frozen=True)
class VoteLine:
    """A judgement as a line of votes.jsonl of an export, which has more columns, among them those of the kind."""

    id: int
    item: str
    rater: str
    """The pseudonym of the rater, as in exports."""
    rater_kind: RaterKind
    pool: str
    verdict: str
    strength: int
    sides: tuple[int, ...]
    revision: int
    latest: bool
    repeat: bool
    extra: bool
    version: int
    excluded: str | None
    created: int
    kind: str
