"""Recruitment of a study on a platform, and visits: the stays of people who come from there.

A visit is `active` until its answers are given (`complete`), the practice went wrong (`screened`), or its rater left or
gave no sign of life for some time (`left`). A visit that was left goes on when its rater comes back. An active visit
and a complete one take a place each; one that was left gives it back.

The platform's identifiers are kept here and nowhere else: a rater has a number instead of a name.
"""

import hashlib
import hmac
import secrets
from dataclasses import asdict, dataclass
from itertools import count
from typing import Literal, TypeAlias

import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.people.languages import Sentence
from tutelage.people.recruitment import Recruitment, Visitor, Work, find_platform
from tutelage.people.store import assignments, schema
from tutelage.people.store.access import has_training
from tutelage.people.store.engine import Connection, Store, insert_row, lock, record_event, value_of
from tutelage.people.store.live_models import live_models
from tutelage.people.store.open_items import count_left
from tutelage.people.store.raters import (
    Rater,
    free_name,
    has_stand_ins,
    insert_rater,
    load_rater,
    lock_rater,
    set_quota,
    touch_rater,
)
from tutelage.people.store.sessions import new_session
from tutelage.people.store.studies import Study, load_study

MEASURED = 30
"""Answers with a time from which the mean of these times is taken for an estimate."""
_recruitments, _items, _raters = schema.recruitment, schema.item, schema.rater


def recruit(store: Store, study_id: int, recruitment: Recruitment, *, actor: str = "owner") -> None:
    """Set how the study recruits, from now on. The link that the platform was given stays the same."""
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


def recruitment_of(store: Store, study_id: int) -> Recruitment | None:
    """How the study recruits; None where it does not."""
    with store.read() as connection:
        return load_recruitment(connection, study_id)


def load_recruitment(connection: Connection, study_id: int) -> Recruitment | None:
    """`recruitment_of` within a transaction."""
    row = (
        connection.execute(sa.select(_recruitments).where(_recruitments.c.study_id == study_id))
        .mappings()
        .one_or_none()
    )
    return None if row is None else value_of(Recruitment, row, again=bool(row["again"]))


def entry_of(store: Store, study_id: int) -> str:
    """The path and query that the platform is given, with its own words for what it fills in."""
    query = sa.select(_recruitments.c.entry, _recruitments.c.platform).where(
        _recruitments.c.study_id == study_id
    )
    with store.read() as connection:
        row = connection.execute(query).one()
    return f"/enter/{row.entry}?{find_platform(row.platform).query}"


def study_of_entry(store: Store, entry: str) -> int | None:
    """The study whose link has this part; None where there is none."""
    with store.read() as connection:
        return connection.scalar(sa.select(_recruitments.c.study_id).where(_recruitments.c.entry == entry))


def work_in(store: Store, study_id: int) -> tuple[Work, Work, float | None]:
    """The work in the whole study and what is left of it, and people's mean seconds per answer (None with too few)."""
    with store.read() as connection:
        plan = load_study(connection, study_id).plan
        mine = sa.and_(_items.c.study_id == study_id, _items.c.excluded.is_(None))
        left = sa.case((_items.c.answered < _items.c.target, _items.c.target - _items.c.answered), else_=0)
        sums = sa.select(sa.func.sum(_items.c.target), sa.func.sum(left))
        wanted, missing = connection.execute(sums.where(mine, _items.c.pool == "production")).one()
        training = sa.select(sa.func.count()).select_from(_items).where(mine, _items.c.pool == "training")
        practice = connection.scalar(training) or 0
        times = sa.select(sa.func.sum(_raters.c.active_ms), sa.func.sum(_raters.c.timed))
        people = (_raters.c.study_id == study_id, _raters.c.kind == "human", _raters.c.role == "rater")
        active, timed = connection.execute(times.where(*people)).one()
    besides = plan.gold_rate + plan.repeat_rate
    whole, rest = (Work(int(votes or 0), besides, practice) for votes in (wanted, missing))
    return whole, rest, int(active) / int(timed) / 1000 if timed and timed >= MEASURED else None


VisitState: TypeAlias = Literal["active", "complete", "screened", "left"]
_visits = schema.visit
_LATEST = (
    sa.select(_visits)
    .where(_visits.c.rater_id == sa.bindparam("rater"))
    .order_by(_visits.c.id.desc())
    .limit(1)
)


@dataclass(frozen=True)
class Visit:
    """A stay of a rater. `base` is the number of the rater's answers before it; times in milliseconds since the epoch.
    `worker`, `task`, `submission` are the platform's, empty once forgotten."""

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


