"""Rows of judgements: appending revisions, counting them for the rater, and reading a rater's past answers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from tutelage.people.answers import (
    LETTERS,
    Answer,
    Canonical,
    answer_from,
    canonical,
    correction_row,
    displayed,
    span_rows,
)
from tutelage.people.store import schema
from tutelage.people.store.assignments import Assignment, Lease, load_assignment
from tutelage.people.store.engine import Connection, Store, insert_row

_judgements, _items = schema.judgement, schema.item


@dataclass(frozen=True)
class JudgementRow:
    """The fields of a judgement needed to write the next revision; `order` is the display order."""

    id: int
    assignment_id: int
    revision: int
    verdict: str
    order: tuple[int, ...]
    flagged: bool
    extra: bool
    active_ms: int | None
    key: str


_STORED = (
    "id", "assignment_id", "revision", "verdict", "order", "flags", "extra", "active_ms", "idempotency_key", "latest",
)  # fmt: skip
_KNOWN = sa.select(*(_judgements.c[name] for name in _STORED)).where(
    sa.or_(
        sa.and_(_judgements.c.study_id == sa.bindparam("study"), _judgements.c.idempotency_key == sa.bindparam("key")),
        sa.and_(_judgements.c.assignment_id == sa.bindparam("assignment"), _judgements.c.latest == 1),
    )
)
_SUPERSEDE = _judgements.update().where(_judgements.c.id == sa.bindparam("judgement")).values(latest=0)
_TRAINING = (
    sa.select(_judgements.c.verdict, _items.c.gold)
    .join(_items, _items.c.id == _judgements.c.item_id)
    .where(_judgements.c.rater_id == sa.bindparam("rater"), _judgements.c.latest == 1, _items.c.pool == "training")
)
_FIRST_VERDICT = sa.select(_judgements.c.verdict).where(
    _judgements.c.item_id == sa.bindparam("item"),
    _judgements.c.rater_id == sa.bindparam("rater"),
    _judgements.c.repeat == 0,
    _judgements.c.latest == 1,
)


def find_judgements(
    connection: Connection, study_id: int, key: str, assignment_id: int
) -> tuple[JudgementRow | None, JudgementRow | None]:
    """The judgement with this idempotency key, and the latest one of this assignment."""
    parameters = {"study": study_id, "key": key, "assignment": assignment_id}
    same, latest = None, None
    for row in connection.execute(_KNOWN, parameters):
        if row.idempotency_key == key:
            same = judgement_row(row)
        if row.assignment_id == assignment_id and row.latest:
            latest = judgement_row(row)
    return same, latest


def first_verdict(connection: Connection, item_id: int, rater_id: int) -> str | None:
    """The rater's verdict when the item was first shown."""
    return connection.scalar(_FIRST_VERDICT, {"item": item_id, "rater": rater_id})


def displayed_answer(connection: Connection, judgement_id: int) -> tuple[str, int]:
    """The choice of a judgement as displayed, and its strength."""
    query = sa.select(_judgements.c.displayed).where(_judgements.c.id == judgement_id)
    record = json.loads(connection.scalar(query) or "{}")
    return record["choice"], record["strength"]


def training_record(connection: Connection, rater_id: int) -> tuple[int, int]:
    """Numbers of training questions that the rater has answered, and answered correctly."""
    rows = connection.execute(_TRAINING, {"rater": rater_id}).all()
    return len(rows), sum(row.verdict == row.gold for row in rows)


def append_revision(
    connection: Connection,
    lease: Lease,
    answer: Answer,
    vote: Canonical,
    *,
    before: JudgementRow | None,
    extra: bool,
    now: int,
) -> JudgementRow:
    """Store an answer as the next revision; `before` is kept, but no longer the latest."""
    if before is not None:
        connection.execute(_SUPERSEDE, {"judgement": before.id})
    revision = 1 if before is None else before.revision + 1
    row = row_of(answer, vote, lease.order, revision, lease.repeat, extra, now)
    row |= {"study_id": lease.study_id, "assignment_id": lease.id, "item_id": lease.item_id}
    row |= {"rater_id": lease.rater_id, "version_id": lease.version_id, "latest": 1}
    judgement_id = insert_row(connection, _judgements, row)
    return JudgementRow(
        judgement_id, lease.id, revision, vote.verdict, lease.order, bool(answer.flags), extra, answer.active_ms,
        answer.key,
    )  # fmt: skip


