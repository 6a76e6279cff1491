"""Items that can still be assigned to raters: the search for the next one, and their number.

Every search except `any_item` is bounded (`WINDOW` rows). Items locked by others are skipped (on PostgreSQL; SQLite has
one writer at a time), and the result is locked. The counts of one rater scale with the items of the study and the
rater's own answers, not with those of others, and are covered by indexes.

Conditions such as `started = 1` are literals in the statement, not parameters: only then does the database use the
partial indexes of `schema`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from tutelage.people.store import schema
from tutelage.people.store.engine import Connection
from tutelage.people.store.items import COLUMNS, LockedItem, locked_item

WINDOW = 500
_NO_ROUND = 2**31 - 1
"""A number greater than that of any round."""

_items, _assignments = schema.item, schema.assignment


def _later(name: str) -> sa.BindParameter[int]:
    return sa.bindparam(name)


_rater, _study, _item = _later("rater"), _later("study"), _later("item")
_room, _since, _start, _round = _later("room"), _later("since"), _later("start"), _later("round")


def _unseen(item_id: sa.ColumnElement[int], own: sa.FromClause = _assignments) -> sa.ColumnElement[bool]:
    """Condition that the rater neither answered, skipped nor holds the item; expired assignments do not count. `own`
    are assignments under another name than those of the outer query."""
    assigned: sa.Select = sa.select(sa.literal_column("1")).where(
        own.c.item_id == item_id,
        own.c.rater_id == _rater,
        own.c.repeat == 0,
        own.c.state.in_(("leased", "done", "skipped")),
    )
    return ~sa.exists(assigned)


_PRODUCTION = sa.and_(_items.c.study_id == _study, _items.c.pool == "production")
_OF_ROUND = sa.and_(_PRODUCTION, _items.c.round == _round)
_same_round = _items.alias("same_round")
_MOST_ROOM = (
    sa.select(sa.func.coalesce(sa.func.max(_same_round.c.room), 0))
    .where(_same_round.c.study_id == _study, _same_round.c.pool == "production")
    .where(_same_round.c.round == _items.c.round, schema.started(_same_round))
    .scalar_subquery()
)
_ROUND_BEFORE = (
    sa.select(_items.c.round, _MOST_ROOM)
    .where(_PRODUCTION, schema.OPEN, _items.c.round < _round)
    .order_by(_items.c.round.desc())
    .limit(1)
)

_END: sa.ColumnElement[int] = sa.literal_column(str(2**62))


class _Likely(FunctionElement):
    """A condition for which SQLite uses a partial index, but does not search in it.

    Given `room > 0` and `room = 2`, it would use the range, and then read and sort all started items of a round.
    """

    name = "likely"
    inherit_cache = True


@compiles(_Likely)
def _plain(element: _Likely, compiler: SQLCompiler, **more: object) -> str:
    """The condition itself, for PostgreSQL."""
    return compiler.process(element.clauses, **more)


@compiles(_Likely, "sqlite")
def _likely(element: _Likely, compiler: SQLCompiler, **more: object) -> str:
    return f"likely({compiler.process(element.clauses, **more)})"


_started = sa.and_(*(_Likely(condition) for condition in schema.STARTED.clauses))
_queue = sa.and_(_OF_ROUND, _started, _items.c.room == _room, _items.c.touched > _since)
_touched = sa.select(_items.c.touched).where(_queue).order_by(_items.c.touched)
_looked_at = sa.func.coalesce(_touched.offset(WINDOW).limit(1).scalar_subquery(), _END)
_NEXT_STARTED = (
    sa.select(*COLUMNS, _items.c.touched)
    .where(_queue, _items.c.touched <= _looked_at, _unseen(_items.c.id))
    .order_by(_items.c.touched, _items.c.id)
    .limit(1)
    .with_for_update(skip_locked=True, of=_items)
)
_LOOKED_AT = sa.select(sa.func.max(_items.c.touched)).where(_queue, _items.c.touched <= _looked_at)

_fresh = sa.select(*COLUMNS).where(_OF_ROUND, schema.FRESH, _items.c.room > 0).limit(1)
_fresh = _fresh.with_for_update(skip_locked=True)
_ANY_FRESH = sa.select(_items.c.id).where(_PRODUCTION, schema.FRESH, _items.c.room > 0).limit(1)
_FRESH_SHUFFLED = _fresh.order_by(_items.c.shuffle)
_FRESH_BY_PRIORITY = _fresh.order_by(_items.c.priority.desc(), _items.c.shuffle.desc())


def _open_item(part: sa.ColumnElement[bool]) -> sa.Select:
    queue = sa.and_(_PRODUCTION, schema.OPEN, part)
    order = sa.select(_items.c.shuffle).where(queue).order_by(_items.c.shuffle)
    looked_at = sa.func.coalesce(order.offset(WINDOW).limit(1).scalar_subquery(), _END)
    query = sa.select(*COLUMNS).where(queue, _items.c.shuffle <= looked_at, _unseen(_items.c.id))
    return query.order_by(_items.c.shuffle).limit(1).with_for_update(skip_locked=True, of=_items)


_OPEN_FROM = _open_item(_items.c.shuffle >= _start)
_OPEN_BEFORE = _open_item(_items.c.shuffle < _start)
_ANY = sa.select(_items.c.id).where(_PRODUCTION, schema.OPEN, _unseen(_items.c.id)).limit(1)

_NEW_TO = sa.select(_items.c.id).where(_items.c.id == _item, _unseen(_items.c.id))


def open_rounds(connection: Connection, study_id: int) -> Iterator[tuple[int, int]]:
    """Rounds with an open item, newest first, each with the maximum room of a started item (0 if none is open)."""
    number = _NO_ROUND
    while True:
        row = connection.execute(_ROUND_BEFORE, {"study": study_id, "round": number}).one_or_none()
        if row is None:
            return
        number, most_room = row
        yield number, most_room


def started_item(
    connection: Connection, study_id: int, rater_id: int, number: int, room: int, since: int
) -> tuple[LockedItem | None, int]:
    """The least recently touched item of a round with `room` places, touched after `since` and new to the rater; and
    the time up to which all items were searched."""
    parameters = {"study": study_id, "rater": rater_id, "round": number, "room": room, "since": since}
    first = connection.execute(_NEXT_STARTED, parameters).one_or_none()
    if first is not None:
        return locked_item(first), first.touched - 1
    return None, (connection.scalar(_LOOKED_AT, parameters) or since + 1) - 1


def fresh_item(connection: Connection, study_id: int, number: int, *, by_priority: bool) -> LockedItem | None:
    """An unassigned item of a round: the one with the highest priority, or the next in shuffled order."""
    query = _FRESH_BY_PRIORITY if by_priority else _FRESH_SHUFFLED
    return _first(connection, query, {"study": study_id, "round": number})


def any_fresh(connection: Connection, study_id: int) -> bool:
    """Whether there is an unassigned item."""
    return connection.scalar(_ANY_FRESH, {"study": study_id}) is not None


def random_item(connection: Connection, study_id: int, rater_id: int, start: int) -> LockedItem | None:
    """The next item in shuffled order from `start` on, wrapping around, that has room and is new to the rater."""
    parameters = {"study": study_id, "rater": rater_id, "start": start}
    return _first(connection, _OPEN_FROM, parameters) or _first(connection, _OPEN_BEFORE, parameters)


def _first(connection: Connection, query: sa.Select, parameters: Mapping[str, int]) -> LockedItem | None:
    row = connection.execute(query, parameters).one_or_none()
    return None if row is None else locked_item(row)


def any_item(connection: Connection, study_id: int, rater_id: int) -> int | None:
    """Any item with room that is new to the rater (unbounded search)."""
    return connection.scalar(_ANY, {"study": study_id, "rater": rater_id})


def is_new_to(connection: Connection, item_id: int, rater_id: int) -> bool:
    """Whether the item may still be assigned to the rater."""
    return connection.scalar(_NEW_TO, {"item": item_id, "rater": rater_id}) is not None


def unjudged_item(connection: Connection, study_id: int, rater_id: int) -> int | None:
    """The first item, with or without room, after those assigned to this model judge."""
    mine = _assignments.c.rater_id == rater_id
    lost = sa.select(_assignments.c.item_id).where(mine, _assignments.c.state.in_(("expired", "released"))).limit(1)
    again = connection.scalar(lost)
    if again is not None:
        return again
    last = connection.scalar(sa.select(sa.func.max(_assignments.c.item_id)).where(mine)) or 0
    eligible = sa.and_(_items.c.study_id == study_id, _items.c.pool != "training", _items.c.excluded.is_(None))
    return connection.scalar(sa.select(_items.c.id).where(eligible, _items.c.id > last).order_by(_items.c.id).limit(1))


def known_item(connection: Connection, study_id: int, rater_id: int, pool: str, start: int) -> int | None:
    """An item of the pool `gold` or `training`, new to the rater, in shuffled order from `start` on, wrapping
    around."""
    mine = sa.and_(_items.c.study_id == study_id, _items.c.pool == pool, schema.OPEN)
    for part in (_items.c.shuffle >= start, _items.c.shuffle < start):
        query = sa.select(_items.c.id).where(mine, part, _unseen(_items.c.id)).order_by(_items.c.shuffle)
        item_id = connection.scalar(query.limit(1), {"rater": rater_id})
        if item_id is not None:
            return item_id
    return None


def repeatable_item(
    connection: Connection, rater_id: int, fraction: float, apart: int
) -> tuple[int, tuple[int, ...]] | None:
    """An answered production item of the rater, at least `apart` answers old and not repeated, at `fraction` of the
    rater's time, and its display order."""
    mine = sa.and_(_assignments.c.rater_id == rater_id, _assignments.c.state == "done")
    closed = _assignments.c.closed
    latest = connection.scalar(sa.select(closed).where(mine).order_by(closed.desc()).limit(1).offset(apart))
    if latest is None:
        return None
    first = connection.scalar(sa.select(sa.func.min(closed)).where(mine)) or 0
    again = _assignments.alias()
    repeated = sa.exists().where(
        again.c.item_id == _assignments.c.item_id, again.c.rater_id == rater_id, again.c.repeat == 1
    )
    start = int(first + fraction * (latest - first))
    query = (
        sa.select(_assignments.c.item_id, _assignments.c.order)
        .join(_items, _items.c.id == _assignments.c.item_id)
        .where(mine, _assignments.c.repeat == 0, closed.between(start, latest), ~repeated)
        .where(_items.c.pool == "production", _items.c.excluded.is_(None))
    )
    row = connection.execute(query.order_by(closed, _assignments.c.id).limit(1)).one_or_none()
    return None if row is None else (row.item_id, tuple(json.loads(row.order)))


