"""Submission of answers by raters.

An answer is acknowledged only once it is on disk. Submissions with the same idempotency key create one judgement and
return the same receipt, so that browsers can retry safely. A changed answer is a new revision; previous revisions are
kept. An answer to an expired reservation counts if the item still has room, otherwise it is stored as an extra answer.
"""

from collections import Counter
from dataclasses import dataclass

from tutelage.base.errors import TutelageError
from tutelage.people.answers import Answer, check_correction, check_envelope, check_spans, is_decided
from tutelage.people.store import assignments, inbox, judgements, open_items, visits
from tutelage.people.store.assignments import Lease, load_assignment
from tutelage.people.store.completions import USE
from tutelage.people.store.engine import Connection, Store, record_event
from tutelage.people.store.items import LockedItem
from tutelage.people.store.judgements import ItemFacts, JudgementRow, tally
from tutelage.people.store.raters import DECIDING, Rater, add_tallies, finish_training, lock_rater
from tutelage.people.store.studies import study_of


@dataclass(frozen=True)
class Receipt:
    """The receipt of an answer. `extra`: the item was already complete; `known`: the answer was submitted before."""

    judgement: int
    assignment: int
    revision: int
    extra: bool
    known: bool


@dataclass(frozen=True)
class _Locks:
    """The locked rows that an answer modifies, in locking order."""

    rater: Rater
    lease: Lease
    item: LockedItem


def submit(store: Store, assignment_id: int, answer: Answer, *, rater_id: int | None = None) -> Receipt:
    """Store an answer as a judgement. With `rater_id`, the assignment must belong to this rater.

    Raises:
        TutelageError: the assignment does not exist or belongs to another rater, the answer is invalid for the
            question, or the idempotency key was used for another question.
        Unavailable: the database cannot be written at the moment; nothing was saved, send the same answer again.
    """
    with store.write() as connection:
        return submit_within(connection, assignment_id, answer, store.now(), rater_id=rater_id)


def submit_within(
    connection: Connection, assignment_id: int, answer: Answer, now: int, *, rater_id: int | None = None
) -> Receipt:
    """`submit` within a transaction."""
    locked = _lock(connection, assignment_id, rater_id)
    same, before = judgements.find_judgements(connection, locked.lease.study_id, answer.key, assignment_id)
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
    return _write(connection, locked, before, answer, now)


def _lock(connection: Connection, assignment_id: int, rater_id: int | None) -> _Locks:
    owner = rater_id if rater_id is not None else assignments.owner_of(connection, assignment_id)
    if owner is not None:
        rater = lock_rater(connection, owner)
        locked = assignments.lock_lease(connection, assignment_id)
        if locked is not None and locked[0].rater_id == rater.id:
            return _Locks(rater, *locked)
    raise TutelageError(
        f"Assignment {assignment_id} does not exist or belongs to another rater; request the next question."
    )


def _write(connection: Connection, locked: _Locks, before: JudgementRow | None, answer: Answer, now: int) -> Receipt:
    rater, lease, item = locked.rater, locked.lease, locked.item
    extra = _is_extra(lease, item)
    canonical = lease.kind.canonical(answer, lease.order, lease.screen)
    new = judgements.append_revision(connection, lease, answer, canonical, before=before, extra=extra, now=now)
    state = "skipped" if answer.choice == "skip" else "done"
    counted = not extra and rater.fills_places
    counts = assignments.close(connection, lease, item, state, now, extra=extra, counted=counted)
    first = judgements.first_verdict(connection, item.id, rater.id) if lease.repeat else None
    about = ItemFacts(item.pool, item.gold, item.lengths, first, shuffled=lease.chosen_by != USE)
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
    elif counted and is_decided(canonical.verdict):
        inbox.notice_disagreement(connection, lease, item, counts, now)
    return Receipt(new.id, lease.id, new.revision, extra, False)


def _graduate(connection: Connection, locked: _Locks, now: int) -> None:
    """After the last training question, activate the rater if enough answers were right."""
    rater, study = locked.rater, study_of(connection, locked.lease.study_id)
    if open_items.known_item(connection, study.id, rater.id, "training", 0) is not None:
        return
    answered, right = judgements.training_record(connection, rater.id)
    passed = right >= study.plan.training_pass * answered
    finish_training(connection, rater, passed, now, seen=answered, right=right)
    if passed:
        visits.begin_answers(connection, rater.id)
    elif not visits.screen_out(connection, rater, now):
        inbox.notice_practice(connection, rater, answered, right, now)


def _check_corrected(connection: Connection, lease: Lease, answer: Answer) -> None:
    """Raises TutelageError for a correction or spans that the question does not allow."""
    if answer.correction is None and not answer.spans:
        return
    screen = lease.screen
    if (answer.correction is not None and not screen.corrections) or (answer.spans and not screen.spans):
        raise TutelageError(
            "This study does not collect better responses or marked words; its owner can enable them in the settings."
        )
    if answer.choice == "skip":
        raise TutelageError("A skipped question cannot have a better response or marked words.")
    assignment = load_assignment(connection, lease.id)
    texts = assignment.texts
    if answer.correction is not None:
        check_correction(answer.correction, texts, assignment.steps)
    check_spans(answer.spans, texts, screen.spans)


def _is_extra(lease: Lease, item: LockedItem) -> bool:
    """Whether the answer exceeds the places of the item. A reserved or answered assignment keeps its place; a released
    one regains a place if there is room."""
    if lease.state in ("leased", "done") or lease.extra:
        return lease.extra
    return not lease.repeat and item.room == 0
