"""Progress of raters, and whether the remaining questions can fill their quotas."""

import math
from dataclasses import dataclass

from tutelage.people.assignment import refusal
from tutelage.people.store.conversations import find_live_models
from tutelage.people.store.engine import Connection, Store
from tutelage.people.store.judgements import training_record
from tutelage.people.store.open_items import count_left, count_practice_left, room_of
from tutelage.people.store.raters import Rater, crowd_kinds, get_rater, list_raters
from tutelage.people.store.studies import Study, study_of
from tutelage.people.store.visits import list_visits, visit_of

COUNT_AGAIN_MS = 30_000
"""Maximum age of the count of remaining questions, which answers of others and new questions change."""


@dataclass(frozen=True)
class PracticeProgress:
    """The number of practice questions answered by a rater, and in total."""

    answered: int
    all: int


@dataclass(frozen=True)
class RaterProgress:
    """The progress of a rater, in the active visit if there is one.

    `answered` is the number of answers without practice and skipped questions, of `quota` if there is one. `left` is
    the approximate number of remaining questions if it is less than the rest of the quota, else None; it is also None
    in live conversations, in practice, and while the rater is assigned no questions. `practice` is None outside
    practice.
    """

    answered: int
    quota: int | None
    left: int | None = None
    practice: PracticeProgress | None = None


def rater_progress(store: Store, rater_id: int) -> RaterProgress:
    """The progress of a rater. Raises TutelageError if the rater does not exist."""
    with store.read() as connection:
        rater, visit = get_rater(connection, rater_id), visit_of(connection, rater_id)
        base = visit.base if visit is not None and visit.state == "active" else 0
        answered = rater.tallies.answered - base
        if rater.state == "training":
            quota = None if rater.quota is None else rater.quota - base
            count, _ = training_record(connection, rater.id)
            practice = PracticeProgress(count, count + count_practice_left(connection, rater.study_id, rater.id))
            return RaterProgress(answered, quota, practice=practice)
        left = _left(store, connection, rater)
        if rater.quota is None:
            return RaterProgress(answered, None, left)
        enough = left is None or left >= rater.quota - rater.tallies.answered
        return RaterProgress(answered, rater.quota - base, None if enough else left)


def _left(store: Store, connection: Connection, rater: Rater) -> int | None:
    """The number of remaining questions. Between two counts, the rater's own answers are subtracted."""
    study = study_of(connection, rater.study_id)
    if rater.role == "reviewer" or refusal(study, rater) is not None:
        return None
    if find_live_models(connection, study.id) is not None:
        return None
    counted, whole = ("counted", rater.id), ("whole", rater.id)
    own, now = rater.tallies.answered + rater.tallies.skipped, store.now()
    if whole not in store.hints or abs(now - store.hints[counted]) >= COUNT_AGAIN_MS:
        store.hints[counted] = now
        store.hints[whole] = own + count_left(connection, study.id, rater.id)
    return max(0, store.hints[whole] - own)


@dataclass(frozen=True)
class Shortage:
    """A shortage of questions: quotas require `asked` answers, but items have room for only `left`; without known
    answers and repeats."""

    asked: int
    left: int


def find_shortage(store: Store, study: Study) -> Shortage | None:
    """The shortage of questions in a study; None if quotas can be filled, or if conversations create questions on
    demand."""
    if find_live_models(store, study.id) is not None:
        return None
    raters = list_raters(store, study.id)
    away = {visit.rater: visit.state != "active" for visit in list_visits(store, study.id)}
    kinds = crowd_kinds(raters)
    active = [rater for rater in raters if rater.kind in kinds and not away.get(rater.id)]
    needs = {rater.id: _need(study, rater) for rater in active}
    if not any(needs.values()):
        return None
    with store.read() as connection:
        room = room_of(connection, study.id)
    possible = sum(min(need, room.left_of(rater)) for rater, need in needs.items())
    shortage = Shortage(sum(needs.values()), min(room.answers, possible))
    return shortage if shortage.left < shortage.asked else None


def _need(study: Study, rater: Rater) -> int:
    """The number of answers to items without a known answer that are missing from a rater's quota."""
    ended = rater.state == "paused" or rater.excluded is not None or rater.role == "reviewer"
    if rater.quota is None or ended:
        return 0
    besides = study.plan.gold_rate + study.plan.repeat_rate
    return math.floor(max(0, rater.quota - rater.tallies.answered) * (1 - besides))