_own = sa.and_(_assignments.c.rater_id == _rater, _assignments.c.repeat == 0)
_with_items = _assignments.join(_items, _items.c.id == _assignments.c.item_id)


def _open(pool: str) -> sa.ColumnElement[bool]:
    return sa.and_(_items.c.study_id == _study, _items.c.pool == pool, schema.OPEN)


def _number(source: sa.FromClause, *conditions: sa.ColumnElement[bool]) -> sa.ScalarSelect[int]:
    return sa.select(sa.func.count()).select_from(source).where(*conditions).scalar_subquery()


_HELD = _number(_with_items, _own, schema.LEASED, _items.c.pool == "production")
_KNOWN = _number(_with_items, _own, _assignments.c.state.in_(("leased", "done", "skipped")), _open("production"))
_LEFT = sa.select(_number(_items, _open("production")) - _KNOWN + _HELD)
_taken = _assignments.alias("taken")
_MAY_COME_BACK = (
    sa.select(_assignments.c.id)
    .select_from(_with_items)
    .where(
        schema.LEASED,
        _assignments.c.study_id == _study,
        _assignments.c.rater_id != _rater,
        _assignments.c.counted == 1,
        _unseen(_assignments.c.item_id, _taken),
    )
    .where(_assignments.c.repeat == 0, _items.c.pool == "production", _items.c.excluded.is_(None))
    .limit(1)
)
_PRACTISED = _number(_with_items, _own, _assignments.c.state.in_(("done", "skipped")), _open("training"))
_PRACTICE_LEFT = sa.select(_number(_items, _open("training")) - _PRACTISED)


