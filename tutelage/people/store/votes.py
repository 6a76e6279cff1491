"""Judgements of a study, now or at a snapshot: as votes with all their data, and as numeric rows for statistics over
millions."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import sqlalchemy as sa

from tutelage.data.records import Judgement
from tutelage.people.answers import Canonical, Correction, Span, correction_from, correction_row, span_rows, spans_from
from tutelage.people.kinds import KINDS, find_kind
from tutelage.people.kinds.kind import PairVerdict
from tutelage.people.store import schema
from tutelage.people.store.additions import count_steps
from tutelage.people.store.engine import Connection, Store, value_of
from tutelage.people.store.exclusions import Exclusions, exclusions_until
from tutelage.people.store.raters import DECIDING, pseudonym_of

VERDICTS = ("a", "b", "tie", "both_bad", "skip")
"""Verdicts in records."""

_judgements, _items, _raters, _assignments = schema.judgement, schema.item, schema.rater, schema.assignment


@dataclass(frozen=True)
class Snapshot:
    """A moment of a study, given by its last judgement and event. Reads at a snapshot are repeatable."""

    last_judgement: int
    last_event: int


@dataclass(frozen=True, slots=True)
class Vote:
    """A judgement with all its data.

    `rater` is the name; `sides` is the display order; `excluded` is the reason why it does not count, if any;
    `chosen_by` is the reason for the assignment (an `owner` or a `reviewer` adjudicates); `latest` is whether no later
    revision exists. `correction` and `spans` refer to canonical indices.
    """

    id: int
    assignment: int
    item: str
    rater: str
    rater_id: int
    rater_kind: str
    pool: str
    chosen_by: str
    verdict: str
    strength: int
    content: Mapping[str, object]
    criteria: Mapping[str, str]
    displayed: Mapping[str, object]
    sides: tuple[int, ...]
    flags: tuple[str, ...]
    reason: str
    revision: int
    latest: bool
    repeat: bool
    extra: bool
    version: int
    active_ms: int | None
    wall_ms: int | None
    changes: int
    client: str
    key: str
    excluded: str | None
    created: int
    kind: str
    correction: Correction | None
    spans: tuple[Span, ...]

    @property
    def pseudonym(self) -> str:
        """Name of the rater in exports."""
        return pseudonym_of(self.rater_id, self.rater_kind, self.rater)

    @property
    def decides(self) -> bool:
        """Whether it is an adjudication, which decides the label of the item."""
        return self.chosen_by in DECIDING

    @property
    def canonical(self) -> Canonical:
        return Canonical(self.verdict, self.strength, self.content, self.criteria)

    @property
    def pairs(self) -> Iterable[PairVerdict]:
        """Verdicts on all pairs of the responses."""
        return find_kind(self.kind).pairs(self.canonical, len(self.sides))


_FIELDS = tuple(field.name for field in fields(Vote) if field.name != "rater_id")
_NOTHING = {name: empty for kind in KINDS.values() for name, empty in kind.traits.parts.items()}
"""Empty fields of all kinds, so that every line of a file has the same fields."""


def freeze(store: Store, study_id: int) -> Snapshot:
    """Snapshot of the present: includes all judgements so far and no later ones."""
    with store.write(alone=True) as connection:
        return last_moment(connection, study_id)


def last_moment(connection: Connection, study_id: int) -> Snapshot:
    """`freeze` within a transaction that sees no half-written judgement."""
    events = schema.event
    judgement = sa.select(sa.func.max(_judgements.c.id)).where(_judgements.c.study_id == study_id)
    event = sa.select(sa.func.max(events.c.id)).where(events.c.study_id == study_id)
    return Snapshot(connection.scalar(judgement) or 0, connection.scalar(event) or 0)


def list_exclusions(store: Store, study_id: int, at: Snapshot | None = None) -> Exclusions:
    """Exclusions in force now, or at a snapshot."""
    with store.read() as connection:
        moment = at or last_moment(connection, study_id)
        return exclusions_until(connection, study_id, moment.last_event)


def list_votes(
    store: Store,
    study_id: int,
    *,
    at: Snapshot | None = None,
    item: str | None = None,
    rater: int | None = None,
    every_revision: bool = False,
) -> tuple[Vote, ...]:
    """Judgements in order of arrival, latest revisions only or all; of one item, one rater (by id), or all."""
    with store.read() as connection:
        moment = at or last_moment(connection, study_id)
        votes = iterate_votes(connection, study_id, moment, item=item, rater=rater)
        return tuple(vote for vote in votes if vote.latest or every_revision)


def iterate_votes(
    connection: Connection, study_id: int, at: Snapshot, *, item: str | None = None, rater: int | None = None
) -> Iterator[Vote]:
    """Iterate over every revision of every judgement at a snapshot."""
    later = _judgements.alias()
    superseded = sa.exists().where(
        later.c.assignment_id == _judgements.c.assignment_id,
        later.c.revision == _judgements.c.revision + 1,
        later.c.id <= at.last_judgement,
    )
    query = (
        sa.select(_judgements, _items.c.key, _items.c.pool, _raters.c.name, _assignments.c.chosen_by)
        .add_columns(_raters.c.kind.label("rater_kind"), schema.study.c.kind)
        .add_columns(schema.study_version.c.number, superseded.label("superseded"))
        .join(schema.study, schema.study.c.id == _judgements.c.study_id)
        .join(_items, _items.c.id == _judgements.c.item_id)
        .join(_raters, _raters.c.id == _judgements.c.rater_id)
        .join(_assignments, _assignments.c.id == _judgements.c.assignment_id)
        .join(schema.study_version, schema.study_version.c.id == _judgements.c.version_id)
        .where(_judgements.c.study_id == study_id, _judgements.c.id <= at.last_judgement)
        .order_by(_judgements.c.id)
    )
    if item is not None:
        query = query.where(_items.c.key == item)
    if rater is not None:
        query = query.where(_judgements.c.rater_id == rater)
    excluded = exclusions_until(connection, study_id, at.last_event)
    for row in connection.execute(query.execution_options(yield_per=1000)).mappings():
        yield _vote(row, excluded)


def list_judgements(store: Store, study_id: int) -> tuple[Judgement, ...]:
    """Latest plain verdicts on production pairs, as records, without excluded ones, repeats and adjudications."""
    return tuple(
        as_record(vote)
        for vote in list_votes(store, study_id)
        if vote.pool == "production" and vote.verdict in VERDICTS and not (vote.excluded or vote.repeat or vote.decides)
    )


def as_record(vote: Vote) -> Judgement:
    """Record for statistics and files, under the pseudonym; seconds are active time if known."""
    milliseconds = vote.active_ms if vote.active_ms is not None else vote.wall_ms or 0
    return Judgement(
        id=str(vote.id),
        comparison_id=vote.item,
        rater=vote.pseudonym,
        verdict=vote.verdict,  # type: ignore[arg-type]  # one of VERDICTS
        strength=vote.strength,
        left="a" if vote.sides[0] == 0 else "b",
        seconds=milliseconds / 1000,
        created=vote.created / 1000,
    )


def vote_row(vote: Vote) -> dict[str, object]:
    """A vote as a line of votes.jsonl, under the rater's pseudonym."""
    values = {name: getattr(vote, name) for name in _FIELDS} | {"rater": vote.pseudonym}
    content = dict(values.pop("content"))
    values |= {"correction": correction_row(vote.correction), "spans": span_rows(vote.spans)}
    return values | _NOTHING | content | {name: dict(values[name]) for name in ("criteria", "displayed")}


