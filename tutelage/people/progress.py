"""How far a rater is: what the rater's screen says above the question."""

from dataclasses import dataclass

from tutelage.people.assign import refusal
from tutelage.people.store.engine import Connection, Store
from tutelage.people.store.judgements import training_record
from tutelage.people.store.live_models import live_models
from tutelage.people.store.raters import Rater, load_rater
from tutelage.people.store.remaining import count_left, count_practice_left
from tutelage.people.store.studies import load_study
from tutelage.people.store.visits import last_visit

COUNT_AGAIN_MS = 30_000
"""How old the count of what is left may be: others answer meanwhile, and owners add questions."""


@dataclass(frozen=True)
class PracticeProgress:
    """The practice questions that a rater has answered, and all that there are."""

    answered: int
    all: int


@dataclass(frozen=True)
class RaterProgress:
    """The progress of a rater, in the active visit where there is one.

    `answered` are the answers given, without practice and without what could not be judged, of `quota` where the rater
    has one. `left` is about the number of questions that the rater may still be asked, where the quota does not end
    before them; None where that is not known: in a live conversation, in practice, and where nothing is asked at
    present. `practice` is None outside it.
    """

    answered: int
    quota: int | None
    left: int | None = None
    practice: PracticeProgress | None = None


def rater_progress(store: Store, rater_id: int) -> RaterProgress:
    """The progress of a rater. Raises TutelageError where there is no such rater."""
    with store.read() as connection:
        rater, visit = load_rater(connection, rater_id), last_visit(connection, rater_id)
        base = visit.base if visit is not None and visit.state == "active" else 0
        answered = rater.tallies.answered - base
        if rater.state == "training":
            quota = None if rater.quota is None else rater.quota - base
            return RaterProgress(answered, quota, practice=_practice(connection, rater))
        left = _left(store, connection, rater)
        if rater.quota is None:
            return RaterProgress(answered, None, left)
        enough = left is None or left >= rater.quota - rater.tallies.answered
        return RaterProgress(answered, rater.quota - base, None if enough else left)


def _practice(connection: Connection, rater: Rater) -> PracticeProgress:
    answered, _ = training_record(connection, rater.id)
    return PracticeProgress(answered, answered + count_practice_left(connection, rater.study_id, rater.id))


def _left(store: Store, connection: Connection, rater: Rater) -> int | None:
    """The count of what is left. Between two counts the rater's own answers are taken from it: their sum does not
    change by an answer."""
    study = load_study(connection, rater.study_id)
    if rater.role == "reviewer" or refusal(study, rater) is not None:
        return None
    if live_models(connection, study.id) is not None:
        return None
    counted, whole = ("counted", rater.id), ("whole", rater.id)
    said, now = rater.tallies.answered + rater.tallies.skipped, store.now()
    if whole not in store.hints or abs(now - store.hints[counted]) >= COUNT_AGAIN_MS:
        store.hints[counted] = now
        store.hints[whole] = said + count_left(connection, study.id, rater.id)
    return max(0, store.hints[whole] - said)