class NotAdmitted(TutelageError):
    """Somebody whom the study does not take in at present; the sentence is for them."""


def enter(store: Store, study_id: int, visitor: Visitor, *, session_days: float = 30) -> tuple[Rater, str]:
    """Take in somebody from the platform: a new rater, or the one who comes back; and the token of a session.

    Raises:
        NotAdmitted: the study does not run, has no place left, or does not want this person again.
    """
    with store.write(alone=has_stand_ins(store, study_id)) as connection:
        lock(connection, schema.study, study_id)  # one at a time: places are counted
        study, recruitment = load_study(connection, study_id), load_recruitment(connection, study_id)
        if recruitment is None:
            raise NotAdmitted(
                Sentence("The study “%(name)s” does not recruit on a platform any more.", name=study.name)
            )
        now = store.now()
        _sweep(connection, study_id, recruitment, now)
        known = _of_worker(connection, study_id, recruitment.platform, visitor.worker)
        if known is None:
            rater = _come(connection, study, recruitment, visitor, now)
        else:
            rater = _come_again(connection, study, recruitment, visitor, known, now)
        touch_rater(connection, rater.id, now)
        return rater, new_session(connection, rater, now, session_days)


def visit_of(store: Store, rater_id: int) -> Visit | None:
    """The last visit of a rater; None for one who came from no platform."""
    with store.read() as connection:
        return last_visit(connection, rater_id)


def list_visits(store: Store, study_id: int) -> tuple[Visit, ...]:
    """All visits, oldest first."""
    query = sa.select(_visits).where(_visits.c.study_id == study_id).order_by(_visits.c.id)
    with store.read() as connection:
        return tuple(_visit(row) for row in connection.execute(query).mappings())


def end_visit(store: Store, rater_id: int, state: VisitState) -> Visit | None:
    """End the rater's active visit, if there is one, releasing open questions; returns the last visit."""
    with store.write() as connection:
        lock_rater(connection, rater_id)
        visit = last_visit(connection, rater_id)
        if visit is None or visit.state != "active":
            return visit
        for assignment_id in assignments.held_assignments(connection, rater_id):
            assignments.give_back(connection, assignment_id, "released", store.now())
        _end(connection, visit, state, store.now())
        return last_visit(connection, rater_id)


def begin_answers(connection: Connection, rater_id: int) -> None:
    """After the practice: the answers of the visit are counted from here on."""
    rater, visit = load_rater(connection, rater_id), last_visit(connection, rater_id)
    recruitment = load_recruitment(connection, rater.study_id)
    if visit is not None and visit.state == "active" and recruitment is not None:
        connection.execute(
            _visits.update().where(_visits.c.id == visit.id).values(base=rater.tallies.answered)
        )
        set_quota(connection, rater.id, rater.tallies.answered + recruitment.answers)


def screen_out(connection: Connection, rater: Rater, now: int) -> bool:
    """End the active visit of a rater who failed the practice; whether there was one."""
    visit = last_visit(connection, rater.id)
    if visit is None or visit.state != "active":
        return False
    _end(connection, visit, "screened", now)
    return True


def places_taken(store: Store, study_id: int) -> int:
    """The number of places that visits take."""
    with store.read() as connection:
        return _taken(connection, study_id)


def code_of(study: Study, recruitment: Recruitment, visit: Visit) -> str:
    """The code for the platform: of those who were screened out, of the study, or of this visit alone."""
    if visit.state == "screened":
        return recruitment.screened_code
    if recruitment.code:
        return recruitment.code
    message = f"completion|{visit.id}".encode()
    return hmac.new(bytes.fromhex(study.secret), message, hashlib.sha256).hexdigest()[:10].upper()


def _come(
    connection: Connection, study: Study, recruitment: Recruitment, visitor: Visitor, now: int
) -> Rater:
    _need_place(connection, study, recruitment)
    _need_question(connection, study)
    training = has_training(connection, study)
    visits = sa.select(sa.func.count()).select_from(_visits).where(_visits.c.study_id == study.id)
    numbers = count(
        (connection.scalar(visits) or 0) + 1
    )  # the name tells the platform and how many came before
    name = free_name(connection, study.id, (f"{recruitment.platform} {number}" for number in numbers))
    quota = None if training else recruitment.answers
    rater = insert_rater(connection, study.id, name, now=now, quota=quota, training=training, actor=name)
    _begin(connection, rater, recruitment, visitor, now)
    return rater


