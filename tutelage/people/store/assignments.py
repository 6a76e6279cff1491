"""Assignments: items reserved for raters, and the questions that raters see.

An assignment is a reservation and, later, the parent of its answers. The database enforces one per item and rater, and
one more for a planned repeat.
"""

import json
from dataclasses import dataclass

import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.data.records import Messages, Step
from tutelage.data.rubrics import Rubric
from tutelage.people.kinds import find_kind
from tutelage.people.kinds.kind import Kind, Screen
from tutelage.people.store import schema
from tutelage.people.store.additions import count_steps, messages_from_text, rubric_from_text, steps_from_text
from tutelage.people.store.engine import Connection, insert_row, value_of
from tutelage.people.store.items import COLUMNS, ItemCounts, LockedItem, locked_item, recount, take_place

SWEEP = 200

_assignments, _versions = schema.assignment, schema.study_version
_items, _prompts = schema.item, schema.prompt
_links, _responses = schema.item_response, schema.response


@dataclass(frozen=True)
class Lease:
    """An assignment as seen by the server; `order` is the display order, `kind` and `screen` belong to the version
    shown."""

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
    kind: Kind
    screen: Screen


_FIRST_STEPS = (
    sa.select(_responses.c.steps)
    .join(_links, _links.c.response_id == _responses.c.id)
    .where(_links.c.item_id == _assignments.c.item_id, _links.c.position == 0)
    .scalar_subquery()
)
_LEASE = (
    sa.select(_assignments, schema.study.c.kind, _FIRST_STEPS.label("steps"), *COLUMNS)
    .add_columns(_versions.c.scale, _versions.c.criteria, _versions.c.corrections, _versions.c.spans)
    .join(_versions, _versions.c.id == _assignments.c.version_id)
    .add_columns(_prompts.c.rubric)
    .join(schema.study, schema.study.c.id == _assignments.c.study_id)
    .join(_items, _items.c.id == _assignments.c.item_id)
    .join(_prompts, _prompts.c.id == _items.c.prompt_id)
    .where(_assignments.c.id == sa.bindparam("id"))
    .with_for_update(of=(_assignments, _items))
)
_OWNER = sa.select(_assignments.c.rater_id).where(_assignments.c.id == sa.bindparam("id"))
_CLOSE = _assignments.update().where(_assignments.c.id == sa.bindparam("assignment"))
_HELD = (
    sa.select(_assignments.c.id)
    .where(schema.LEASED, _assignments.c.rater_id == sa.bindparam("rater"))
    .order_by(_assignments.c.id)
)
_SAME = sa.select(_assignments.c.id).where(
    _assignments.c.item_id == sa.bindparam("item_id"),
    _assignments.c.rater_id == sa.bindparam("rater_id"),
    _assignments.c.repeat == sa.bindparam("repeat"),
)


def owner_of(connection: Connection, assignment_id: int) -> int | None:
    """The rater of an assignment, without locking."""
    return connection.scalar(_OWNER, {"id": assignment_id})


def lock_lease(connection: Connection, assignment_id: int) -> tuple[Lease, LockedItem] | None:
    """Lock the assignment and its item until the transaction ends; None if there is no such assignment."""
    result = connection.execute(_LEASE, {"id": assignment_id}).one_or_none()
    if result is None:
        return None
    row = result._mapping
    order = tuple(json.loads(row["order"]))
    flags = {name: bool(row[name]) for name in ("repeat", "extra", "counted")}
    screen = screen_from(row, len(order), count_steps(row["steps"]), row["rubric"])
    return value_of(Lease, row, order=order, kind=find_kind(row["kind"]), screen=screen, **flags), locked_item(result)


def screen_from(version: sa.RowMapping, places: int, steps: int = 0, rubric: str | None = None) -> Screen:
    """Layout of a version of the question with `places` responses, the first of which has `steps`, and the stored
    rubric of the prompt, if any."""
    criteria, spans = (tuple(json.loads(version[name])) for name in ("criteria", "spans"))
    corrections = bool(version["corrections"])
    return Screen(places, version["scale"], criteria, corrections, spans, steps, rubric_from_text(rubric))


def close(
    connection: Connection,
    lease: Lease,
    item: LockedItem,
    state: str,
    now: int,
    *,
    extra: bool = False,
    counted: bool = True,
) -> ItemCounts:
    """Close a reservation as `done`, `skipped`, `expired` or `released`, and recount the item."""
    values = {"state": state, "extra": int(extra), "counted": int(counted), "closed": now}
    connection.execute(_CLOSE, values | {"assignment": lease.id})
    return recount(connection, item, now)


def give_back(connection: Connection, assignment_id: int, state: str, now: int) -> None:
    """Close a reservation without an answer."""
    locked = lock_lease(connection, assignment_id)
    assert locked is not None  # assignments are never deleted
    lease, item = locked
    close(connection, lease, item, state, now, extra=lease.extra, counted=lease.counted)


def overdue(connection: Connection, study_id: int, now: int, lease_ms: int) -> bool:
    """Whether `expire` would change anything."""
    late = sa.or_(_assignments.c.lease_ends <= now, _assignments.c.lease_ends > now + lease_ms)
    query = sa.select(_assignments.c.id).where(schema.LEASED, _assignments.c.study_id == study_id, late)
    return connection.scalar(query.limit(1)) is not None


