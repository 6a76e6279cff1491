"""Exclusion of raters, items and judgements, and re-inclusion.

An exclusion adds a reason and deletes nothing. Excluded raters get no more questions, and excluded votes free their
places, so that items still reach their overlap. Each exclusion and re-inclusion is an event, so that the exclusions at
any earlier moment can be reconstructed.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.people.languages import Sentence
from tutelage.people.store import schema
from tutelage.people.store.engine import Connection, Store, chunks, record_event
from tutelage.people.store.studies import room_for, touched_from
from tutelage.people.validation import FieldError, record_number

Scope: TypeAlias = Literal["rater", "item", "judgement"]

_items, _assignments, _judgements, _raters = schema.item, schema.assignment, schema.judgement, schema.rater
_others = _raters.alias()
"""Raters other than the one of the outer query. Module-level, because SQLAlchemy copies every column for each new
alias, which took longer than the query itself."""


def people_in(study_id: sa.ColumnElement[int]) -> sa.Exists:
    """Whether a person is a rater of a study."""
    return sa.exists().where(_others.c.study_id == study_id, _others.c.kind == "human", _others.c.role == "rater")


def fills_no_places(people: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Whether a rater's answers leave places free: excluded raters, model judges, and simulated raters in studies with
    `people`."""
    stands_aside = sa.and_(_raters.c.kind == "simulated", people)
    return sa.or_(_raters.c.excluded.is_not(None), _raters.c.kind == "llm", stands_aside)


_HAS_PEOPLE = sa.select(sa.case((people_in(sa.bindparam("study", type_=sa.Integer)), 1), else_=0))
_UNKNOWN: Mapping[Scope, Callable[[str], Sentence]] = {
    "rater": lambda name: Sentence("There is no rater “%(name)s” in this study.", name=name),
    "item": lambda name: Sentence("There is no item “%(name)s” in this study.", name=name),
    "judgement": lambda name: Sentence("There is no judgement “%(name)s” in this study.", name=name),
}
_TABLES = {"rater": _raters, "item": _items, "judgement": _judgements}


@dataclass(frozen=True)
class Exclusions:
    """Exclusions at one moment, with their reasons: raters by name, items by key, judgements by id."""

    rater: dict[str, str]
    item: dict[str, str]
    judgement: dict[str, str]


def exclude(store: Store, study_id: int, scope: Scope, name: str, reason: str, *, actor: str = "owner") -> None:
    """Exclude a rater (by name), an item (by key) or a judgement (by id): its votes no longer count. Raises FieldError
    if the study has no such object, or the reason is empty."""
    exclude_all(store, study_id, scope, [name], reason, actor=actor)


def exclude_all(
    store: Store, study_id: int, scope: Scope, names: Sequence[str], reason: str, *, actor: str = "owner"
) -> None:
    """Exclude several raters, items or judgements for the same reason, all or none. Raises like `exclude`."""
    if not reason.strip():
        raise FieldError("reason", "Give a reason: it is shown with the exclusion later.")
    _set(store, study_id, scope, names, reason, actor)


def include_all(store: Store, study_id: int, scope: Scope, names: Sequence[str], *, actor: str = "owner") -> None:
    """Undo the exclusion of several raters, items or judgements, all or none."""
    _set(store, study_id, scope, names, None, actor)


def include(store: Store, study_id: int, scope: Scope, name: str, *, actor: str = "owner") -> None:
    """Undo the exclusion of a rater, an item or a judgement. Raises TutelageError if the study has no such object."""
    include_all(store, study_id, scope, [name], actor=actor)


def exclusions_until(connection: Connection, study_id: int, event_id: int) -> Exclusions:
    """Exclusions in force after this event."""
    events = schema.event
    query = (
        sa.select(events.c.action, events.c.subject, events.c.detail)
        .where(events.c.study_id == study_id, events.c.action.in_(("exclude", "include")), events.c.id <= event_id)
        .order_by(events.c.id)
    )
    state = Exclusions({}, {}, {})
    for action, name, detail in connection.execute(query):
        change = json.loads(detail)
        reasons: dict[str, str] = getattr(state, change["scope"])
        reasons.pop(name, None)
        if action == "exclude":
            reasons[name] = change["reason"]
    return state


