"""Recruitment on a platform, and visits of raters from there.

A visit is `active` until its answers are complete (`complete`), the practice was failed (`screened`), or the rater left
or was inactive for some time (`left`). A visit that was left resumes when the rater returns. Active and complete visits
take a place each; leaving frees it.

The platform's identifiers are stored only here: raters are named by a number.
"""

import hashlib
import hmac
import secrets
from dataclasses import asdict, dataclass
from itertools import count
from typing import Literal, TypeAlias

import sqlalchemy as sa

from tutelage.people.recruitment import Recruitment, Visitor, Work, find_platform
from tutelage.people.store import assignments, schema
from tutelage.people.store.access import has_training, new_session
from tutelage.people.store.conversations import find_live_models
from tutelage.people.store.engine import Connection, Store, insert_row, lock, reading, record_event, value_of
from tutelage.people.store.open_items import count_left
from tutelage.people.store.raters import (
    Rater,
    free_name,
    get_rater,
    has_stand_ins,
    insert_rater,
    lock_rater,
    update_rater,
)
from tutelage.people.store.studies import Study, study_of
from tutelage.people.validation import StudyError

MEASURED = 30
"""Minimum number of timed answers for an estimate of their mean time."""
_recruitments, _items, _raters = schema.recruitment, schema.item, schema.rater


def recruit(store: Store, study_id: int, recruitment: Recruitment, *, actor: str = "owner") -> None:
    """Set the recruitment of the study from now on. The entry link stays the same."""
    values = asdict(recruitment) | {"again": int(recruitment.again)}
    with store.write() as connection:
        study = lock(connection, schema.study, study_id)
        now = store.now()
        mine = _recruitments.c.study_id == study_id
        if connection.scalar(sa.select(_recruitments.c.id).where(mine)) is None:
            row = values | {"study_id": study_id, "entry": secrets.token_urlsafe(16), "created": now}
            insert_row(connection, _recruitments, row)
        else:
            connection.execute(_recruitments.update().where(mine).values(**values))
        record_event(connection, study_id, now, actor, "recruiting_changed", study["name"], **values)


@reading
def recruitment_of(connection: Connection, study_id: int) -> Recruitment | None:
    """Recruitment of the study, or None."""
    row = (
        connection.execute(sa.select(_recruitments).where(_recruitments.c.study_id == study_id))
        .mappings()
        .one_or_none()
    )
    return None if row is None else value_of(Recruitment, row, again=bool(row["again"]))


def entry_of(store: Store, study_id: int) -> str:
    """Path and query of the entry link, with the platform's placeholders."""
    query = sa.select(_recruitments.c.entry, _recruitments.c.platform).where(_recruitments.c.study_id == study_id)
    with store.read() as connection:
        row = connection.execute(query).one()
    return f"/enter/{row.entry}?{find_platform(row.platform).query}"


def study_of_entry(store: Store, entry: str) -> int | None:
    """Study with this entry link, or None."""
    with store.read() as connection:
        return connection.scalar(sa.select(_recruitments.c.study_id).where(_recruitments.c.entry == entry))


def work_in(store: Store, study_id: int) -> tuple[Work, Work, float | None]:
    """Total and remaining work of the study, and people's mean seconds per answer (None with too few)."""
    with store.read() as connection:
        plan = study_of(connection, study_id).plan
        mine = sa.and_(_items.c.study_id == study_id, _items.c.excluded.is_(None))
        left = sa.case((_items.c.answered < _items.c.target, _items.c.target - _items.c.answered), else_=0)
        sums = sa.select(sa.func.sum(_items.c.target), sa.func.sum(left))
        total, missing = connection.execute(sums.where(mine, _items.c.pool == "production")).one()
        training = sa.select(sa.func.count()).select_from(_items).where(mine, _items.c.pool == "training")
        practice = connection.scalar(training) or 0
        times = sa.select(sa.func.sum(_raters.c.active_ms), sa.func.sum(_raters.c.timed))
        people = (_raters.c.study_id == study_id, _raters.c.kind == "human", _raters.c.role == "rater")
        active, timed = connection.execute(times.where(*people)).one()
    besides = plan.gold_rate + plan.repeat_rate
    whole, rest = (Work(int(votes or 0), besides, practice) for votes in (total, missing))
    return whole, rest, int(active) / int(timed) / 1000 if timed and timed >= MEASURED else None


