"""The counters of items, and the lock on an item while they change.

They follow from its assignments and the answers in force; every transaction that changes those changes them too,
so that nobody ever counts over the whole study.
"""

import json
from collections import Counter
from dataclasses import dataclass

import sqlalchemy as sa

from tutelage.people.store import schema
from tutelage.people.store.engine import Connection

_items, _given, _said = schema.item, schema.assignment, schema.judgement


@dataclass(frozen=True)
class ItemCounts:
    """The answers in force that an item has, and its votes for either side."""

    answered: int
    a_votes: int
    b_votes: int


@dataclass(frozen=True)
class LockedItem:
    """An item whose counters nobody else changes until the transaction ends. `room` is how many more raters it may be
    given to, `started` whether it was ever given to one, `lengths` the characters of its responses in canonical
    order."""

    id: int
    pool: str
    gold: str | None
    target: int
    lengths: tuple[int, ...]
    excluded: bool
    room: int
    started: bool


COLUMNS = (
    _items.c.id.label("item"),
    *(_items.c[name] for name in ("pool", "gold", "target", "lengths", "excluded", "room", "started")),
)
"""What a statement that finds and locks an item selects, for `locked_from`."""

_ITEM = sa.select(*COLUMNS).where(_items.c.id == sa.bindparam("id")).with_for_update()
_COUNTS = (
    sa.select(_given.c.state, _given.c.counted, _said.c.verdict, sa.func.count().label("number"))
    .outerjoin(_said, sa.and_(_said.c.assignment_id == _given.c.id, _said.c.latest == 1))
    .where(_given.c.item_id == sa.bindparam("id"), _given.c.repeat == 0)
    .group_by(_given.c.state, _given.c.counted, _said.c.verdict)
)
_THIS = _items.update().where(_items.c.id == sa.bindparam("item"))
_TOUCH = _THIS.values(started=1, touched=sa.bindparam("now"))
_TAKE_PLACE = _TOUCH.values(
    leased=_items.c.leased + 1, room=sa.case((_items.c.room > 0, _items.c.room - 1), else_=0)
)


def lock_item(connection: Connection, item_id: int) -> LockedItem:
    """Wait for the item, and hold it until the transaction ends."""
    return locked_from(connection.execute(_ITEM, {"id": item_id}).one())


def locked_from(row: sa.Row) -> LockedItem:
    """The value of a locked row with `COLUMNS`."""
    lengths = tuple(json.loads(row.lengths))
    return LockedItem(
        row.item, row.pool, row.gold, row.target, lengths, row.excluded is not None, row.room, bool(row.started)
    )  # fmt: skip


def take_place(connection: Connection, item: LockedItem, now: int, *, counted: bool) -> None:
    """Count one reservation more; one that does not count takes no room, but the item is no longer fresh."""
    connection.execute(_TAKE_PLACE if counted else _TOUCH, {"item": item.id, "now": now})


def recount(connection: Connection, item: LockedItem, now: int) -> ItemCounts:
    """Set the counters from the item's assignments. Repeats, and what does not count, take no room."""
    rows = connection.execute(_COUNTS, {"id": item.id}).all()
    states, verdicts = Counter[str](), Counter[str]()
    for row in rows:
        if row.counted:
            states[row.state] += row.number
            verdicts[row.verdict or ""] += row.number
    values = {
        "answered": states["done"],
        "leased": states["leased"],
        "skipped": states["skipped"],
        "a_votes": verdicts["a"],
        "b_votes": verdicts["b"],
        "ties": verdicts["tie"],
        "both_bad": verdicts["both_bad"],
        "room": 0 if item.excluded else max(0, item.target - states["done"] - states["leased"]),
        "started": int(bool(rows)),
        "touched": now,
    }
    connection.execute(_THIS, values | {"item": item.id})
    return ItemCounts(states["done"], verdicts["a"], verdicts["b"])
