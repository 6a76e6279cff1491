"""The past answers of raters, as displayed."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

import sqlalchemy as sa

from tutelage.people.answers import Answer, from_displayed
from tutelage.people.corrections import as_displayed, correction_from, spans_from
from tutelage.people.store import schema
from tutelage.people.store.engine import Connection

_said, _given, _items = schema.judgement, schema.assignment, schema.item


@dataclass(frozen=True)
class KnownAnswer:
    """The known answer of a training question beside the one that was given, both canonical."""

    gold: str
    verdict: str
    explanation: str


def given_answers(
    connection: Connection, rater_id: int, limit: int
) -> Iterator[tuple[int, Answer, int, int]]:
    """Assignment, answer in force, its revision and its time, newest first."""
    query = (
        sa.select(_said)
        .where(_said.c.rater_id == rater_id, _said.c.latest == 1)
        .order_by(_said.c.id.desc())
        .limit(limit)
    )
    for row in connection.execute(query).mappings().all():
        yield row["assignment_id"], _answer(row), row["revision"], row["created"]


def known_answer(connection: Connection, assignment_id: int) -> KnownAnswer | None:
    """None unless it is a training question that has been answered."""
    query = (
        sa.select(_items.c.gold, _items.c.explanation, _said.c.verdict)
        .join(_items, _items.c.id == _said.c.item_id)
        .where(_said.c.assignment_id == assignment_id, _said.c.latest == 1, _items.c.pool == "training")
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else KnownAnswer(row.gold, row.verdict, row.explanation or "")


def _answer(row: sa.RowMapping) -> Answer:
    envelope = {name: row[name] for name in ("reason", "active_ms", "wall_ms", "changes", "client")}
    envelope |= {"flags": tuple(json.loads(row["flags"])), "key": row["idempotency_key"]}
    order = json.loads(row["order"])
    if row["correction"] is not None:
        correction = correction_from(json.loads(row["correction"]))
        envelope["correction"] = correction and as_displayed(correction, order)
    spans = spans_from(json.loads(row["spans"] or "[]"))
    envelope["spans"] = tuple(as_displayed(span, order) for span in spans)
    return from_displayed(json.loads(row["displayed"]), envelope)
