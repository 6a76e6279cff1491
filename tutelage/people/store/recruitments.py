"""Recruitments: how a study recruits on a platform, the link that the platform is given, and the work to be paid."""

import secrets
from dataclasses import asdict, fields

import sqlalchemy as sa

from tutelage.people.platforms import find_platform
from tutelage.people.recruiting import Recruitment, Work
from tutelage.people.store import schema
from tutelage.people.store.engine import Connection, Store, inserted, lock, record_event
from tutelage.people.store.studies import load_study

MEASURED = 30
"""Answers with a time from which the mean of these times is taken for an estimate."""
_rows, _items, _raters = schema.recruitment, schema.item, schema.rater


def recruit(store: Store, study_id: int, recruitment: Recruitment, *, actor: str = "owner") -> None:
    """Set how the study recruits, from now on. The link that the platform was given stays the same."""
    values = asdict(recruitment) | {"again": int(recruitment.again)}
    with store.write() as connection:
        study = lock(connection, schema.study, study_id)
        now = store.now()
        mine = _rows.c.study_id == study_id
        if connection.scalar(sa.select(_rows.c.id).where(mine)) is None:
            row = values | {"study_id": study_id, "entry": secrets.token_urlsafe(16), "created": now}
            inserted(connection, _rows, row)
        else:
            connection.execute(_rows.update().where(mine).values(**values))
        record_event(connection, study_id, now, actor, "recruiting_changed", study["name"], **values)


def recruitment_of(store: Store, study_id: int) -> Recruitment | None:
    """How the study recruits; None where it does not."""
    with store.read() as connection:
        return load_recruitment(connection, study_id)


def load_recruitment(connection: Connection, study_id: int) -> Recruitment | None:
    """`recruitment_of` within a transaction."""
    row = connection.execute(sa.select(_rows).where(_rows.c.study_id == study_id)).mappings().one_or_none()
    if row is None:
        return None
    values = {field.name: row[field.name] for field in fields(Recruitment)}
    return Recruitment(**values | {"again": bool(row["again"])})


def entry_of(store: Store, study_id: int) -> str:
    """The path and query that the platform is given, with its own words for what it fills in."""
    query = sa.select(_rows.c.entry, _rows.c.platform).where(_rows.c.study_id == study_id)
    with store.read() as connection:
        row = connection.execute(query).one()
    return f"/enter/{row.entry}?{find_platform(row.platform).query}"


def study_of_entry(store: Store, entry: str) -> int | None:
    """The study whose link has this part; None where there is none."""
    with store.read() as connection:
        return connection.scalar(sa.select(_rows.c.study_id).where(_rows.c.entry == entry))


def work_in(store: Store, study_id: int) -> tuple[Work, Work, float | None]:
    """The work in the whole study and what is left of it, and the mean seconds that people took for an answer; None
    where too few answers tell."""
    with store.read() as connection:
        plan = load_study(connection, study_id).plan
        mine = sa.and_(_items.c.study_id == study_id, _items.c.excluded.is_(None))
        left = sa.case((_items.c.answered < _items.c.target, _items.c.target - _items.c.answered), else_=0)
        sums = sa.select(sa.func.sum(_items.c.target), sa.func.sum(left))
        wanted, missing = connection.execute(sums.where(mine, _items.c.pool == "production")).one()
        count = sa.select(sa.func.count()).select_from(_items).where(mine, _items.c.pool == "training")
        practice = connection.scalar(count) or 0
        times = sa.select(sa.func.sum(_raters.c.active_ms), sa.func.sum(_raters.c.timed))
        people = (_raters.c.study_id == study_id, _raters.c.kind == "human", _raters.c.role == "rater")
        active, timed = connection.execute(times.where(*people)).one()
    besides = plan.gold_rate + plan.repeat_rate
    whole, rest = (Work(int(votes or 0), besides, practice) for votes in (wanted, missing))
    return whole, rest, int(active) / int(timed) / 1000 if timed and timed >= MEASURED else None
