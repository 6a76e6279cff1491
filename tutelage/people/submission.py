"""Receiving the answers of raters.

An answer is acknowledged only when it is on the disk. The same idempotency key twice is one judgement and gets the same
receipt, so that a browser may send again whenever it is in doubt. Changing one's mind is a new revision; what was said
before stays. An answer to a reservation that ran out counts like any other if the item still has room, and is kept as
an extra one if it has not.
"""

from collections import Counter
from dataclasses import dataclass

from tutelage.base.errors import TutelageError
from tutelage.people.answers import Answer, check_correction, check_envelope, check_spans
from tutelage.people.store import assignments, inbox, judgements, open_items, visits
from tutelage.people.store.assignments import Lease, load_assignment
from tutelage.people.store.counters import ItemFacts, LockedItem, tally
from tutelage.people.store.engine import Connection, Store, record_event
from tutelage.people.store.judgements import JudgementRow
from tutelage.people.store.raters import DECIDING, Rater, add_tallies, finish_training, lock_rater
from tutelage.people.store.studies import load_study


@dataclass(frozen=True)
class Receipt:
    """The receipt of an answer: judgement, assignment and revision, whether it was `extra` (the item complete) or
    `known`."""

    judgement: int
    assignment: int
    revision: int
    extra: bool
    known: bool


@dataclass(frozen=True)
class _Locks:
    """Everything an answer touches, locked in this order."""

    rater: Rater
    lease: Lease
    item: LockedItem


def submit(store: Store, assignment_id: int, answer: Answer, *, rater_id: int | None = None) -> Receipt:
    """Store an answer as a judgement. With `rater_id`, the assignment must be that rater's.

    Raises:
        TutelageError: no such assignment, another rater's, an answer that the question does not allow, or an
            idempotency key that was used for another question.
        Unavailable: the database cannot be written just now; nothing was saved, send the same answer again.
    """
    with store.write() as connection:
        locked = _lock(connection, assignment_id, rater_id)
        same, before = judgements.find_judgements(
            connection, locked.lease.study_id, answer.key, assignment_id
        )
        if same is not None:
            if same.assignment_id != assignment_id:
                raise TutelageError(
                    f"The idempotency key {same.key} was used for another question; every answer needs its own."
                )
            return Receipt(same.id, assignment_id, same.revision, same.extra, True)
        lease = locked.lease
        lease.kind.check(answer, lease.screen)
        check_envelope(answer)
        _check_corrected(connection, lease, answer)
        return _write(connection, locked, before, answer, store.now())


def _lock(connection: Connection, assignment_id: int, rater_id: int | None) -> _Locks:
    owner = rater_id if rater_id is not None else assignments.owner_of(connection, assignment_id)
    if owner is not None:
        rater = lock_rater(connection, owner)
        locked = assignments.lock_lease(connection, assignment_id)
        if locked is not None and locked[0].rater_id == rater.id:
            return _Locks(rater, *locked)
    raise TutelageError(f"There is no assignment {assignment_id} of yours; ask for the next question.")


def _write(
    connection: Connection, locked: _Locks, before: JudgementRow | None, answer: Answer, now: int
) -> Receipt:
    rater, lease, item = locked.rater, locked.lease, locked.item
    extra = _is_extra(lease, item)
    said = lease.kind.canonical(answer, lease.order, lease.screen)
    new = judgements.append_revision(connection, lease, answer, said, before=before, extra=extra, now=now)
    state = "skipped" if answer.choice == "skip" else "done"
    counted = not extra and rater.fills_places
    counts = assignments.close(connection, lease, item, state, now, extra=extra, counted=counted)
    first = judgements.first_verdict(connection, item.id, rater.id) if lease.repeat else None
    about = ItemFacts(item.pool, item.gold, item.lengths, first)
    change = Counter(tally(new, about))
    if before is not None:
        change.subtract(tally(before, about))
    add_tallies(connection, rater, change)
    if item.pool == "training" and rater.state == "training":
        _graduate(connection, locked, now)
    if answer.flags:
        detail = {"flags": list(answer.flags), "judgement": new.id}
        record_event(connection, lease.study_id, now, rater.name, "flagged", f"item {item.id}", **detail)
    inbox.notice_answer(connection, rater, lease, answer, new, before, now)
    if lease.chosen_by in DECIDING:
        inbox.settle_disagreement(connection, item.id, rater.name, now)
    elif counted and said.verdict in ("a", "b"):
        inbox.notice_disagreement(connection, lease, item, counts, now)
    return Receipt(new.id, lease.id, new.revision, extra, False)


def _graduate(connection: Connection, locked: _Locks, now: int) -> None:
    """After the last training question: on to the real ones with enough right answers."""
    rater, study = locked.rater, load_study(connection, locked.lease.study_id)
    if open_items.known_item(connection, study.id, rater.id, "training", 0) is not None:
        return
    seen, right = judgements.training_record(connection, rater.id)
    passed = right >= study.plan.training_pass * seen
    finish_training(connection, rater, passed, now, seen=seen, right=right)
    if passed:
        visits.begin_answers(connection, rater.id)
    elif not visits.screen_out(connection, rater, now):
        inbox.notice_practice(connection, rater, seen, right, now)


def _check_corrected(connection: Connection, lease: Lease, answer: Answer) -> None:
    """Raises TutelageError for a better response or marked words that the question does not allow."""
    if answer.correction is None and not answer.spans:
        return
    shown = lease.screen
    if (answer.correction is not None and not shown.corrections) or (answer.spans and not shown.spans):
        raise TutelageError(
            "This study asks for no better response, or for no marked words; its owner allows them in the settings."
        )
    if answer.choice == "skip":
        raise TutelageError("A question that cannot be judged takes no better response and no marked words.")
    texts = load_assignment(connection, lease.id).texts
    if answer.correction is not None:
        check_correction(answer.correction, texts)
    check_spans(answer.spans, texts, shown.spans)


def _is_extra(lease: Lease, item: LockedItem) -> bool:
    """A reserved or answered place is the rater's own; one that was given back is taken again if there is room."""
    if lease.state in ("leased", "done") or lease.extra:
        return lease.extra
    return not lease.repeat and item.room == 0