VisitState: TypeAlias = Literal["active", "complete", "screened", "left"]
_visits = schema.visit
_LATEST = sa.select(_visits).where(_visits.c.rater_id == sa.bindparam("rater")).order_by(_visits.c.id.desc()).limit(1)


@dataclass(frozen=True)
class Visit:
    """A visit of a rater. `base` is the number of the rater's earlier answers; times in milliseconds since the epoch.
    `worker`, `task`, `submission` are the platform's identifiers, empty after erasure."""

    id: int
    rater: int
    platform: str
    worker: str
    task: str
    submission: str
    state: VisitState
    base: int
    started: int
    ended: int | None


class NotAdmitted(StudyError):
    """The study does not admit this person at the moment; the message is addressed to them."""


def enter(store: Store, study_id: int, visitor: Visitor, *, session_days: float = 30) -> tuple[Rater, str]:
    """Admit a person from the platform. Returns a new or returning rater, and a session token. Raises NotAdmitted if
    the study is not running, has no place left, or does not admit this person again."""
    with store.write(alone=has_stand_ins(store, study_id)) as connection:
        lock(connection, schema.study, study_id)  # serialised, because places are counted
        study, recruitment = study_of(connection, study_id), recruitment_of(connection, study_id)
        if recruitment is None:
            raise NotAdmitted("The study “%(name)s” does not recruit on a platform any more.", name=study.name)
        now = store.now()
        _sweep(connection, study_id, recruitment, now)
        visit = _of_worker(connection, study_id, recruitment.platform, visitor.worker)
        if visit is None:
            rater = _come(connection, study, recruitment, visitor, now)
        else:
            rater = _come_again(connection, study, recruitment, visitor, visit, now)
        update_rater(connection, rater.id, seen=now)
        return rater, new_session(connection, rater, now, session_days)


def list_visits(store: Store, study_id: int) -> tuple[Visit, ...]:
    """All visits, oldest first."""
    query = sa.select(_visits).where(_visits.c.study_id == study_id).order_by(_visits.c.id)
    with store.read() as connection:
        return tuple(_visit(row) for row in connection.execute(query).mappings())


def end_visit(store: Store, rater_id: int, state: VisitState) -> Visit | None:
    """End the rater's active visit, if any, and release open questions; returns the last visit."""
    with store.write() as connection:
        lock_rater(connection, rater_id)
        visit = visit_of(connection, rater_id)
        if visit is None or visit.state != "active":
            return visit
        for assignment_id in assignments.held_assignments(connection, rater_id):
            assignments.give_back(connection, assignment_id, "released", store.now())
        _end(connection, visit, state, store.now())
        return visit_of(connection, rater_id)


def begin_answers(connection: Connection, rater_id: int) -> None:
    """Start counting the answers of the visit, after the practice."""
    rater, visit = get_rater(connection, rater_id), visit_of(connection, rater_id)
    recruitment = recruitment_of(connection, rater.study_id)
    if visit is not None and visit.state == "active" and recruitment is not None:
        connection.execute(_visits.update().where(_visits.c.id == visit.id).values(base=rater.tallies.answered))
        update_rater(connection, rater.id, quota=rater.tallies.answered + recruitment.answers)


def screen_out(connection: Connection, rater: Rater, now: int) -> bool:
    """End the active visit of a rater who failed the practice; returns whether there was one."""
    visit = visit_of(connection, rater.id)
    if visit is None or visit.state != "active":
        return False
    _end(connection, visit, "screened", now)
    return True


def code_of(study: Study, recruitment: Recruitment, visit: Visit) -> str:
    """Completion code for the platform: the screen-out code, the study's code, or one unique to the visit."""
    if visit.state == "screened":
        return recruitment.screened_code
    if recruitment.code:
        return recruitment.code
    message = f"completion|{visit.id}".encode()
    return hmac.new(bytes.fromhex(study.secret), message, hashlib.sha256).hexdigest()[:10].upper()


def _come(connection: Connection, study: Study, recruitment: Recruitment, visitor: Visitor, now: int) -> Rater:
    _need_place(connection, study, recruitment)
    _need_question(connection, study)
    training = has_training(connection, study)
    visits = sa.select(sa.func.count()).select_from(_visits).where(_visits.c.study_id == study.id)
    numbers = count((connection.scalar(visits) or 0) + 1)
    name = free_name(connection, study.id, (f"{recruitment.platform} {number}" for number in numbers))
    quota = None if training else recruitment.answers
    rater = insert_rater(connection, study.id, name, now=now, quota=quota, training=training, actor=name)
    _begin(connection, rater, recruitment, visitor, now)
    return rater


