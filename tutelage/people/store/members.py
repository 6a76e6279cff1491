"""Owners and reviewers of a study: removing and restoring access, and external sign-in."""

from dataclasses import dataclass
from itertools import chain, count

import sqlalchemy as sa

from tutelage.people.store import schema
from tutelage.people.store.access import new_session, revoke_sessions
from tutelage.people.store.engine import Connection, Store, lock, record_event
from tutelage.people.store.raters import (
    DECIDING,
    LONGEST_NAME,
    Rater,
    Role,
    free_name,
    get_rater,
    insert_rater,
    list_raters,
)
from tutelage.people.validation import StudyError

_raters = schema.rater


@dataclass(frozen=True)
class Identity:
    """A person as identified by an external sign-in: `key` is unique and permanent, `contact` (e-mail or proxy user
    name) determines roles, `name` is displayed."""

    key: str
    contact: str
    name: str


def list_team(store: Store, study_id: int) -> tuple[Rater, ...]:
    """Owners and reviewers in the order of joining, including removed ones."""
    return tuple(rater for rater in list_raters(store, study_id) if rater.role in DECIDING)


def remove_member(store: Store, rater_id: int, *, actor: str) -> None:
    """Remove the access of an owner or reviewer and end all their sessions. Their work is kept. Raises TutelageError if
    it is a rater, or the last owner."""
    with store.write(alone=True) as connection:
        member = _member(connection, rater_id)
        if member.role == "owner" and member.removed is None:
            _refuse_last(connection, member)
        now = store.now()
        change = _raters.update().where(_raters.c.id == member.id)
        connection.execute(change.values(removed=now))
        revoke_sessions(connection, member, now)
        record_event(connection, member.study_id, now, actor, f"{member.role}_removed", member.name)


def restore_member(store: Store, rater_id: int, *, actor: str) -> None:
    """Restore the access of an owner or reviewer; ended sessions stay ended. Raises TutelageError if it is a rater."""
    with store.write() as connection:
        member = _member(connection, rater_id)
        connection.execute(_raters.update().where(_raters.c.id == member.id).values(removed=None))
        event = f"{member.role}_restored"
        record_event(connection, member.study_id, store.now(), actor, event, member.name)


def sign_in(
    store: Store, study_id: int, person: Identity, role: Role, *, days: float, device: str
) -> tuple[Rater, str]:
    """Start a session of the member with this identity, created with `role` if new. Returns the member and the session
    token. Raises TutelageError if the member's access was removed."""
    now = store.now()
    with store.write() as connection:
        lock(connection, schema.study, study_id)
        mine = sa.and_(_raters.c.study_id == study_id, _raters.c.identity == person.key)
        number = connection.scalar(sa.select(_raters.c.id).where(mine))
        if number is None:
            display_name = "".join(filter(str.isprintable, person.name)).strip()[: LONGEST_NAME - 5] or "member"
            name = free_name(connection, study_id, chain([display_name], (f"{display_name} {n}" for n in count(2))))
            new = insert_rater(connection, study_id, name, now=now, role=role, actor=name)
            number = new.id
        before = get_rater(connection, number)
        values = {"identity": person.key, "contact": person.contact, "role": role}
        connection.execute(_raters.update().where(_raters.c.id == number).values(**values))
        if before.role != role:
            detail = {"before": before.role, "role": role}
            record_event(connection, study_id, now, before.name, "role_changed", before.name, **detail)
        member = get_rater(connection, number)
        return member, new_session(connection, member, now, days, device)


def _member(connection: Connection, rater_id: int) -> Rater:
    lock(connection, schema.study, get_rater(connection, rater_id).study_id)
    member = get_rater(connection, rater_id)
    if member.role not in DECIDING:
        raise StudyError("“%(name)s” is a rater; pause or exclude raters on their page.", name=member.name)
    return member


def _refuse_last(connection: Connection, owner: Rater) -> None:
    others = sa.select(sa.func.count()).where(
        _raters.c.study_id == owner.study_id,
        _raters.c.role == "owner",
        _raters.c.removed.is_(None),
        _raters.c.id != owner.id,
    )
    if not connection.scalar(others):
        raise StudyError("“%(name)s” is the only owner of the study; invite another one first.", name=owner.name)