def row_of(
    answer: Answer, vote: Canonical, order: Sequence[int], revision: int, repeat: bool, extra: bool, created: int
) -> dict[str, object]:
    """Columns of an answer, without the ids of rater, item and assignment."""
    return {
        "revision": revision,
        "displayed": _text(displayed(answer)),
        "order": _text(order),
        "verdict": vote.verdict,
        "strength": vote.strength,
        "content": _text(dict(vote.content)) if vote.content else None,
        "criteria": _text(dict(vote.criteria)),
        "flags": _text(answer.flags),
        "reason": answer.reason,
        "repeat": int(repeat),
        "extra": int(extra),
        "active_ms": answer.active_ms,
        "wall_ms": answer.wall_ms,
        "changes": answer.changes,
        "client": answer.client,
        "idempotency_key": answer.key,
        "created": created,
        "correction": answer.correction and _text(correction_row(canonical(answer.correction, order))),
        "spans": _text(span_rows([canonical(span, order) for span in answer.spans])) if answer.spans else None,
    }


def judgement_row(row: sa.Row) -> JudgementRow:
    """Convert a row with at least the columns of `JudgementRow`."""
    return JudgementRow(
        row.id, row.assignment_id, row.revision, row.verdict, tuple(json.loads(row.order)), row.flags != "[]",
        bool(row.extra), row.active_ms, row.idempotency_key,
    )  # fmt: skip


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class ItemFacts:
    """The item of a judgement: pool, known answer, response lengths in canonical order, for a repeat, the first
    verdict, and whether it was displayed in a random order, so that the sides tell of the rater."""

    pool: str
    gold: str | None
    lengths: tuple[int, ...]
    first: str | None = None
    shuffled: bool = True


def tally(judgement: JudgementRow, about: ItemFacts) -> dict[str, int]:
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


@dataclass(frozen=True)
class PastAnswer:
    """A question answered by the rater, with the latest answer as displayed. To change it, submit another answer, with
    a new key, to the same assignment."""

    assignment: Assignment
    answer: Answer
    revision: int
    created: int


@dataclass(frozen=True)
class Feedback:
    """Feedback after a training question: the place of the better response (`left`, `right`, `tie`), whether the rater
    chose it, and the explanation."""

    expected: str
    right: bool
    explanation: str


def recent_answers(store: Store, rater_id: int, limit: int = 1) -> tuple[PastAnswer, ...]:
    """The rater's last answers, newest first."""
    mine = sa.and_(_judgements.c.rater_id == rater_id, _judgements.c.latest == 1)
    query = sa.select(_judgements).where(mine).order_by(_judgements.c.id.desc()).limit(limit)
    with store.read() as connection:
        return tuple(
            PastAnswer(load_assignment(connection, row["assignment_id"]), _answer(row), row["revision"], row["created"])
            for row in connection.execute(query).mappings().all()
        )


def _answer(row: sa.RowMapping) -> Answer:
    parsed = {name: json.loads(row[name] or "null") for name in ("displayed", "flags", "correction", "spans")}
    parsed |= {"spans": parsed["spans"] or [], "key": row["idempotency_key"]}
    return answer_from({**row, **parsed}, json.loads(row["order"]))


def feedback(store: Store, assignment_id: int) -> Feedback | None:
    """Feedback on an answered training question; None for other questions, and before the answer."""
    query = (
        sa.select(_items.c.gold, _items.c.explanation, _judgements.c.verdict)
        .join(_items, _items.c.id == _judgements.c.item_id)
        .where(_judgements.c.assignment_id == assignment_id, _judgements.c.latest == 1, _items.c.pool == "training")
    )
    with store.read() as connection:
        answer = connection.execute(query).one_or_none()
        if answer is None:
            return None
        order = load_assignment(connection, assignment_id).order
    places = {LETTERS[index]: side for index, side in zip(order, ("left", "right"), strict=False)}
    right = answer.verdict == answer.gold
    return Feedback(places.get(answer.gold, answer.gold), right, answer.explanation or "")
