"""Requests and responses of the API, for the server, the API description and the client.

Times are milliseconds since the epoch; shares are between 0 and 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

Limit: TypeAlias = Annotated[int, Meta(ge=1, le=500, description="Maximum number of entries.")]
Cursor: TypeAlias = Annotated[
    str, Meta(max_length=40, description="Start of the page: the `cursor` of the previous page.")
]
RaterKind: TypeAlias = Literal["human", "llm", "simulated"]
MOST_ROWS = 10_000
Rows: TypeAlias = Annotated[tuple[Mapping[str, Any], ...], Meta(min_length=1, max_length=MOST_ROWS)]


@dataclass(frozen=True)
class RoundProgress:
    """Progress of a round of a study."""

    number: int
    items: int
    done: int
    """Complete items."""
    agreement: float | None
    """Share of pairs of votes on the same item that agree."""


@dataclass(frozen=True)
class Overview:
    """Progress of a study."""

    study: str
    state: Literal["open", "paused", "closed"]
    kind: str
    version: int
    """Current version of the question."""
    items: int
    items_done: int
    """Complete items."""
    votes: int
    """Answers that fill places of items, without skipped questions, practice, known answers and repeats."""
    votes_wanted: int
    """Votes needed to complete all items."""
    judgements: int
    """All answers in force, including skipped questions."""
    skipped: int
    flagged: int
    raters: int
    rounds: tuple[RoundProgress, ...]


@dataclass(frozen=True)
class AgreementFigures:
    """Agreement of two raters on the better side, with a 95 % interval; `note` is the reason if there is no value."""

    value: float | None
    low: float | None
    high: float | None
    items: int
    """Items with two or more raters."""
    pairs: int
    note: str
    by_criterion: Mapping[str, float | None]
    """Krippendorff's alpha by criterion, in studies with ratings of single responses."""
    at: int
    """Time of the computation."""


@dataclass(frozen=True)
class MessageValue:
    """A message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    reasoning_content: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()
    name: str = ""
    tool_call_id: str = ""


@dataclass(frozen=True)
class ResponseValue:
    """A response to a prompt, with the name of its model."""

    id: str
    text: str
    model: str
    steps: tuple[Any, ...] = ()
    """The steps of a trace, or of a text whose steps are judged: texts, or lists of messages."""


@dataclass(frozen=True)
class ItemValue:
    """A question of the study: its prompt, responses in canonical order (a, b, …), and votes so far."""

    key: str
    round: int
    pool: Literal["production", "gold", "training"]
    gold: str | None
    messages: tuple[MessageValue, ...]
    responses: tuple[ResponseValue, ...]
    target: int
    """Number of raters that the item needs."""
    answered: int
    skipped: int
    votes: Mapping[str, int]
    """Counted votes by verdict: a, b, tie, both_bad."""
    excluded: str | None
    """Reason for the exclusion of the item."""
    tools: tuple[Any, ...] = ()
    """The schemas of the tools that the conversation offers."""


@dataclass(frozen=True)
class ItemPage:
    """A page of items; `cursor` is that of the next page, null on the last."""

    items: tuple[ItemValue, ...]
    cursor: str | None


@dataclass(frozen=True)
class RaterCounts:
    """Statistics of a rater."""

    rater: str
    """Pseudonym of the rater in judgements, exports and webhook messages."""
    name: str
    kind: RaterKind
    state: Literal["training", "active", "paused"]
    excluded: str | None
    seen: int | None
    """Time of the last activity."""
    answered: int
    skipped: int
    flagged: int
    gold_seen: int
    gold_right: int
    repeat_seen: int
    repeat_same: int


@dataclass(frozen=True)
class RaterPage:
    """A page of raters; `cursor` is that of the next page, null on the last."""

    raters: tuple[RaterCounts, ...]
    cursor: str | None


@dataclass(frozen=True)
class NewRows:
    """Rows to add as items: preferences in any format that `collect init --from-pairs` reads (labels are ignored), or
    lines of the items.jsonl of an export."""

    rows: Rows
    round: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    """Round of the items for preferences; lines of an export contain their round."""


@dataclass(frozen=True)
class Added:
    """Result of adding rows."""

    items: int
    """New items."""
    known: int
    """Items that already existed with the same content."""
    prompts: int
    responses: int
    read_as: str
    """Detected format of the rows."""
    notes: tuple[str, ...]
    """Omitted rows with reasons, such as ties."""


@dataclass(frozen=True)
class Problem:
    """Reason for the refusal of a request."""

    what: str
    """The error."""
    where: str
    """Location of the error: a header, query parameter or row."""
    instead: str
    """Suggested correction; may be empty."""
    message: str
    """The complete error message."""


@dataclass(frozen=True)
class Refused:
    """Response to a refused request."""

    error: Problem


@dataclass(frozen=True)
class NoQuery:
    """A query without parameters."""


@dataclass(frozen=True)
class PageQuery:
    """Parameters of a page of a list."""

    limit: Limit = 100
    cursor: Cursor = ""


@dataclass(frozen=True)
class ItemQuery(PageQuery):
    """Parameters of a page of items."""

    state: Annotated[
        Literal["", "open", "done", "disagreed", "excluded"],
        Meta(description="open: needs more answers; done: complete; disagreed: has votes for both sides."),
    ] = ""
    pool: Literal["", "production", "gold", "training"] = ""
    round: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None


Since: TypeAlias = Annotated[
    int, Meta(ge=0, le=2**63 - 1, description="Number of a judgement: only later ones, in order of arrival.")
]
Redact: TypeAlias = Annotated[
    bool, Meta(description="Replace apparent personal data in texts by people, as `collect export --redact` does.")
]


@dataclass(frozen=True)
class VoteQuery:
    """Filter for judgements."""

    kinds: Annotated[
        tuple[RaterKind, ...], Meta(description="Kinds of raters; simulated raters are not included by default.")
    ] = ("human", "llm")
    since: Since = 0
    redact: Redact = False


@dataclass(frozen=True)
class PreferenceLine:
    """A preference as a line of preferences.jsonl of an export: TRL's columns and its origin."""

    prompt: str | tuple[Mapping[str, Any], ...]
    chosen: str | tuple[Mapping[str, Any], ...]
    rejected: str | tuple[Mapping[str, Any], ...]
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
    tools: tuple[Any, ...] = ()
    """The schemas of the tools that the conversation offers."""


@dataclass(frozen=True)
class CorrectionLine:
    """A better response that a rater wrote, over the one that it corrects, as a line of corrections.jsonl of an
    export."""

    prompt: str | tuple[Mapping[str, Any], ...]
    chosen: str | tuple[Mapping[str, Any], ...]
    rejected: str | tuple[Mapping[str, Any], ...]
    p_chosen: float
    weight: float
    margin: float
    item_id: str
    judgement: int
    rater: str
    """Pseudonym of the rater."""
    rejected_id: str
    rejected_model: str
    split: str
    round: int
    study: str
    tools: tuple[Any, ...] = ()
    """The schemas of the tools that the conversation offers."""


@dataclass(frozen=True)
class SpanLine:
    """Words that a rater marked in a response, as a line of spans.jsonl of an export. Positions count Unicode code
    points from 0, the end exclusive."""

    item_id: str
    completion_id: str
    model: str
    judgement: int
    rater: str
    """Pseudonym of the rater."""
    category: str
    start: int
    end: int
    words: str


@dataclass(frozen=True)
class VoteLine:
    """A judgement as a line of votes.jsonl of an export, which has further columns, such as those of its kind."""

    id: int
    item: str
    rater: str
    """Pseudonym of the rater, as in exports."""
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
