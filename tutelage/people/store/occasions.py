"""Notices about the progress of a study: complete rounds, and agreement below a threshold."""

import json
from dataclasses import dataclass

import sqlalchemy as sa

from tutelage.people.store import schema
from tutelage.people.store.engine import Store, insert_row, lock, record_event
from tutelage.people.store.inbox import insert_notice
from tutelage.people.validation import FieldError

AGAIN = 0.02
"""Margin above the threshold that the agreement must reach before another notice."""
_notices, _alarms = schema.notice, schema.alarm


@dataclass(frozen=True)
class Alarm:
    """Minimum agreement of a study, as a share; `low` if owners have been notified and it has not recovered since."""

    agreement: float
    low: bool


def notice_round(store: Store, study_id: int, number: int, items: int) -> bool:
    """Add a notice of a complete round, once per number of items; returns whether one was added."""
    text = json.dumps({"round": number, "items": items})
    mine = sa.and_(_notices.c.study_id == study_id, _notices.c.kind == "round", _notices.c.text == text)
    with store.read() as connection:
        if connection.scalar(sa.select(_notices.c.id).where(mine).limit(1)) is not None:
            return False
    with store.write() as connection:
        lock(connection, schema.study, study_id)
        if connection.scalar(sa.select(_notices.c.id).where(mine).limit(1)) is not None:
            return False
        insert_notice(connection, study_id, "round", store.now(), text=text)
        return True


def set_alarm(store: Store, study_id: int, agreement: float | None, *, actor: str = "owner") -> None:
    """Set the minimum agreement, a share; None disables the alarm.

    Raises:
        FieldError: the share is not above 0 and at most 1.
    """
    if agreement is not None and not 0 < agreement <= 1:
        raise FieldError(
            "bound", "The least agreement is %(given)s; it is a share above 0 and at most 1.", given=float(agreement)
        )
    now = store.now()
    with store.write() as connection:
        lock(connection, schema.study, study_id)
        connection.execute(_alarms.delete().where(_alarms.c.study_id == study_id))
        if agreement is not None:
            insert_row(connection, _alarms, {"study_id": study_id, "agreement": agreement, "low": 0})
        record_event(connection, study_id, now, actor, "alarm_set", "agreement", bound=agreement)


def alarm_of(store: Store, study_id: int) -> Alarm | None:
    """Alarm of a study, or None."""
    query = sa.select(_alarms).where(_alarms.c.study_id == study_id)
    with store.read() as connection:
        row = connection.execute(query).mappings().one_or_none()
    return None if row is None else Alarm(row["agreement"], bool(row["low"]))


def notice_agreement(store: Store, study_id: int, agreement: float, items: int) -> bool:
    """Add a notice if the agreement has fallen below the study's alarm, once until it rises by `AGAIN` above the
    threshold; returns whether one was added."""
    alarm = alarm_of(store, study_id)
    if alarm is None or (agreement < alarm.agreement and alarm.low):
        return False
    falls, rises = agreement < alarm.agreement, alarm.low and agreement >= alarm.agreement + AGAIN
    if not falls and not rises:
        return False
    mine = sa.and_(_alarms.c.study_id == study_id, _alarms.c.agreement == alarm.agreement)
    with store.write() as connection:
        change = _alarms.update().where(mine, _alarms.c.low == int(alarm.low)).values(low=int(falls))
        if not connection.execute(change).rowcount or not falls:
            return False
        facts = {"agreement": agreement, "bound": alarm.agreement, "items": items}
        insert_notice(connection, study_id, "agreement", store.now(), text=json.dumps(facts))
        return True
