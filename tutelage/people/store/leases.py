"""Reserving items for raters, giving them back, and counting what that leaves.

An assignment is the reservation and, later, the place of its answers. Per item and rater there is one (and one more for
a planned repeat), which the database itself enforces.
"""

import json
from collections import Counter
from dataclasses import dataclass

import sqlalchemy as sa

from tutelage.errors import TutelageError
from tutelage.people.store import schema
from tutelage.people.store.engine import Connection, inserted

SWEEP = 200

_items, _given = schema.item, schema.assignment


@dataclass(frozen=True)
class Lease:
    """An assignment as the server sees it; `order` is that of display."""

    id: int
    study_id: int
    item_id: int
    rater_id: int
    version_id: int
    chosen_by: str
    order: tuple[int, ...]
    repeat: bool
    extra: bool
    counted: bool
    state: str


@dataclass(frozen=True)
class LockedItem:
    """An item whose counters nobody else changes until the transaction ends. `room` is how many more raters it may be
    given to."""

    id: int
    pool: str
    gold: str | None
    target: int
    places: int
    excluded: bool
    room: int


_LEASE = sa.select(_given).where(_given.c.id == sa.bindparam("id")).with_for_update()
_OWNER = sa.select(_given.c.rater_id).where(_given.c.id == sa.bindparam("id"))
_ITEM = (
    sa.select(_items.c.id, _items.c.pool, _items.c.gold, _items.c.target, _items.c.places)
    .add_columns(_items.c.excluded, _items.c.room)
    .where(_items.c.id == sa.bindparam("id"))
    .with_for_update()
)
_FREE = _ITEM.where(_items.c.room > 0).with_for_update(skip_locked=True)
_said = schema.judgement
_COUNTS = (
    sa.select(_given.c.state, _given.c.counted, _said.c.verdict, sa.func.count().label("number"))
    .outerjoin(_said, sa.and_(_said.c.assignment_id == _given.c.id, _said.c.latest == 1))
    .where(_given.c.item_id == sa.bindparam("id"), _given.c.repeat == 0)
    .group_by(_given.c.state, _given.c.counted, _said.c.verdict)
)
_RECOUNT = _items.update().where(_items.c.id == sa.bindparam("item"))
_CLOSE = _given.update().where(_given.c.id == sa.bindparam("assignment"))
_HELD = (
    sa.select(_given.c.id)
    .where(schema.LEASED, _given.c.rater_id == sa.bindparam("rater"))
    .order_by(_given.c.id)
)
_SAME = sa.select(_given.c.id).where(
    _given.c.item_id == sa.bindparam("item_id"),
    _given.c.rater_id == sa.bindparam("rater_id"),
    _given.c.repeat == sa.bindparam("repeat"),
)


def owner_of(connection: Connection, assignment_id: int) -> int | None:
    """The rater whose assignment it is, without locking anything."""
    return connection.scalar(_OWNER, {"id": assignment_id})


def lock_lease(connection: Connection, assignment_id: int) -> Lease:
    """Raises TutelageError where there is no such assignment."""
    row = connection.execute(_LEASE, {"id": assignment_id}).mappings().one_or_none()
    if row is None:
        raise TutelageError(f"There is no assignment {assignment_id} in this database.")
    return Lease(
        row["id"], row["study_id"], row["item_id"], row["rater_id"], row["version_id"], row["chosen_by"],
        tuple(json.loads(row["order"])), bool(row["repeat"]), bool(row["extra"]), bool(row["counted"]), row["state"],
    )  # fmt: skip


def lock_item(connection: Connection, item_id: int) -> LockedItem:
    """Wait for the item, and hold it until the transaction ends."""
    return _locked(connection.execute(_ITEM, {"id": item_id}).one())


def claim(connection: Connection, item_id: int) -> LockedItem | None:
    """Hold the item if it has room and nobody else holds it just now."""
    row = connection.execute(_FREE, {"id": item_id}).one_or_none()
    return None if row is None else _locked(row)


def _locked(row: sa.Row) -> LockedItem:
    excluded = row.excluded is not None
    return LockedItem(row.id, row.pool, row.gold, row.target, row.places, excluded, row.room)