def _come_again(
    connection: Connection, study: Study, recruitment: Recruitment, visitor: Visitor, known: Visit, now: int
) -> Rater:
    """Go on with the visit, look at its code once more, or begin another one."""
    rater = lock_rater(connection, known.rater)
    same = visitor.submission == known.submission
    if known.state in ("active", "left"):
        if known.state == "left":
            _need_place(connection, study, recruitment)
        values = {"state": "active", "ended": None, "task": visitor.task, "submission": visitor.submission}
        connection.execute(_visits.update().where(_visits.c.id == known.id).values(**values))
        return rater
    if same:
        return rater
    if known.state == "screened" or not recruitment.again:
        words = find_platform(recruitment.platform).words
        raise NotAdmitted(
            Sentence(
                "You took part in this study already, and it asks everybody once. Thank you! Return to %(platform)s.",
                platform=words,
            )
        )
    _need_place(connection, study, recruitment)
    _need_question(connection, study, rater.id)
    set_quota(connection, rater.id, rater.tallies.answered + recruitment.answers)
    _begin(connection, rater, recruitment, visitor, now)
    return load_rater(connection, rater.id)


def _begin(
    connection: Connection, rater: Rater, recruitment: Recruitment, visitor: Visitor, now: int
) -> None:
    row = {
        "study_id": rater.study_id, "rater_id": rater.id, "platform": recruitment.platform, "worker": visitor.worker,
        "task": visitor.task, "submission": visitor.submission, "state": "active", "base": rater.tallies.answered,
        "started": now, "ended": None,
    }  # fmt: skip
    insert_row(connection, _visits, row)
    record_event(connection, rater.study_id, now, rater.name, "visit_began", rater.name)


def _need_place(connection: Connection, study: Study, recruitment: Recruitment) -> None:
    if study.state != "open":
        raise NotAdmitted(
            Sentence("The study does not run at the moment. Please return your place on the platform.")
        )
    if recruitment.places is not None and _taken(connection, study.id) >= recruitment.places:
        raise NotAdmitted(
            Sentence(
                "All places of the study are taken at the moment. Please return yours on the platform; if somebody "
                "leaves, the same link lets you in."
            )
        )


def _need_question(connection: Connection, study: Study, rater_id: int = 0) -> None:
    """Refuse whoever would be asked nothing: a rater, or somebody who is none yet."""
    if live_models(connection, study.id) is None and not count_left(connection, study.id, rater_id):
        raise NotAdmitted(
            Sentence("The study has no question left for you. Please return your place on the platform.")
        )


def _taken(connection: Connection, study_id: int) -> int:
    takes = sa.and_(_visits.c.study_id == study_id, _visits.c.state.in_(("active", "complete")))
    return connection.scalar(sa.select(sa.func.count()).select_from(_visits).where(takes)) or 0


def _sweep(connection: Connection, study_id: int, recruitment: Recruitment, now: int) -> None:
    """End the visits of which there was no sign of life."""
    silent = sa.func.coalesce(_raters.c.seen, _visits.c.started) < now - recruitment.minutes * 60_000
    query = sa.select(_visits).join(_raters, _raters.c.id == _visits.c.rater_id)
    query = query.where(_visits.c.study_id == study_id, _visits.c.state == "active", silent)
    for row in connection.execute(query).mappings().all():
        _end(connection, _visit(row), "left", now)


def _end(connection: Connection, visit: Visit, state: VisitState, now: int) -> None:
    connection.execute(_visits.update().where(_visits.c.id == visit.id).values(state=state, ended=now))
    rater = load_rater(connection, visit.rater)
    record_event(connection, rater.study_id, now, rater.name, f"visit_{state}", rater.name)


def _of_worker(connection: Connection, study_id: int, platform: str, worker: str) -> Visit | None:
    query = sa.select(_visits).where(
        _visits.c.study_id == study_id, _visits.c.platform == platform, _visits.c.worker == worker
    )
    row = connection.execute(query.order_by(_visits.c.id.desc()).limit(1)).mappings().one_or_none()
    return None if row is None else _visit(row)


def last_visit(connection: Connection, rater_id: int) -> Visit | None:
    """`visit_of` within a transaction."""
    row = connection.execute(_LATEST, {"rater": rater_id}).mappings().one_or_none()
    return None if row is None else _visit(row)


def _visit(row: sa.RowMapping) -> Visit:
    return value_of(Visit, row, rater=row["rater_id"])