def _set(store: Store, study_id: int, scope: Scope, names: Sequence[str], reason: str | None, actor: str) -> None:
    now, table = store.now(), _TABLES[scope]
    action = "include" if reason is None else "exclude"
    with store.write(alone=True) as connection:
        targets = [_find(connection, study_id, scope, name) for name in names]
        for some in chunks(targets):
            connection.execute(table.update().where(table.c.id.in_(some)).values(excluded=reason))
            concerned = {
                "rater": _assignments.c.rater_id.in_(some),
                "item": _assignments.c.item_id.in_(some),
                "judgement": _assignments.c.id.in_(
                    sa.select(_judgements.c.assignment_id).where(_judgements.c.id.in_(some))
                ),
            }[scope]
            count_again(connection, concerned, now)
            if scope == "item":
                room = {"room": room_for(_items.c.target), "touched": touched_from(now)}
                connection.execute(_items.update().where(_items.c.id.in_(some)).values(**room))
        for name in names:
            record_event(connection, study_id, now, actor, action, name, scope=scope, reason=reason)


def _find(connection: Connection, study_id: int, scope: Scope, name: str) -> int:
    table = _TABLES[scope]
    if scope == "judgement" and not name.isdecimal():
        raise TutelageError(f"A judgement is excluded by its number, not '{name[:100]}'.")
    same = {"rater": _raters.c.name == name, "item": _items.c.key == name}
    match = same[scope] if scope in same else _judgements.c.id == record_number(name)
    row_id = connection.scalar(sa.select(table.c.id).where(table.c.study_id == study_id, match))
    if row_id is None:
        raise FieldError(f"{scope}s", _UNKNOWN[scope](name[:100]))
    return row_id


def count_again(connection: Connection, concerned: sa.ColumnElement[bool], now: int) -> None:
    """Recompute which assignments count, and the counters of their items, like `counters.recount` in bulk. Needs an
    exclusive write transaction."""
    out_of_account = sa.or_(
        _assignments.c.extra == 1,
        sa.exists().where(_raters.c.id == _assignments.c.rater_id, fills_no_places(people_in(_raters.c.study_id))),
        sa.exists().where(
            _judgements.c.assignment_id == _assignments.c.id,
            _judgements.c.latest == 1,
            _judgements.c.excluded.is_not(None),
        ),
    )
    counted = sa.case((out_of_account, 0), else_=1)
    connection.execute(_assignments.update().where(concerned).values(counted=counted))
    items = _items.c.id.in_(sa.select(_assignments.c.item_id).where(concerned))
    states = {"answered": "done", "leased": "leased", "skipped": "skipped"}
    verdicts = {"a_votes": "a", "b_votes": "b", "ties": "tie", "both_bad": "both_bad"}
    mine = sa.and_(_assignments.c.item_id == _items.c.id, _assignments.c.repeat == 0, _assignments.c.counted == 1)
    number = sa.select(sa.func.count())
    values: dict[str, Any] = {
        name: number.where(mine, _assignments.c.state == state).scalar_subquery() for name, state in states.items()
    }
    latest = sa.and_(_judgements.c.assignment_id == _assignments.c.id, _judgements.c.latest == 1)
    votes = number.select_from(_assignments.join(_judgements, latest)).where(mine)
    for name, verdict in verdicts.items():
        values[name] = votes.where(_judgements.c.verdict == verdict).scalar_subquery()
    # Verdicts that are numbers of steps, as in `counters.count_sides`.
    steps = votes.where(sa.func.substr(_judgements.c.verdict, 1, 1).in_(tuple("0123456789")))
    most = steps.group_by(_judgements.c.verdict).order_by(sa.func.count().desc()).limit(1).scalar_subquery()
    values["a_votes"] += sa.func.coalesce(most, 0)
    values["b_votes"] += steps.scalar_subquery() - sa.func.coalesce(most, 0)
    values["started"] = sa.case(
        (sa.exists().where(_assignments.c.item_id == _items.c.id, _assignments.c.repeat == 0), 1), else_=0
    )
    connection.execute(_items.update().where(items).values(**values))
    connection.execute(_items.update().where(items).values(room=room_for(_items.c.target), touched=touched_from(now)))


def has_people(connection: Connection, study_id: int) -> bool:
    """Whether a person is a rater of the study."""
    return bool(connection.scalar(_HAS_PEOPLE, {"study": study_id}))