def _come_again(
    connection: Connection, study: Study, recruitment: Recruitment, visitor: Visitor, previous: Visit, now: int
) -> Rater:
    """Resume the visit, show its code again, or start a new visit."""
    rater = lock_rater(connection, previous.rater)
    same = visitor.submission == previous.submission
    if previous.state in ("active", "left"):
        if previous.state == "left":
            _need_place(connection, study, recruitment)
        values = {"state": "active", "ended": None, "task": visitor.task, "submission": visitor.submission}
        connection.execute(_visits.update().where(_visits.c.id == previous.id).values(**values))
        return rater
    if same:
        return rater
    if previous.state == "screened" or not recruitment.again:
        words = find_platform(recruitment.platform).words
        raise NotAdmitted(
            "You have already taken part in this study, and each person may take part once. Thank you! Return to "
            "%(platform)s.",
            platform=words,
        )
    _need_place(connection, study, recruitment)
    _need_question(connection, study, rater.id)
    update_rater(connection, rater.id, quota=rater.tallies.answered + recruitment.answers)
    _begin(connection, rater, recruitment, visitor, now)
    return get_rater(connection, rater.id)


def _begin(connection: Connection, rater: Rater, recruitment: Recruitment, visitor: Visitor, now: int) -> None:
    row = {
        "study_id": rater.study_id, "rater_id": rater.id, "platform": recruitment.platform, "worker": visitor.worker,
        "task": visitor.task, "submission": visitor.submission, "state": "active", "base": rater.tallies.answered,
        "started": now, "ended": None,
    }  # fmt: skip
    insert_row(connection, _visits, row)
    record_event(connection, rater.study_id, now, rater.name, "visit_began", rater.name)


def _need_place(connection: Connection, study: Study, recruitment: Recruitment) -> None:
    if study.state != "open":
        raise NotAdmitted("The study does not run at the moment. Please return your place on the platform.")
    if recruitment.places is not None and places_taken(connection, study.id) >= recruitment.places:
        raise NotAdmitted(
            "All places of the study are taken at the moment. Please return yours on the platform; when a place "
            "becomes free, the same link lets you in."
        )


def _need_question(connection: Connection, study: Study, rater_id: int = 0) -> None:
    """Raises NotAdmitted if there is no question for the rater, or for a new one (0)."""
    if find_live_models(connection, study.id) is None and not count_left(connection, study.id, rater_id):
        raise NotAdmitted("The study has no question left for you. Please return your place on the platform.")


def places_taken(connection: Connection, study_id: int) -> int:
    """Number of places taken by visits, of those that `Recruitment.places` limits."""
    takes = sa.and_(_visits.c.study_id == study_id, _visits.c.state.in_(("active", "complete")))
    return connection.scalar(sa.select(sa.func.count()).select_from(_visits).where(takes)) or 0


def _sweep(connection: Connection, study_id: int, recruitment: Recruitment, now: int) -> None:
    """End inactive visits."""
    silent = sa.func.coalesce(_raters.c.seen, _visits.c.started) < now - recruitment.minutes * 60_000
    query = sa.select(_visits).join(_raters, _raters.c.id == _visits.c.rater_id)
    query = query.where(_visits.c.study_id == study_id, _visits.c.state == "active", silent)
    for row in connection.execute(query).mappings().all():
        _end(connection, _visit(row), "left", now)


def _end(connection: Connection, visit: Visit, state: VisitState, now: int) -> None:
    connection.execute(_visits.update().where(_visits.c.id == visit.id).values(state=state, ended=now))
    rater = get_rater(connection, visit.rater)
    record_event(connection, rater.study_id, now, rater.name, f"visit_{state}", rater.name)


def _of_worker(connection: Connection, study_id: int, platform: str, worker: str) -> Visit | None:
    query = sa.select(_visits).where(
        _visits.c.study_id == study_id, _visits.c.platform == platform, _visits.c.worker == worker
    )
    row = connection.execute(query.order_by(_visits.c.id.desc()).limit(1)).mappings().one_or_none()
    return None if row is None else _visit(row)


@reading
def visit_of(connection: Connection, rater_id: int) -> Visit | None:
    """Last visit of a rater; None if the rater did not come from a platform."""
    row = connection.execute(_LATEST, {"rater": rater_id}).mappings().one_or_none()
    return None if row is None else _visit(row)


def _visit(row: sa.RowMapping) -> Visit:
    return value_of(Visit, row, rater=row["rater_id"])
