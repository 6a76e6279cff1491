"""Items that raters may still be asked: the search for the next one, and how many there are.

Every search is bounded (`WINDOW` rows) but for `any_item`. Items that others hold are passed over (PostgreSQL; SQLite
has one writer at a time), and the one found is locked. The counts of one rater grow with the items of the study and the
rater's own answers, not with those of others, and use an index of every table.

A condition such as `started = 1` is written into the statement, not passed: only so does the database use the partial
index that `schema` keeps for it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from tutelage.people.store import schema
from tutelage.people.store.counters import COLUMNS, LockedItem, locked_item
from tutelage.people.store.engine import Connection

WINDOW = 500
_NO_ROUND = 2**31 - 1
"""A number beyond that of every round."""

_items, _assignments = schema.item, schema.assignment


def _later(name: str) -> sa.BindParameter[int]:
    return sa.bindparam(name)


_rater, _study, _item = _later("rater"), _later("study"), _later("item")
_room, _since, _start, _round = _later("room"), _later("since"), _later("start"), _later("round")


def _unseen(item_id: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    """The rater has neither answered, nor skipped, nor holds the item; one that ran out may be asked again."""
    seen: sa.Select = sa.select(sa.literal_column("1")).where(
        _assignments.c.item_id == item_id,
        _assignments.c.rater_id == _rater,
        _assignments.c.repeat == 0,
        _assignments.c.state.in_(("leased", "done", "skipped")),
    )
    return ~sa.exists(seen)


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
    """A condition that lets SQLite use a partial index, but by which it does not search in it.

    Of `room > 0` and `room = 2` it would take the range, and then read and sort all started items of a round.
    """

    name = "likely"
    inherit_cache = True


@compiles(_Likely)
def _plain(element: _Likely, compiler: SQLCompiler, **more: object) -> str:
    """On PostgreSQL, the condition itself."""
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
    found = sa.select(*COLUMNS).where(queue, _items.c.shuffle <= looked_at, _unseen(_items.c.id))
    return found.order_by(_items.c.shuffle).limit(1).with_for_update(skip_locked=True, of=_items)


_OPEN_FROM = _open_item(_items.c.shuffle >= _start)
_OPEN_BEFORE = _open_item(_items.c.shuffle < _start)
_ANY = sa.select(_items.c.id).where(_PRODUCTION, schema.OPEN, _unseen(_items.c.id)).limit(1)

_NEW_TO = sa.select(_items.c.id).where(_items.c.id == _item, _unseen(_items.c.id))


def open_rounds(connection: Connection, study_id: int) -> Iterator[tuple[int, int]]:
    """The rounds with an open item, newest first, each with the most places left of a started item (0 where none is
    open)."""
    number = _NO_ROUND
    while True:
        found = connection.execute(_ROUND_BEFORE, {"study": study_id, "round": number}).one_or_none()
        if found is None:
            return
        number, most_room = found
        yield number, most_room


def started_item(
    connection: Connection, study_id: int, rater_id: int, number: int, room: int, since: int
) -> tuple[LockedItem | None, int]:
    """The item of a round with `room` places, new to the rater, that was touched longest ago after `since`; and the
    time up to which all were searched."""
    wanted = {"study": study_id, "rater": rater_id, "round": number, "room": room, "since": since}
    first = connection.execute(_NEXT_STARTED, wanted).one_or_none()
    if first is not None:
        return locked_item(first), first.touched - 1
    return None, (connection.scalar(_LOOKED_AT, wanted) or since + 1) - 1


def fresh_item(connection: Connection, study_id: int, number: int, *, by_priority: bool) -> LockedItem | None:
    """An item of a round that nobody was asked yet: the one of greatest priority, or the next in shuffled order."""
    query = _FRESH_BY_PRIORITY if by_priority else _FRESH_SHUFFLED
    return _first(connection, query, {"study": study_id, "round": number})


def any_fresh(connection: Connection, study_id: int) -> bool:
    """Whether there is an item that nobody was asked yet."""
    return connection.scalar(_ANY_FRESH, {"study": study_id}) is not None


def random_item(connection: Connection, study_id: int, rater_id: int, start: int) -> LockedItem | None:
    """The next item in shuffled order from `start` on, and round the end, that has room and is new to the rater."""
    wanted = {"study": study_id, "rater": rater_id, "start": start}
    return _first(connection, _OPEN_FROM, wanted) or _first(connection, _OPEN_BEFORE, wanted)


def _first(connection: Connection, query: sa.Select, wanted: Mapping[str, int]) -> LockedItem | None:
    row = connection.execute(query, wanted).one_or_none()
    return None if row is None else locked_item(row)


def any_item(connection: Connection, study_id: int, rater_id: int) -> int | None:
    """Any item with room that is new to the rater, however long the search."""
    return connection.scalar(_ANY, {"study": study_id, "rater": rater_id})


def is_new_to(connection: Connection, item_id: int, rater_id: int) -> bool:
    """Whether the rater may still be asked about the item."""
    return connection.scalar(_NEW_TO, {"item": item_id, "rater": rater_id}) is not None


def unjudged_item(connection: Connection, study_id: int, rater_id: int) -> int | None:
    """The first item, with or without room, after those this model judge has been asked."""
    mine = _assignments.c.rater_id == rater_id
    lost = (
        sa.select(_assignments.c.item_id)
        .where(mine, _assignments.c.state.in_(("expired", "released")))
        .limit(1)
    )
    again = connection.scalar(lost)
    if again is not None:
        return again
    last = connection.scalar(sa.select(sa.func.max(_assignments.c.item_id)).where(mine)) or 0
    asked = sa.and_(_items.c.study_id == study_id, _items.c.pool != "training", _items.c.excluded.is_(None))
    return connection.scalar(
        sa.select(_items.c.id).where(asked, _items.c.id > last).order_by(_items.c.id).limit(1)
    )


def known_item(connection: Connection, study_id: int, rater_id: int, pool: str, start: int) -> int | None:
    """An item of the pool `gold` or `training`, new to the rater, in shuffled order from `start` on and round the
    end."""
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
    rater's time; with the order it was shown in."""
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
    found = connection.execute(query.order_by(closed, _assignments.c.id).limit(1)).one_or_none()
    return None if found is None else (found.item_id, tuple(json.loads(found.order)))