def count_left(connection: Connection, study_id: int, rater_id: int) -> int:
    """Number of production items that the rater holds or may still get, without gold items."""
    return connection.scalar(_LEFT, {"study": study_id, "rater": rater_id}) or 0


def may_come_back(connection: Connection, study_id: int, rater_id: int) -> bool:
    """Whether other raters hold an item that could be assigned to the rater if they release it."""
    return connection.scalar(_MAY_COME_BACK, {"study": study_id, "rater": rater_id}) is not None


@dataclass(frozen=True)
class Room:
    """Number of answers still needed, including pending ones; number of open `items`; and, by rater, number of these
    already assigned, without pending ones (`known`)."""

    answers: int
    items: int
    known: Mapping[int, int]

    def left_of(self, rater_id: int) -> int:
        """`count_left` of the rater."""
        return max(0, self.items - self.known.get(rater_id, 0))


def room_of(connection: Connection, study_id: int) -> Room:
    """Answers still needed by a study, in two passes over its open items."""
    room = sa.select(sa.func.count(), sa.func.sum(_items.c.room)).where(_open("production"))
    items, places = connection.execute(room, {"study": study_id}).one()
    leased = sa.case((schema.LEASED, 1), else_=0)
    closed = sa.and_(_open("production"), _assignments.c.state.in_(("leased", "done", "skipped")))
    closed_answers = sa.func.sum(sa.case((closed, 1), else_=0)) - sa.func.sum(leased)
    taken = sa.func.sum(leased * _assignments.c.counted)
    by_rater = (
        sa.select(_assignments.c.rater_id, closed_answers, taken)
        .select_from(_with_items)
        .where(_items.c.study_id == _study, _items.c.pool == "production", _assignments.c.repeat == 0)
        .where(sa.or_(schema.OPEN, schema.LEASED))
        .group_by(_assignments.c.rater_id)
    )
    rows = connection.execute(by_rater, {"study": study_id}).all()
    answers = int(places or 0) + sum(int(row[2]) for row in rows)
    return Room(answers, items, {row[0]: int(row[1]) for row in rows})


def count_practice_left(connection: Connection, study_id: int, rater_id: int) -> int:
    """Number of practice questions that the rater has not answered."""
    return connection.scalar(_PRACTICE_LEFT, {"study": study_id, "rater": rater_id}) or 0