def _vote(row: sa.RowMapping, excluded: Exclusions) -> Vote:
    reasons = (excluded.judgement.get(str(row["id"])), excluded.rater.get(row["name"]), excluded.item.get(row["key"]))
    texts = {name: _mapping(row[name] or "{}") for name in ("content", "criteria", "displayed")}
    flags = {name: bool(row[name]) for name in ("repeat", "extra")}
    return value_of(
        Vote, row, assignment=row["assignment_id"], item=row["key"], rater=row["name"], sides=_list(row["order"]),
        flags=_list(row["flags"]), latest=not row["superseded"], version=row["number"], key=row["idempotency_key"],
        excluded=next((reason for reason in reasons if reason is not None), None),
        correction=None if row["correction"] is None else correction_from(json.loads(row["correction"])),
        spans=() if row["spans"] is None else spans_from(json.loads(row["spans"])), **texts, **flags,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _list(text: str) -> tuple[Any, ...]:
    """Parse a JSON list; cached, as most votes share a few values."""
    return tuple(json.loads(text))


@lru_cache(maxsize=4096)
def _mapping(text: str) -> Mapping[str, Any]:
    """Parse a JSON object; cached and shared between votes, so it must not be modified."""
    return MappingProxyType(json.loads(text))


POOLS = ("production", "gold", "training")
ANSWERS = ("a", "b", "tie")


def read_ballots(store: Store, study_id: int, after: int) -> Sequence[tuple[int, ...]]:
    """Judgements with ids above `after`, in order: id, assignment, item, rater, verdict (index in `VERDICTS`, or its
    length if the answer is only in the content), strength, canonical index of the left response, repeat, adjudication,
    version, active milliseconds (-1: unknown), time (milliseconds since the epoch). May include several revisions of an
    answer; the last one counts."""
    left = sa.cast(sa.func.substr(_judgements.c.order, 2, 1), sa.Integer)
    query = (
        sa.select(
            _judgements.c.id,
            _judgements.c.assignment_id,
            _judgements.c.item_id,
            _judgements.c.rater_id,
            _code(_judgements.c.verdict, VERDICTS, len(VERDICTS)),
        )
        .add_columns(
            _judgements.c.strength,
            left,
            _judgements.c.repeat,
            sa.case((_assignments.c.chosen_by.in_(DECIDING), 1), else_=0),
        )
        .add_columns(_judgements.c.version_id, sa.func.coalesce(_judgements.c.active_ms, -1), _judgements.c.created)
        .join(_assignments, _assignments.c.id == _judgements.c.assignment_id)
        .where(_judgements.c.study_id == study_id, _judgements.c.id > after)
        .order_by(_judgements.c.id)
    )
    with store.read() as connection:
        return [tuple(row) for row in connection.execute(query)]


def read_items(store: Store, study_id: int, after: int) -> Sequence[tuple[int, ...]]:
    """Items with ids above `after`: id, prompt, pool (index in `POOLS`), known answer (index in `ANSWERS`, -1: none),
    round."""
    gold = sa.case((_items.c.gold.is_(None), -1), else_=_code(_items.c.gold, ANSWERS))
    query = (
        sa.select(_items.c.id, _items.c.prompt_id, _code(_items.c.pool, POOLS), gold, _items.c.round)
        .where(_items.c.study_id == study_id, _items.c.id > after)
        .order_by(_items.c.id)
    )
    with store.read() as connection:
        return [tuple(row) for row in connection.execute(query)]


def read_golds(store: Store, study_id: int) -> dict[int, tuple[str, int]]:
    """The known answers of items by id, each with the number of steps of the first response."""
    links, responses = schema.item_response, schema.response
    query = (
        sa.select(_items.c.id, _items.c.gold, responses.c.steps)
        .join(links, sa.and_(links.c.item_id == _items.c.id, links.c.position == 0))
        .join(responses, responses.c.id == links.c.response_id)
        .where(_items.c.study_id == study_id, _items.c.gold.is_not(None))
    )
    with store.read() as connection:
        return {row.id: (row.gold, count_steps(row.steps)) for row in connection.execute(query)}


def excluded_numbers(store: Store, study_id: int) -> tuple[frozenset[int], frozenset[int]]:
    """Ids of the excluded items and raters."""
    with store.read() as connection:
        ids = []
        for table in (_items, schema.rater):
            query = sa.select(table.c.id).where(table.c.study_id == study_id, table.c.excluded.is_not(None))
            ids.append(frozenset(connection.scalars(query)))
    return ids[0], ids[1]


def _code(column: sa.Column, words: Sequence[str], other: int = -1) -> sa.Case[int]:
    return sa.case({word: place for place, word in enumerate(words)}, value=column, else_=other)