_own = sa.and_(_assignments.c.rater_id == _rater, _assignments.c.repeat == 0)
_with_items = _assignments.join(_items, _items.c.id == _assignments.c.item_id)


def _open(pool: str) -> sa.ColumnElement[bool]:
    return sa.and_(_items.c.study_id == _study, _items.c.pool == pool, schema.OPEN)


def _number(source: sa.FromClause, *conditions: sa.ColumnElement[bool]) -> sa.ScalarSelect[int]:
    return sa.select(sa.func.count()).select_from(source).where(*conditions).scalar_subquery()


_HELD = _number(_with_items, _own, schema.LEASED, _items.c.pool == "production")
_KNOWN = _number(
    _with_items, _own, _assignments.c.state.in_(("leased", "done", "skipped")), _open("production")
)
_LEFT = sa.select(_number(_items, _open("production")) - _KNOWN + _HELD)
_taken = _assignments.alias("taken")
_NEW = ~sa.exists().where(
    _taken.c.item_id == _assignments.c.item_id,
    _taken.c.rater_id == _rater,
    _taken.c.repeat == 0,
    _taken.c.state.in_(("leased", "done", "skipped")),
)
_MAY_COME_BACK = (
    sa.select(_assignments.c.id)
    .select_from(_with_items)
    .where(
        schema.LEASED,
        _assignments.c.study_id == _study,
        _assignments.c.rater_id != _rater,
        _assignments.c.counted == 1,
        _NEW,
    )
    .where(_assignments.c.repeat == 0, _items.c.pool == "production", _items.c.excluded.is_(None))
    .limit(1)
)
_PRACTISED = _number(_with_items, _own, _assignments.c.state.in_(("done", "skipped")), _open("training"))
_PRACTICE_LEFT = sa.select(_number(_items, _open("training")) - _PRACTISED)


def count_left(connection: Connection, study_id: int, rater_id: int) -> int:
    """The number of production items that the rater holds or may still be asked; known answers not included."""
    return connection.scalar(_LEFT, {"study": study_id, "rater": rater_id}) or 0


def may_come_back(connection: Connection, study_id: int, rater_id: int) -> bool:
    """Whether other raters hold an item that the rater may be asked if they give it back."""
    return connection.scalar(_MAY_COME_BACK, {"study": study_id, "rater": rater_id}) is not None


@dataclass(frozen=True)
class Room:
    """The answers that the items of a study still take, pending ones included; the number of open `items`; and by rater
    the number of these already asked, except pending ones (`known`)."""

    answers: int
    items: int
    known: Mapping[int, int]

    def left_of(self, rater_id: int) -> int:
        """`count_left` of the rater."""
        return max(0, self.items - self.known.get(rater_id, 0))


def room_of(connection: Connection, study_id: int) -> Room:
    """The room of a study for answers, in two passes over its open items."""
    room = sa.select(sa.func.count(), sa.func.sum(_items.c.room)).where(_open("production"))
    items, places = connection.execute(room, {"study": study_id}).one()
    leased = sa.case((schema.LEASED, 1), else_=0)
    closed = sa.and_(_open("production"), _assignments.c.state.in_(("leased", "done", "skipped")))
    known = sa.func.sum(sa.case((closed, 1), else_=0)) - sa.func.sum(leased)
    taken = sa.func.sum(leased * _assignments.c.counted)
    by_rater = (
        sa.select(_assignments.c.rater_id, known, taken)
        .select_from(_with_items)
        .where(_items.c.study_id == _study, _items.c.pool == "production", _assignments.c.repeat == 0)
        .where(sa.or_(schema.OPEN, schema.LEASED))
        .group_by(_assignments.c.rater_id)
    )
    rows = connection.execute(by_rater, {"study": study_id}).all()
    answers = int(places or 0) + sum(int(row[2]) for row in rows)
    return Room(answers, items, {row[0]: int(row[1]) for row in rows})


def count_practice_left(connection: Connection, study_id: int, rater_id: int) -> int:
    """The number of practice questions that the rater has not answered."""
    return connection.scalar(_PRACTICE_LEFT, {"study": study_id, "rater": rater_id}) or 0