def recount(connection: Connection, item: LockedItem, now: int) -> None:
    """Set the item's counters from its assignments. Repeats, and what does not count, take no room."""
    rows = connection.execute(_COUNTS, {"id": item.id}).all()
    states, verdicts = Counter[str](), Counter[str]()
    for row in rows:
        if row.counted:
            states[row.state] += row.number
            verdicts[row.verdict or ""] += row.number
    room = 0 if item.excluded else max(0, item.target - states["done"] - states["leased"])
    connection.execute(
        _RECOUNT,
        {
            "item": item.id,
            "answered": states["done"],
            "leased": states["leased"],
            "skipped": states["skipped"],
            "a_votes": verdicts["a"],
            "b_votes": verdicts["b"],
            "ties": verdicts["tie"],
            "both_bad": verdicts["both_bad"],
            "room": room,
            "started": int(bool(rows)),
            "touched": now,
        },
    )


def close(
    connection: Connection,
    lease: Lease,
    item: LockedItem,
    state: str,
    now: int,
    *,
    extra: bool = False,
    counted: bool = True,
) -> None:
    """End a reservation as `done`, `skipped`, `expired` or `released`, and count the item again."""
    values = {"state": state, "extra": int(extra), "counted": int(counted), "closed": now}
    connection.execute(_CLOSE, values | {"assignment": lease.id})
    recount(connection, item, now)


def give_back(connection: Connection, assignment_id: int, state: str, now: int) -> None:
    """End a reservation without an answer."""
    lease = lock_lease(connection, assignment_id)
    item = lock_item(connection, lease.item_id)
    close(connection, lease, item, state, now, extra=lease.extra, counted=lease.counted)


def overdue(connection: Connection, study_id: int, now: int, lease_ms: int) -> bool:
    """Whether `expire` has anything to do."""
    late = sa.or_(_given.c.lease_ends <= now, _given.c.lease_ends > now + lease_ms)
    query = sa.select(_given.c.id).where(schema.LEASED, _given.c.study_id == study_id, late)
    return connection.scalar(query.limit(1)) is not None


def expire(connection: Connection, study_id: int, now: int, lease_ms: int) -> None:
    """Return the items whose reservation ran out, at most `SWEEP` of them.

    No reservation reaches further than one lease from now: if the clock was set back, the surplus is cut off, so that
    an item is blocked for one lease at most.
    """
    mine = sa.and_(schema.LEASED, _given.c.study_id == study_id)
    far = sa.and_(mine, _given.c.lease_ends > now + lease_ms)
    connection.execute(_given.update().where(far).values(lease_ends=now + lease_ms))
    due = sa.select(_given.c.id).where(mine, _given.c.lease_ends <= now)
    due = due.order_by(_given.c.item_id).limit(SWEEP).with_for_update(skip_locked=True)
    for assignment_id in connection.scalars(due).all():
        give_back(connection, assignment_id, "expired", now)


def others_hold(connection: Connection, study_id: int, rater_id: int) -> bool:
    """Whether other raters have unanswered questions on their screens."""
    theirs = sa.and_(schema.LEASED, _given.c.study_id == study_id, _given.c.rater_id != rater_id)
    return connection.scalar(sa.select(_given.c.id).where(theirs).limit(1)) is not None


def held(connection: Connection, rater_id: int) -> list[int]:
    """The assignments that the rater has on the screen, oldest first."""
    return list(connection.scalars(_HELD, {"rater": rater_id}))


def renew(connection: Connection, assignment_ids: list[int], lease_ends: int) -> None:
    """Reserve for longer."""
    change = _given.update().where(_given.c.id.in_(assignment_ids), schema.LEASED)
    connection.execute(change.values(lease_ends=lease_ends))


def assignment_of(connection: Connection, item_id: int, rater_id: int) -> int | None:
    """The rater's assignment for the item, unless it was given back unanswered."""
    query = _SAME.where(_given.c.state.in_(("leased", "done", "skipped")))
    return connection.scalar(query, {"item_id": item_id, "rater_id": rater_id, "repeat": 0})


def lease(connection: Connection, row: dict[str, object], item: LockedItem, now: int) -> int:
    """Reserve: a new assignment, or the rater's own that ran out unanswered. Returns its id."""
    row = row | {"item_id": item.id, "state": "leased", "created": now, "closed": None}
    known = connection.scalar(_SAME, {name: row[name] for name in ("item_id", "rater_id", "repeat")})
    if known is None:
        known = inserted(connection, _given, row)
    else:
        connection.execute(_CLOSE, row | {"assignment": known})
    recount(connection, item, now)
    return known
