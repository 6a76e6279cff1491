"""Assignments as raters see them."""

import json
from dataclasses import dataclass

import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.data.records import Messages
from tutelage.people.store import schema
from tutelage.people.store.additions import messages_from_text


@dataclass(frozen=True)
class Assignment:
    """A question on a rater's screen. Nothing here tells a model's name, a known answer or why it was asked.

    `texts` are in the order of display; `order[k]` is the canonical index of the response in place k from the left.
    `training` questions are followed by an explanation. `lease_ends` is in milliseconds since the epoch; `state` is
    leased, done, skipped, expired or released.
    """

    id: int
    study_id: int
    rater_id: int
    item: str
    messages: Messages
    texts: tuple[str, ...]
    order: tuple[int, ...]
    state: str
    training: bool
    version: int
    lease_ends: int

    @property
    def left(self) -> str:
        return self.texts[0]

    @property
    def right(self) -> str:
        return self.texts[1]


_items, _given, _prompts, _versions = schema.item, schema.assignment, schema.prompt, schema.study_version
_links, _responses = schema.item_response, schema.response
_ASSIGNMENT = (
    sa.select(_given, _items.c.key, _items.c.pool, _prompts.c.messages, _versions.c.number, _responses.c.text)
    .join(_items, _items.c.id == _given.c.item_id)
    .join(_prompts, _prompts.c.id == _items.c.prompt_id)
    .join(_versions, _versions.c.id == _given.c.version_id)
    .join(_links, _links.c.item_id == _items.c.id)
    .join(_responses, _responses.c.id == _links.c.response_id)
    .where(_given.c.id == sa.bindparam("id"))
    .order_by(_links.c.position)
)


def load_assignment(connection: sa.Connection, assignment_id: int) -> Assignment:
    """Raises TutelageError where there is no such assignment."""
    rows = connection.execute(_ASSIGNMENT, {"id": assignment_id}).mappings().all()
    if not rows:
        raise TutelageError(f"There is no assignment {assignment_id} in this database.")
    row, texts = rows[0], [each["text"] for each in rows]
    order = tuple(json.loads(row["order"]))
    return Assignment(
        row["id"], row["study_id"], row["rater_id"], row["key"], messages_from_text(row["messages"]),
        tuple(texts[index] for index in order), order, row["state"], row["pool"] == "training", row["number"],
        row["lease_ends"],
    )  # fmt: skip


def find_item(connection: sa.Connection, study_id: int, key: str) -> int:
    """The internal number of an item. Raises TutelageError where there is none of that key."""
    items = schema.item
    found = connection.scalar(sa.select(items.c.id).where(items.c.study_id == study_id, items.c.key == key))
    if found is None:
        raise TutelageError(f"There is no item '{key}' in this study.")
    return found
