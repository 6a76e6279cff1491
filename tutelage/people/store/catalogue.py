"""Items with everything known about them, for owners and exports, never for raters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from tutelage.data.records import CompletionRecord, Messages, Prompt
from tutelage.people.store import schema
from tutelage.people.store.additions import messages_from_text
from tutelage.people.store.engine import Connection, Store
from tutelage.people.store.items import Item

_items, _prompts, _links, _responses = schema.item, schema.prompt, schema.item_response, schema.response
_QUESTIONS = sa.select(
    _items, _prompts.c.key.label("prompt_key"), _prompts.c.messages, _prompts.c.split
).join(_prompts, _prompts.c.id == _items.c.prompt_id)


@dataclass(frozen=True)
class Question:
    """An item as it stands. `counts` are the votes that count at present, by verdict (a, b, tie, both_bad); `answered`
    is their sum, `skipped` how often it could not be judged."""

    item: Item
    prompt: Prompt
    completions: tuple[CompletionRecord, ...]
    target: int
    answered: int
    leased: int
    skipped: int
    counts: Mapping[str, int]
    excluded: str | None

    @property
    def key(self) -> str:
        return self.item.key

    @property
    def messages(self) -> Messages:
        return self.prompt.messages

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(completion.text for completion in self.completions)


def list_questions(
    store: Store,
    study_id: int,
    *,
    keys: Sequence[str] | None = None,
) -> tuple[Question, ...]:
    """All items, or those of these keys, in the order they were added."""
    query = _QUESTIONS.where(_items.c.study_id == study_id)
    if keys is not None:
        query = query.where(_items.c.key.in_(keys))
    with store.read() as connection:
        rows = connection.execute(query.order_by(_items.c.id)).mappings().all()
        few = [row["id"] for row in rows] if len(rows) <= 500 else None
        parts = _parts(connection, study_id, few)
    return tuple(_question(row, parts[row["id"]]) for row in rows)


def questions_of(connection: Connection, study_id: int, ids: Sequence[int]) -> tuple[Question, ...]:
    """The items of these numbers, in this order."""
    rows = {row["id"]: row for row in connection.execute(_QUESTIONS.where(_items.c.id.in_(ids))).mappings()}
    parts = _parts(connection, study_id, ids)
    return tuple(_question(rows[number], parts[number]) for number in ids)


def _parts(connection: Connection, study_id: int, item_ids: Sequence[int] | None) -> dict[int, list[sa.Row]]:
    """The responses of these items, or of all, in canonical order."""
    query = (
        sa.select(_links.c.item_id, _responses.c.key, _responses.c.text, _responses.c.sampler)
        .add_columns(_responses.c.sampling, _responses.c.finished)
        .join(_responses, _responses.c.id == _links.c.response_id)
        .where(_responses.c.study_id == study_id)
        .order_by(_links.c.item_id, _links.c.position)
    )
    if item_ids is not None:
        query = query.where(_links.c.item_id.in_(item_ids))
    parts: dict[int, list[sa.Row]] = {}
    for row in connection.execute(query):
        parts.setdefault(row.item_id, []).append(row)
    return parts


def _question(row: sa.RowMapping, parts: list[sa.Row]) -> Question:
    prompt = Prompt(row["prompt_key"], messages_from_text(row["messages"]), row["split"])
    completions = tuple(
        CompletionRecord(part.key, prompt.id, part.text, part.sampler, part.sampling, bool(part.finished))
        for part in parts
    )
    item = Item(
        key=row["key"],
        prompt=prompt.id,
        responses=tuple(completion.id for completion in completions),
        origin=row["origin"],
        round=row["round"],
        pool=row["pool"],
        gold=row["gold"],
        explanation=row["explanation"] or "",
        overlap=row["overlap"],
        priority=row["priority"],
    )
    counts = {"a": row["a_votes"], "b": row["b_votes"], "tie": row["ties"], "both_bad": row["both_bad"]}
    target, answered, leased, skipped = (row[name] for name in ("target", "answered", "leased", "skipped"))
    return Question(item, prompt, completions, target, answered, leased, skipped, counts, row["excluded"])
