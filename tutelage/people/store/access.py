"""Invitations and sessions. Only hashes of tokens are stored; a token is shown once.

An invitation is looked at (`peek_invite`) before it is accepted (`accept_invite`), because mail scanners follow links.
"""

import hashlib
import secrets
from dataclasses import dataclass

import sqlalchemy as sa

from tutelage.errors import TutelageError
from tutelage.people.store import schema
from tutelage.people.store.engine import Connection, Store, inserted, lock, record_event
from tutelage.people.store.raters import Rater, Role, insert_rater, load_rater
from tutelage.people.store.studies import Study, load_study

_DAY_MS = 86_400_000
_invites, _sessions, _items = schema.invite, schema.session, schema.item


@dataclass(frozen=True)
class Invite:
    """An invitation as an owner sees it. `problem` says why it cannot be used, and is empty if it can."""

    id: int
    study_id: int
    role: Role
    note: str
    uses: int
    max_uses: int
    expires: int
    problem: str


def create_invite(
    store: Store,
    study_id: int,
    *,
    role: Role = "rater",
    max_uses: int = 1,
    days: float = 14,
    note: str = "",
    actor: str = "owner",
) -> str:
    """Make an invitation; returns its token, which cannot be read again later."""
    if max_uses < 1 or days <= 0:
        raise TutelageError("An invitation is good for at least one use and a positive number of days.")
    token, now = secrets.token_urlsafe(32), store.now()
    row = {
        "study_id": study_id, "role": role, "token_sha256": _hash(token), "note": note, "max_uses": max_uses,
        "expires": now + int(days * _DAY_MS), "created": now,
    }  # fmt: skip
    with store.write() as connection:
        invite_id = inserted(connection, _invites, row)
        record_event(
            connection,
            study_id,
            now,
            actor,
            "invite_created",
            f"invite {invite_id}",
            role=role,
            uses=max_uses,
        )
    return token


def list_invites(store: Store, study_id: int) -> tuple[Invite, ...]:
    """All invitations of a study, newest first."""
    query = sa.select(_invites).where(_invites.c.study_id == study_id).order_by(_invites.c.id.desc())
    with store.read() as connection:
        return tuple(_invite(row, store.now()) for row in connection.execute(query).mappings())


def revoke_invite(store: Store, invite_id: int, *, actor: str = "owner") -> None:
    """Withdraw an invitation; raters who accepted it stay."""
    with store.write() as connection:
        row = lock(connection, _invites, invite_id)
        connection.execute(_invites.update().where(_invites.c.id == invite_id).values(revoked=store.now()))
        record_event(connection, row["study_id"], store.now(), actor, "invite_revoked", f"invite {invite_id}")


def peek_invite(store: Store, token: str) -> Invite | None:
    """The invitation of that token, without using it; None for a token nobody was given."""
    query = sa.select(_invites).where(_invites.c.token_sha256 == _hash(token))
    with store.read() as connection:
        row = connection.execute(query).mappings().one_or_none()
    return None if row is None else _invite(row, store.now())


def accept_invite(store: Store, token: str, name: str, *, session_days: float = 30) -> tuple[Rater, str]:
    """Use the invitation: a new rater of that name, and the token of a session.

    Raises:
        TutelageError: the invitation is unknown, used up, expired or revoked, or the name is taken.
    """
    now = store.now()
    with store.write() as connection:
        query = sa.select(_invites).where(_invites.c.token_sha256 == _hash(token)).with_for_update()
        row = connection.execute(query).mappings().one_or_none()
        if row is None:
            raise TutelageError("This invitation does not exist; ask whoever sent it for a new one.")
        invite = _invite(row, now)
        if invite.problem:
            raise TutelageError(invite.problem)
        connection.execute(_invites.update().where(_invites.c.id == invite.id).values(uses=invite.uses + 1))
        study = load_study(connection, invite.study_id)
        training = invite.role == "rater" and _has_training(connection, study)
        rater = insert_rater(
            connection, study.id, name, now=now, role=invite.role, training=training, actor=name
        )
        record_event(
            connection, study.id, now, name, "invite_accepted", f"invite {invite.id}", rater=rater.id
        )
        return rater, _new_session(connection, rater, now, session_days)


def start_session(store: Store, rater_id: int, *, days: float = 30) -> str:
    """A new session of a rater; returns its token."""
    with store.write() as connection:
        return _new_session(connection, load_rater(connection, rater_id), store.now(), days)


def rater_of_session(store: Store, token: str) -> Rater | None:
    """The rater whose session this token belongs to; None if the session is unknown, over or ended."""
    query = sa.select(_sessions).where(_sessions.c.token_sha256 == _hash(token))
    with store.read() as connection:
        row = connection.execute(query).mappings().one_or_none()
        if row is None or row["revoked"] is not None or row["expires"] <= store.now():
            return None
        return load_rater(connection, row["rater_id"])


def end_session(store: Store, token: str) -> None:
    """End a session: its token is not accepted any more."""
    change = _sessions.update().where(_sessions.c.token_sha256 == _hash(token), _sessions.c.revoked.is_(None))
    with store.write() as connection:
        connection.execute(change.values(revoked=store.now()))


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _new_session(connection: Connection, rater: Rater, now: int, days: float) -> str:
    token = secrets.token_urlsafe(32)
    row = {"study_id": rater.study_id, "rater_id": rater.id, "token_sha256": _hash(token)}
    inserted(connection, _sessions, row | {"expires": now + int(days * _DAY_MS), "created": now})
    return token


def _has_training(connection: Connection, study: Study) -> bool:
    mine = sa.and_(_items.c.study_id == study.id, _items.c.pool == "training")
    return connection.scalar(sa.select(_items.c.id).where(mine).limit(1)) is not None


def _invite(row: sa.RowMapping, now: int) -> Invite:
    problem = ""
    if row["revoked"] is not None:
        problem = "This invitation was withdrawn; ask whoever sent it for a new one."
    elif row["expires"] <= now:
        problem = "This invitation has expired; ask whoever sent it for a new one."
    elif row["uses"] >= row["max_uses"]:
        problem = "This invitation has been used already; ask whoever sent it for a new one."
    return Invite(
        row["id"],
        row["study_id"],
        row["role"],
        row["note"],
        row["uses"],
        row["max_uses"],
        row["expires"],
        problem,
    )
