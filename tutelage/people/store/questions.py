"""What a rater is shown, and what else may be known of it."""

import json
from dataclasses import dataclass

import sqlalchemy as sa

from tutelage.data.records import Messages
from tutelage.errors import TutelageError
from tutelage.people.store import schema
from tutelage.people.store.engine import Store
from tutelage.people.store.items import messages_from_text


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


def load_assignment(connection: sa.Connection, assignment_id: int) -> Assignment:
    """Raises TutelageError where there is no such assignment."""
    given, items, prompts, versions = schema.assignment, schema.item, schema.prompt, schema.study_version
    query = (
        sa.select(given, items.c.key, items.c.pool, prompts.c.messages, versions.c.number)
        .join(items, items.c.id == given.c.item_id)
        .join(prompts, prompts.c.id == items.c.prompt_id)
        .join(versions, versions.c.id == given.c.version_id)
        .where(given.c.id == assignment_id)
    )
    row = connection.execute(query).mappings().one_or_none()
    if row is None:
        raise TutelageError(f"There is no assignment {assignment_id} in this database.")
    texts = response_texts(connection, row["item_id"])
    order = tuple(json.loads(row["order"]))
    return Assignment(
        row["id"], row["study_id"], row["rater_id"], row["key"], messages_from_text(row["messages"]),
        tuple(texts[index] for index in order), order, row["state"], row["pool"] == "training", row["number"],
        row["lease_ends"],
    )  # fmt: skip


def response_texts(connection: sa.Connection, item_id: int) -> tuple[str, ...]:
    """The texts of an item's responses in canonical order."""
    links, responses = schema.item_response, schema.response
    query = (
        sa.select(responses.c.text)
        .join(links, links.c.response_id == responses.c.id)
        .where(links.c.item_id == item_id)
        .order_by(links.c.position)
    )
    return tuple(connection.scalars(query))


@dataclass(frozen=True)
class Question:
    """An item with everything known about it, for owners and exports: never for a rater's page."""

    item: str
    prompt: str
    messages: Messages
    split: str
    responses: tuple[str, ...]
    texts: tuple[str, ...]
    samplers: tuple[str, ...]
    origin: str
    round: int
    pool: str
    gold: str | None
    explanation: str
    target: int
    answered: int
    skipped: int
    excluded: str | None


def list_questions(store: Store, study_id: int) -> tuple[Question, ...]:
    """All items of a study in the order they were added."""
    items, prompts = schema.item, schema.prompt
    query = (
        sa.select(items, prompts.c.key.label("prompt_key"), prompts.c.messages, prompts.c.split)
        .join(prompts, prompts.c.id == items.c.prompt_id)
        .where(items.c.study_id == study_id)
        .order_by(items.c.id)
    )
    with store.read() as connection:
        parts = _responses(connection, study_id)
        return tuple(_question(row, parts[row["id"]]) for row in connection.execute(query).mappings())


def _responses(connection: sa.Connection, study_id: int) -> dict[int, list[sa.Row]]:
    links, responses = schema.item_response, schema.response
    query = (
        sa.select(links.c.item_id, responses.c.key, responses.c.text, responses.c.sampler)
        .join(responses, responses.c.id == links.c.response_id)
        .where(responses.c.study_id == study_id)
        .order_by(links.c.item_id, links.c.position)
    )
    parts: dict[int, list[sa.Row]] = {}
    for row in connection.execute(query):
        parts.setdefault(row.item_id, []).append(row)
    return parts


def _question(row: sa.RowMapping, parts: list[sa.Row]) -> Question:
    return Question(
        item=row["key"],
        prompt=row["prompt_key"],
        messages=messages_from_text(row["messages"]),
        split=row["split"],
        responses=tuple(part.key for part in parts),
        texts=tuple(part.text for part in parts),
        samplers=tuple(part.sampler for part in parts),
        origin=row["origin"],
        round=row["round"],
        pool=row["pool"],
        gold=row["gold"],
        explanation=row["explanation"] or "",
        target=row["target"],
        answered=row["answered"],
        skipped=row["skipped"],
        excluded=row["excluded"],
    )