def expire(connection: Connection, study_id: int, now: int, lease_ms: int) -> None:
    """Release up to `SWEEP` expired reservations.

    No reservation lasts longer than one lease from now: if the clock was set back, reservations are shortened, so that
    an item is blocked for at most one lease.
    """
    mine = sa.and_(schema.LEASED, _assignments.c.study_id == study_id)
    far = sa.and_(mine, _assignments.c.lease_ends > now + lease_ms)
    connection.execute(_assignments.update().where(far).values(lease_ends=now + lease_ms))
    due = sa.select(_assignments.c.id).where(mine, _assignments.c.lease_ends <= now)
    due = due.order_by(_assignments.c.item_id).limit(SWEEP).with_for_update(skip_locked=True)
    for assignment_id in connection.scalars(due).all():
        give_back(connection, assignment_id, "expired", now)


def held_assignments(connection: Connection, rater_id: int) -> list[int]:
    """Open assignments of the rater, oldest first."""
    return list(connection.scalars(_HELD, {"rater": rater_id}))


def renew(connection: Connection, assignment_ids: list[int], lease_ends: int) -> None:
    """Extend leases to `lease_ends`."""
    change = _assignments.update().where(_assignments.c.id.in_(assignment_ids), schema.LEASED)
    connection.execute(change.values(lease_ends=lease_ends))


def assignment_of(connection: Connection, item_id: int, rater_id: int) -> int | None:
    """The rater's assignment of the item, unless it expired or was released."""
    query = _SAME.where(_assignments.c.state.in_(("leased", "done", "skipped")))
    return connection.scalar(query, {"item_id": item_id, "rater_id": rater_id, "repeat": 0})


def lease(connection: Connection, row: dict[str, object], item: LockedItem, now: int) -> int:
    """Reserve an item: insert an assignment, or reuse the rater's expired one. Returns its id."""
    row = row | {"item_id": item.id, "state": "leased", "created": now, "closed": None}
    same = {name: row[name] for name in ("item_id", "rater_id", "repeat")}
    assignment_id = connection.scalar(_SAME, same) if item.started else None
    if assignment_id is None:
        assignment_id = insert_row(connection, _assignments, row)
    else:
        connection.execute(_CLOSE, row | {"assignment": assignment_id})
    if not row["repeat"]:
        take_place(connection, item, now, counted=bool(row["counted"]))
    return assignment_id


@dataclass(frozen=True)
class Assignment:
    """A question on a rater's screen, without model names, known answers or the reason for its choice. `rubric` is that
    of the prompt, in a study whose kind asks about it.

    `texts` and `steps` (empty for a response without) are in display order; `order[k]` is the canonical index of the
    response in place k from the left. `training`
    questions are followed by an explanation. `lease_ends` is in milliseconds since the epoch; `state` is leased, done,
    skipped, expired or released.
    """

    id: int
    study_id: int
    rater_id: int
    item: str
    messages: Messages
    texts: tuple[str, ...]
    steps: tuple[tuple[Step, ...], ...]
    order: tuple[int, ...]
    state: str
    training: bool
    version: int
    lease_ends: int
    rubric: Rubric = ()

    @property
    def left(self) -> str:
        return self.texts[0]

    @property
    def right(self) -> str:
        return self.texts[1]


_ASSIGNMENT = (
    sa.select(
        _assignments,
        _items.c.key,
        _items.c.pool,
        _prompts.c.messages,
        _prompts.c.rubric,
        _versions.c.number,
        _responses.c.text,
        _responses.c.steps,
    )
    .join(_items, _items.c.id == _assignments.c.item_id)
    .join(_prompts, _prompts.c.id == _items.c.prompt_id)
    .join(_versions, _versions.c.id == _assignments.c.version_id)
    .join(_links, _links.c.item_id == _items.c.id)
    .join(_responses, _responses.c.id == _links.c.response_id)
    .where(_assignments.c.id == sa.bindparam("id"))
    .order_by(_links.c.position)
)


def load_assignment(connection: sa.Connection, assignment_id: int) -> Assignment:
    """Load an assignment. Raises TutelageError if it does not exist."""
    rows = connection.execute(_ASSIGNMENT, {"id": assignment_id}).mappings().all()
    if not rows:
        raise TutelageError(f"There is no assignment {assignment_id} in this database.")
    row, texts, steps = rows[0], [each["text"] for each in rows], [steps_from_text(each["steps"]) for each in rows]
    order = tuple(json.loads(row["order"]))
    return value_of(
        Assignment, row, item=row["key"], messages=messages_from_text(row["messages"]), order=order,
        texts=tuple(texts[index] for index in order), steps=tuple(steps[index] for index in order),
        training=row["pool"] == "training", version=row["number"],
        rubric=rubric_from_text(row["rubric"]),
    )  # fmt: skip


def find_item(connection: sa.Connection, study_id: int, key: str) -> int:
    """Internal id of an item. Raises TutelageError if there is no item with this key."""
    item_id = connection.scalar(sa.select(_items.c.id).where(_items.c.study_id == study_id, _items.c.key == key))
    if item_id is None:
        raise TutelageError(f"There is no item '{key}' in this study.")
    return item_id
