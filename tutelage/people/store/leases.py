"""Reserving items for raters, and finding one worth reserving.

An assignment is the reservation and, later, the place of its answer. Per item and rater there is one (and one more for
a planned repeat), which the database itself enforces.
"""

import sqlalchemy as sa

from tutelage.people.store import schema
from tutelage.people.store.engine import inserted
from tutelage.people.store.studies import room_left

WINDOW = 500
"""Rows one look for an item may pass over; a longer search happens outside the writing transaction."""

_items, _assignments = schema.item, schema.assignment


def expire(connection: sa.Connection, study_id: int, now: int, lease_ms: int) -> int:
    """Return the items whose reservation ran out; how many there were.

    No reservation reaches further than one lease from now: if the clock was set back, the surplus is cut off, so that
    an item is blocked for one lease at most.
    """
    mine = sa.and_(schema.LEASED, _assignments.c.study_id == study_id)
    far = sa.and_(mine, _assignments.c.lease_ends > now + lease_ms)
    connection.execute(_assignments.update().where(far).values(lease_ends=now + lease_ms))
    due = sa.select(_assignments.c.id, _assignments.c.item_id).where(mine, _assignments.c.lease_ends <= now)
    rows = connection.execute(
        due.order_by(_assignments.c.item_id).limit(WINDOW).with_for_update(skip_locked=True)
    ).all()
    for assignment_id, item_id in rows:
        lock_item(connection, item_id)
        close(connection, assignment_id, item_id, "expired", now)
    return len(rows)


def overdue(connection: sa.Connection, study_id: int, now: int, lease_ms: int) -> bool:
    """Whether `expire` has anything to do."""
    ends = _assignments.c.lease_ends
    late = sa.or_(ends <= now, ends > now + lease_ms)
    query = sa.select(_assignments.c.id).where(schema.LEASED, _assignments.c.study_id == study_id, late)
    return connection.scalar(query.limit(1)) is not None


def others_hold(connection: sa.Connection, study_id: int, rater_id: int) -> bool:
    """Whether other raters have unanswered questions on their screens."""
    mine = sa.and_(schema.LEASED, _assignments.c.study_id == study_id, _assignments.c.rater_id != rater_id)
    return connection.scalar(sa.select(_assignments.c.id).where(mine).limit(1)) is not None


def close(
    connection: sa.Connection, assignment_id: int, item_id: int, state: str, now: int, extra: int = 0
) -> None:
    """End a reservation as `done`, `skipped`, `expired` or `released`, and count the item again."""
    change = _assignments.update().where(_assignments.c.id == assignment_id)
    connection.execute(change.values(state=state, extra=extra, closed=now))
    recount(connection, item_id, now)


def lock_item(connection: sa.Connection, item_id: int) -> None:
    """Nobody else changes the item's counters until this transaction ends."""
    connection.execute(sa.select(_items.c.id).where(_items.c.id == item_id).with_for_update())


def recount(connection: sa.Connection, item_id: int, now: int) -> None:
    """Set the item's counters from its assignments. Repeats and extra answers take no room."""
    counted = sa.and_(
        _assignments.c.item_id == item_id, _assignments.c.repeat == 0, _assignments.c.extra == 0
    )
    query = sa.select(_assignments.c.state, sa.func.count()).where(counted).group_by(_assignments.c.state)
    counts: dict[str, int] = dict(connection.execute(query).tuples().all())
    answered, leased, skipped = (counts.get(state, 0) for state in ("done", "leased", "skipped"))
    one = _items.update().where(_items.c.id == item_id)
    started = int(bool(counts))
    connection.execute(
        one.values(answered=answered, leased=leased, skipped=skipped, started=started, touched=now)
    )
    connection.execute(one.values(room=room_left()))


def held(connection: sa.Connection, rater_id: int) -> list[int]:
    """The assignments that the rater has on the screen, oldest first."""
    query = sa.select(_assignments.c.id).where(schema.LEASED, _assignments.c.rater_id == rater_id)
    return list(connection.scalars(query.order_by(_assignments.c.id)))


def renew(connection: sa.Connection, assignment_ids: list[int], lease_ends: int) -> None:
    """Reserve for longer."""
    change = _assignments.update().where(_assignments.c.id.in_(assignment_ids), schema.LEASED)
    connection.execute(change.values(lease_ends=lease_ends))


def lease(connection: sa.Connection, row: dict[str, object], now: int) -> int:
    """Reserve: a new assignment, or the rater's own that ran out unanswered. Returns its id."""
    same = [_assignments.c[name] == row[name] for name in ("item_id", "rater_id", "repeat")]
    known = connection.scalar(sa.select(_assignments.c.id).where(*same))
    row = row | {"state": "leased", "created": now, "closed": None}
    if known is None:
        known = inserted(connection, _assignments, row)
    else:
        connection.execute(_assignments.update().where(_assignments.c.id == known).values(**row))
    asked = schema.rater.update().where(schema.rater.c.id == row["rater_id"])
    connection.execute(asked.values(asked=schema.rater.c.asked + 1, seen=now))
    assert isinstance(row["item_id"], int)
    recount(connection, row["item_id"], now)
    return known


