"""Receiving answers.

An answer is acknowledged only when it is on the disk. The same idempotency key twice is one judgement and gets the same
receipt, so that a browser may send again whenever it is in doubt. Changing one's mind is a new revision; what was said
before stays. An answer to a reservation that ran out counts like any other if the item still has room, and is kept as
an extra one if it has not.
"""

import json
from dataclasses import dataclass

import sqlalchemy as sa

from tutelage.errors import TutelageError
from tutelage.people import answers
from tutelage.people.answers import Answer
from tutelage.people.store import judgements, leases, schema
from tutelage.people.store.engine import Store, lock, record_event
from tutelage.people.store.questions import response_texts
from tutelage.people.store.studies import load_study


@dataclass(frozen=True)
class Receipt:
    """What became of an answer: its number, which revision it is, whether it came after the item was complete, and
    whether the same key had been received before."""

    judgement: int
    assignment: int
    revision: int
    extra: bool
    known: bool


def submit(store: Store, assignment_id: int, answer: Answer, *, rater_id: int | None = None) -> Receipt:
    """Write an answer down. Given `rater_id`, the assignment must be that rater's.

    Raises:
        TutelageError: no such assignment, another rater's, an answer that the question does not allow, or an
            idempotency key that was used for another question.
        Unavailable: the database cannot be written just now; nothing was saved, send the same answer again.
    """
    with store.write() as connection:
        assignment = _locked(connection, assignment_id, rater_id)
        known = judgements.by_key(connection, answer.key)
        if known is not None:
            return _receipt_again(known, assignment_id)
        _check(connection, assignment, answer)
        return _write(connection, assignment, answer, store.now())


def _locked(connection: sa.Connection, assignment_id: int, rater_id: int | None) -> sa.RowMapping:
    """The assignment, with its rater and its item locked: always in the order rater, assignment, item."""
    table = schema.assignment
    owner = connection.scalar(sa.select(table.c.rater_id).where(table.c.id == assignment_id))
    if owner is None or (rater_id is not None and owner != rater_id):
        raise TutelageError(f"There is no assignment {assignment_id} of yours; ask for the next question.")
    lock(connection, schema.rater, owner)
    assignment = lock(connection, table, assignment_id)
    leases.lock_item(connection, assignment["item_id"])
    return assignment


def _receipt_again(known: sa.RowMapping, assignment_id: int) -> Receipt:
    if known["assignment_id"] != assignment_id:
        raise TutelageError(
            f"The idempotency key {known['idempotency_key']} was used for another question; every answer needs its own."
        )
    return Receipt(known["id"], assignment_id, known["revision"], bool(known["extra"]), True)


def _check(connection: sa.Connection, assignment: sa.RowMapping, answer: Answer) -> None:
    versions = schema.study_version
    query = sa.select(versions.c.scale, versions.c.criteria).where(versions.c.id == assignment["version_id"])
    version = connection.execute(query).one()
    kind = load_study(connection, assignment["study_id"]).kind
    answers.check(
        answer,
        places=len(json.loads(assignment["order"])),
        ranks=kind == "ranking",
        scale=version.scale,
        criteria=json.loads(version.criteria),
    )


def _write(connection: sa.Connection, assignment: sa.RowMapping, answer: Answer, now: int) -> Receipt:
    canonical = answers.canonical(answer, json.loads(assignment["order"]))
    before = judgements.latest(connection, assignment["id"])
    extra = _is_extra(connection, assignment)
    state = "skipped" if answer.choice == "skip" else "done"
    judgement_id = judgements.append(
        connection, assignment, answer, canonical, before=before, extra=extra, now=now
    )
    leases.close(connection, assignment["id"], assignment["item_id"], state, now, extra)
    _tally(connection, assignment, before, judgement_id)
    if answer.flags:
        record_event(
            connection, assignment["study_id"], now, f"rater {assignment['rater_id']}", "flagged",
            f"item {assignment['item_id']}", flags=list(answer.flags), judgement=judgement_id,
        )  # fmt: skip
    revision = 1 if before is None else before["revision"] + 1
    return Receipt(judgement_id, assignment["id"], revision, bool(extra), False)


def _is_extra(connection: sa.Connection, assignment: sa.RowMapping) -> int:
    """An answer takes the room that its reservation holds, or held before it was answered; otherwise what is left."""
    if assignment["state"] in ("leased", "done"):
        return int(assignment["extra"])
    if assignment["repeat"]:
        return 0
    items = schema.item
    room = connection.scalar(sa.select(items.c.room).where(items.c.id == assignment["item_id"]))
    return int(not room)


def _tally(
    connection: sa.Connection, assignment: sa.RowMapping, before: sa.RowMapping | None, new_id: int
) -> None:
    """Move the rater's counters from the answer that was in force to the new one."""
    items = schema.item
    item = connection.execute(sa.select(items.c.gold).where(items.c.id == assignment["item_id"])).one()
    lengths = [len(text) for text in response_texts(connection, assignment["item_id"])]
    new = (
        connection.execute(sa.select(schema.judgement).where(schema.judgement.c.id == new_id))
        .mappings()
        .one()
    )
    first = _first_showing(connection, assignment)
    change = _counts(new, item.gold, lengths, first)
    for name, count in (_counts(before, item.gold, lengths, first) if before is not None else {}).items():
        change[name] -= count
    raters = schema.rater
    values = {name: raters.c[name] + count for name, count in change.items() if count}
    if values:
        connection.execute(raters.update().where(raters.c.id == assignment["rater_id"]).values(**values))


def _first_showing(connection: sa.Connection, assignment: sa.RowMapping) -> str | None:
    """The rater's verdict when the item was shown the first time, for a repeat."""
    if not assignment["repeat"]:
        return None
    table = schema.judgement
    query = sa.select(table.c.verdict).where(
        table.c.item_id == assignment["item_id"],
        table.c.rater_id == assignment["rater_id"],
        table.c.repeat == 0,
        table.c.latest == 1,
    )
    return connection.scalar(query)


def _counts(row: sa.RowMapping, gold: str | None, lengths: list[int], first: str | None) -> dict[str, int]:
    """What one judgement adds to its rater's counters, by the names of `schema.TALLIES`."""
    counts = dict.fromkeys(schema.TALLIES, 0)
    verdict = row["verdict"]
    counts["skipped" if verdict == "skip" else "answered"] = 1
    counts["flagged"] = int(row["flags"] != "[]")
    counts["ties"] = int(verdict == "tie")
    if verdict in ("a", "b"):
        chosen = "ab".index(verdict)
        counts["left_chosen" if json.loads(row["order"])[0] == chosen else "right_chosen"] = 1
        counts["longer_chosen"] = int(lengths[chosen] > lengths[1 - chosen])
        counts["shorter_chosen"] = int(lengths[chosen] < lengths[1 - chosen])
    if gold is not None and verdict != "skip":
        counts["gold_seen"], counts["gold_right"] = 1, int(verdict == gold)
    if first is not None and verdict != "skip":
        counts["repeat_seen"], counts["repeat_same"] = 1, int(verdict == first)
    if row["active_ms"] is not None:
        counts["timed"], counts["active_ms"] = 1, row["active_ms"]
    return counts
