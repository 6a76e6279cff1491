"""A study in numbers, from the counters that every transaction keeps: no text is touched, so that it stays quick."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import sqlalchemy as sa

from tutelage.people.store import schema
from tutelage.people.store.engine import Connection, Store, record_event

_items, _raters, _links, _responses = schema.item, schema.rater, schema.item_response, schema.response
_PRODUCTION = sa.and_(_items.c.pool == "production", _items.c.excluded.is_(None))


@dataclass(frozen=True)
class Counts:
    """Production items that are not excluded: how many there are, were started, have reached their target, and how
    many answers that takes in all (`wanted`) and has by now (`answered`); with both-bad and ties among these. Over all
    pools and raters: `judgements` in force, `skipped`, `flagged`."""

    items: int
    started: int
    complete: int
    wanted: int
    answered: int
    ties: int
    both_bad: int
    judgements: int
    skipped: int
    flagged: int


@dataclass(frozen=True)
class Round:
    """One trip through people: its items and answers in numbers, the models it compared, and what its lineage was said
    to be (`open_round`). `pairs` and `equal` count pairs of a-or-b votes on the same item, and those that agree."""

    number: int
    items: int
    complete: int
    a_votes: int
    b_votes: int
    ties: int
    both_bad: int
    pairs: int
    equal: int
    samplers: tuple[str, ...]
    lineage: Mapping[str, object]


@dataclass(frozen=True)
class Match:
    """Votes between the models of the two responses of items, in canonical order."""

    sampler_a: str
    sampler_b: str
    items: int
    a_votes: int
    b_votes: int
    ties: int
    both_bad: int


@dataclass(frozen=True)
class Event:
    """A line of the audit trail."""

    id: int
    at: int
    actor: str
    action: str
    subject: str
    detail: Mapping[str, object]


def count_study(store: Store, study_id: int) -> Counts:
    """How far the study is."""
    complete = sa.case((_items.c.answered >= _items.c.target, 1), else_=0)
    of_items = sa.select(
        sa.func.count(),
        _sum(_items.c.started),
        _sum(complete),
        _sum(_items.c.target),
        _sum(_items.c.answered),
    ).add_columns(_sum(_items.c.ties), _sum(_items.c.both_bad))
    of_raters = sa.select(
        _sum(_raters.c.answered + _raters.c.skipped), _sum(_raters.c.skipped), _sum(_raters.c.flagged)
    )
    with store.read() as connection:
        items = connection.execute(of_items.where(_items.c.study_id == study_id, _PRODUCTION)).one()
        raters = connection.execute(of_raters.where(_raters.c.study_id == study_id)).one()
    return Counts(*map(int, (*items, *raters)))


def open_round(
    store: Store, study_id: int, number: int, lineage: Mapping[str, object], *, actor: str = "owner"
) -> None:
    """Say where round `number` comes from: the policy that is asked about, what it was trained from, and so on."""
    with store.write() as connection:
        record_event(connection, study_id, store.now(), actor, "round_opened", str(number), **lineage)


def list_rounds(store: Store, study_id: int) -> tuple[Round, ...]:
    """The rounds of a study in order."""
    a, b = _items.c.a_votes, _items.c.b_votes
    complete = sa.case((_items.c.answered >= _items.c.target, 1), else_=0)
    pairs, equal = (a + b) * (a + b - 1) / 2, (a * (a - 1) + b * (b - 1)) / 2
    mine = sa.and_(_items.c.study_id == study_id, _PRODUCTION)
    query = (
        sa.select(_items.c.round, sa.func.count(), _sum(complete), _sum(a), _sum(b), _sum(_items.c.ties))
        .add_columns(_sum(_items.c.both_bad), _sum(pairs), _sum(equal))
        .where(mine)
        .group_by(_items.c.round)
        .order_by(_items.c.round)
    )
    with store.read() as connection:
        lineage = {
            event.subject: event.detail
            for event in _events(connection, study_id, "round_opened", 10_000)[::-1]
        }
        samplers = _samplers(connection, mine)
        return tuple(
            Round(row[0], *map(int, row[1:]), samplers.get(row[0], ()), lineage.get(str(row[0]), {}))  # type: ignore[call-arg,arg-type]
            for row in connection.execute(query)
        )


def list_matches(store: Store, study_id: int) -> tuple[Match, ...]:
    """How the models fared against each other, over all production pairs."""
    first, second = _links.alias(), _links.alias()
    left, right = _responses.alias(), _responses.alias()
    query = (
        sa.select(
            left.c.sampler, right.c.sampler, sa.func.count(), _sum(_items.c.a_votes), _sum(_items.c.b_votes)
        )
        .add_columns(_sum(_items.c.ties), _sum(_items.c.both_bad))
        .select_from(_items)
        .join(first, sa.and_(first.c.item_id == _items.c.id, first.c.position == 0))
        .join(second, sa.and_(second.c.item_id == _items.c.id, second.c.position == 1))
        .join(left, left.c.id == first.c.response_id)
        .join(right, right.c.id == second.c.response_id)
        .where(_items.c.study_id == study_id, _PRODUCTION, _items.c.places == 2)
        .group_by(left.c.sampler, right.c.sampler)
        .order_by(left.c.sampler, right.c.sampler)
    )
    with store.read() as connection:
        return tuple(Match(row[0], row[1], *map(int, row[2:])) for row in connection.execute(query))


def list_events(
    store: Store, study_id: int, *, action: str | None = None, limit: int = 100
) -> tuple[Event, ...]:
    """The audit trail, newest first."""
    with store.read() as connection:
        return tuple(_events(connection, study_id, action, limit))


def _events(connection: Connection, study_id: int, action: str | None, limit: int) -> list[Event]:
    events = schema.event
    query = sa.select(events).where(events.c.study_id == study_id).order_by(events.c.id.desc()).limit(limit)
    if action is not None:
        query = query.where(events.c.action == action)
    return [
        Event(row["id"], row["at"], row["actor"], row["action"], row["subject"], json.loads(row["detail"]))
        for row in connection.execute(query).mappings()
    ]


def _samplers(connection: Connection, mine: sa.ColumnElement[bool]) -> dict[int, tuple[str, ...]]:
    query = (
        sa.select(_items.c.round, _responses.c.sampler)
        .join(_links, _links.c.item_id == _items.c.id)
        .join(_responses, _responses.c.id == _links.c.response_id)
        .where(mine)
        .distinct()
        .order_by(_items.c.round, _responses.c.sampler)
    )
    found: dict[int, tuple[str, ...]] = {}
    for number, sampler in connection.execute(query):
        found[number] = (*found.get(number, ()), sampler)
    return found


def _sum(column: sa.ColumnElement) -> sa.ColumnElement[int]:
    return sa.func.coalesce(sa.func.sum(column), 0)