def _unseen(item_id: sa.ColumnElement[int], rater_id: int) -> sa.ColumnElement[bool]:
    """The rater has neither answered, nor skipped, nor holds the item; one that ran out may be asked again."""
    seen: sa.Select = sa.select(sa.literal_column("1")).where(
        _assignments.c.item_id == item_id,
        _assignments.c.rater_id == rater_id,
        _assignments.c.repeat == 0,
        _assignments.c.state.in_(("leased", "done", "skipped")),
    )
    return ~sa.exists(seen)


def _pool(study_id: int, pool: str = "production") -> sa.ColumnElement[bool]:
    return sa.and_(_items.c.study_id == study_id, _items.c.pool == pool)


def _first_free(connection: sa.Connection, query: sa.Select) -> int | None:
    """The first item id of the query that no other transaction holds, locked."""
    return connection.scalar(query.limit(1).with_for_update(skip_locked=True, of=_items))


def rooms(connection: sa.Connection, study_id: int) -> int:
    """The most room that any started item has left."""
    return (
        connection.scalar(sa.select(sa.func.max(_items.c.room)).where(_pool(study_id), schema.STARTED)) or 0
    )


def started_item(
    connection: sa.Connection, study_id: int, rater_id: int, room: int, since: int
) -> tuple[int | None, int]:
    """The item with `room` places left that was touched longest ago, though after `since`, and is new to the rater;
    with it the time up to which everything was looked at."""
    queue = sa.select(_items.c.id, _items.c.touched).where(
        _pool(study_id), schema.STARTED, _items.c.room == room, _items.c.touched > since
    )
    window = queue.order_by(_items.c.touched).limit(WINDOW).subquery()
    found = sa.select(window.c.id, window.c.touched).where(_unseen(window.c.id, rater_id))
    first = connection.execute(found.order_by(window.c.touched).limit(1)).one_or_none()
    if first is not None:
        return first.id, first.touched - 1
    return None, connection.scalar(sa.select(sa.func.max(window.c.touched))) or since


def fresh_item(connection: sa.Connection, study_id: int, *, by_priority: bool) -> int | None:
    """An item nobody was asked yet: the one of greatest priority, or the next in shuffled order."""
    order = [_items.c.priority.desc(), _items.c.shuffle.desc()] if by_priority else [_items.c.shuffle]
    query = sa.select(_items.c.id).where(_pool(study_id), schema.FRESH, _items.c.room > 0).order_by(*order)
    return _first_free(connection, query)


def random_item(connection: sa.Connection, study_id: int, rater_id: int, start: int) -> int | None:
    """The next item in shuffled order from `start` on, and round the end, that has room and is new to the rater."""
    for part in (_items.c.shuffle >= start, _items.c.shuffle < start):
        queue = sa.select(_items.c.id, _items.c.shuffle).where(_pool(study_id), schema.OPEN, part)
        window = queue.order_by(_items.c.shuffle).limit(WINDOW).subquery()
        found = (
            sa.select(window.c.id).where(_unseen(window.c.id, rater_id)).order_by(window.c.shuffle).limit(1)
        )
        item_id = connection.scalar(found)
        if item_id is not None:
            return item_id
    return None


def any_item(connection: sa.Connection, study_id: int, rater_id: int) -> int | None:
    """Any item with room that is new to the rater, however long the search."""
    query = sa.select(_items.c.id).where(_pool(study_id), schema.OPEN, _unseen(_items.c.id, rater_id))
    return connection.scalar(query.limit(1))


def unseen(connection: sa.Connection, item_id: int, rater_id: int) -> bool:
    """Whether the rater may still be asked about the item."""
    query = sa.select(_items.c.id).where(_items.c.id == item_id, _unseen(_items.c.id, rater_id))
    return connection.scalar(query) is not None


def claim(connection: sa.Connection, item_id: int) -> bool:
    """Lock the item for reserving; False if others took the room meanwhile or hold the lock."""
    query = sa.select(_items.c.id).where(_items.c.id == item_id, _items.c.room > 0)
    return _first_free(connection, query) is not None


def known_item(connection: sa.Connection, study_id: int, rater_id: int, pool: str, start: int) -> int | None:
    """An item of the pool `gold` or `training` that is new to the rater: in order of adding from `start` on, and
    round the end."""
    for part in (_items.c.shuffle >= start, _items.c.shuffle < start):
        query = sa.select(_items.c.id).where(
            _pool(study_id, pool), schema.OPEN, part, _unseen(_items.c.id, rater_id)
        )
        item_id = connection.scalar(query.order_by(_items.c.shuffle).limit(1))
        if item_id is not None:
            return item_id
    return None


def repeatable(
    connection: sa.Connection, rater_id: int, fraction: float, apart: int
) -> tuple[int, str] | None:
    """One of the rater's own answered production items, asked at least `apart` answers ago and not yet repeated; with
    the order it was shown in. `fraction` of the way through the rater's time."""
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
    found = connection.execute(query.order_by(closed).limit(1)).one_or_none()
    return None if found is None else (found.item_id, found.order)
