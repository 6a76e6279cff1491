"""Counters of items and raters, and the lock on an item while they change.

They are derived from assignments and latest answers and updated in the same transaction, so that no query ever counts
over the whole study.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import sqlalchemy as sa

from tutelage.people.store import schema
from tutelage.people.store.engine import Connection

_items, _assignments, _judgements = schema.item, schema.assignment, schema.judgement


@dataclass(frozen=True)
class ItemCounts:
    """Number of an item's latest answers, and its votes for either side (`count_sides`)."""

    answered: int
    a_votes: int
    b_votes: int


@dataclass(frozen=True)
class LockedItem:
    """An item locked until the transaction ends. `room` is the number of raters still to assign, `lengths` the response
    lengths in characters, in canonical order."""

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
"""Columns to select in statements that find and lock an item, for `locked_item`."""

_ITEM = sa.select(*COLUMNS).where(_items.c.id == sa.bindparam("id")).with_for_update()
_COUNTS = (
    sa.select(_assignments.c.state, _assignments.c.counted, _judgements.c.verdict, sa.func.count().label("number"))
    .outerjoin(_judgements, sa.and_(_judgements.c.assignment_id == _assignments.c.id, _judgements.c.latest == 1))
    .where(_assignments.c.item_id == sa.bindparam("id"), _assignments.c.repeat == 0)
    .group_by(_assignments.c.state, _assignments.c.counted, _judgements.c.verdict)
)
_THIS = _items.update().where(_items.c.id == sa.bindparam("item"))
_TOUCH = _THIS.values(started=1, touched=sa.bindparam("now"))
_TAKE_PLACE = _TOUCH.values(leased=_items.c.leased + 1, room=sa.case((_items.c.room > 0, _items.c.room - 1), else_=0))


def lock_item(connection: Connection, item_id: int) -> LockedItem:
    """Lock the item until the transaction ends."""
    return locked_item(connection.execute(_ITEM, {"id": item_id}).one())


def locked_item(row: sa.Row) -> LockedItem:
    """Convert a locked row with `COLUMNS`."""
    lengths = tuple(json.loads(row.lengths))
    return LockedItem(
        row.item, row.pool, row.gold, row.target, lengths, row.excluded is not None, row.room, bool(row.started)
    )  # fmt: skip


def take_place(connection: Connection, item: LockedItem, now: int, *, counted: bool) -> None:
    """Count a reservation; one that does not count takes no room, but the item is no longer fresh."""
    connection.execute(_TAKE_PLACE if counted else _TOUCH, {"item": item.id, "now": now})


def recount(connection: Connection, item: LockedItem, now: int) -> ItemCounts:
    """Recompute the counters from the item's assignments. Repeats and assignments that do not count take no room."""
    rows = connection.execute(_COUNTS, {"id": item.id}).all()
    states, verdicts = Counter[str](), Counter[str]()
    for row in rows:
        if row.counted:
            states[row.state] += row.number
            verdicts[row.verdict or ""] += row.number
    a_votes, b_votes = count_sides(verdicts)
    values = {
        "answered": states["done"],
        "leased": states["leased"],
        "skipped": states["skipped"],
        "a_votes": a_votes,
        "b_votes": b_votes,
        "ties": verdicts["tie"],
        "both_bad": verdicts["both_bad"],
        "room": 0 if item.excluded else max(0, item.target - states["done"] - states["leased"]),
        "started": int(bool(rows)),
        "touched": now,
    }
    connection.execute(_THIS, values | {"item": item.id})
    return ItemCounts(states["done"], a_votes, b_votes)


def count_sides(verdicts: Mapping[str, int]) -> tuple[int, int]:
    """The votes for a and for b; of verdicts that are numbers of first wrong steps, those for the most frequent one and
    for all others."""
    numbers = sorted((count for verdict, count in verdicts.items() if verdict.isdecimal()), reverse=True)
    if numbers:
        return numbers[0], sum(numbers[1:])
    return verdicts.get("a", 0), verdicts.get("b", 0)


class CountedJudgement(Protocol):
    """The fields of a judgement that are counted; `order` is the display order."""

    @property
    def verdict(self) -> str: ...
    @property
    def order(self) -> tuple[int, ...]: ...
    @property
    def flagged(self) -> bool: ...
    @property
    def active_ms(self) -> int | None: ...


@dataclass(frozen=True)
class ItemFacts:
    """The item of a judgement: pool, known answer, response lengths in canonical order, for a repeat, the first
    verdict, and whether it was displayed in a random order, so that the sides tell of the rater."""

    pool: str
    gold: str | None
    lengths: tuple[int, ...]
    first: str | None = None
    shuffled: bool = True


def tally(judgement: CountedJudgement, about: ItemFacts) -> dict[str, int]:
    """Increments of `Tallies` for one judgement. Practice is not counted."""
    if about.pool == "training":
        return {}
    counts = {"skipped" if judgement.verdict == "skip" else "answered": 1, "flagged": int(judgement.flagged)}
    if judgement.verdict in ("a", "b") and len(about.lengths) > 1:
        chosen = "ab".index(judgement.verdict)
        if about.shuffled:
            counts["left_chosen" if judgement.order[0] == chosen else "right_chosen"] = 1
        counts["longer_chosen"] = int(about.lengths[chosen] > about.lengths[1 - chosen])
        counts["shorter_chosen"] = int(about.lengths[chosen] < about.lengths[1 - chosen])
    if judgement.verdict == "tie":
        counts["ties"] = 1
    if about.gold is not None and judgement.verdict != "skip":
        counts |= {"gold_seen": 1, "gold_right": int(judgement.verdict == about.gold)}
    if about.first is not None and judgement.verdict != "skip":
        counts |= {"repeat_seen": 1, "repeat_same": int(judgement.verdict == about.first)}
    if judgement.active_ms is not None:
        counts |= {"timed": 1, "active_ms": judgement.active_ms}
    return counts
