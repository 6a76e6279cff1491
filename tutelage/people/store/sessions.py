"""Sessions of signed-in raters, reviewers and owners, with device and expiry. Only hashes of tokens are stored.

A session ends when it expires. Sessions of owners and reviewers also end after `IDLE_DAYS` without use, and all
sessions of a member end when access is removed.
"""

import hashlib
import secrets
from dataclasses import dataclass

import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.people.languages import Sentence
from tutelage.people.store import schema
from tutelage.people.store.engine import DAY_MS, Connection, Store, Unavailable, insert_row, record_event, value_of
from tutelage.people.store.raters import Rater, get_rater

IDLE_DAYS = 7
"""Days without use after which the session of an owner or reviewer ends."""
SEEN_EVERY_MS = 300_000
"""Minimum interval between updates of a session's last use."""
LONGEST_DEVICE = 80
_sessions = schema.session


@dataclass(frozen=True)
class Session:
    """A session; times in milliseconds since the epoch. `device` is None for an unused link from the command line."""

    id: int
    rater_id: int
    device: str | None
    seen: int | None
    created: int
    expires: int


def start_session(store: Store, rater_id: int, *, days: float = 30, device: str | None = None) -> str:
    """Start a session of a rater; returns its token.

    Raises:
        TutelageError: the member's access was removed.
    """
    with store.write() as connection:
        return new_session(connection, get_rater(connection, rater_id), store.now(), days, device)


def new_session(connection: Connection, rater: Rater, now: int, days: float, device: str | None = None) -> str:
    """`start_session` within a transaction."""
    if rater.removed is not None:
        raise TutelageError(
            Sentence("The access of “%(name)s” was taken away; an owner can give it back.", name=rater.name)
        )
    token = secrets.token_urlsafe(32)
    row = {"study_id": rater.study_id, "rater_id": rater.id, "token_sha256": token_hash(token)}
    row |= {"device": device, "seen": now if device is not None else None}
    insert_row(connection, _sessions, row | {"expires": now + int(days * DAY_MS), "created": now})
    return token


def rater_of_session(store: Store, token: str) -> Rater | None:
    """Rater of the session with this token; None if the session is unknown, expired or ended."""
    signed_in = _find(store, token)
    return None if signed_in is None else signed_in[0]


def use_session(store: Store, token: str, device: str) -> tuple[Rater, int] | None:
    """`rater_of_session` for a request from a device, with the session id; updates the time of last use."""
    signed_in = _find(store, token)
    if signed_in is None:
        return None
    rater, session = signed_in
    now, device = store.now(), device[:LONGEST_DEVICE]
    due = session.seen is None or session.device is None or now - session.seen >= SEEN_EVERY_MS
    if due and not store.busy:  # reads do not wait for writers; a later request updates the time
        used = _sessions.update().where(_sessions.c.id == session.id)
        try:
            with store.write(lasting=False) as connection:
                connection.execute(used.values(seen=now, device=device))
        except Unavailable:
            pass  # likewise
    return rater, session.id


def session_owner(store: Store, study_id: int, number: int) -> Rater | None:
    """Rater of a session of the study; None if the session is unknown, expired or ended."""
    query = sa.select(_sessions).where(_sessions.c.id == number, _sessions.c.study_id == study_id)
    with store.read() as connection:
        row = connection.execute(query).mappings().one_or_none()
        signed_in = None if row is None else _alive(connection, row, store.now())
    return None if signed_in is None else signed_in[0]


def list_sessions(store: Store, rater_id: int) -> tuple[Session, ...]:
    """Active sessions of a rater, most recently used first."""
    query = sa.select(_sessions).where(_sessions.c.rater_id == rater_id).order_by(_sessions.c.id.desc())
    with store.read() as connection:
        rows = connection.execute(query).mappings().all()
        active = [_alive(connection, row, store.now()) for row in rows if row["revoked"] is None]
    return tuple(sorted((each[1] for each in active if each), key=lambda each: -(each.seen or 0)))


def end_session(store: Store, token: str) -> None:
    """End a session: its token is no longer accepted."""
    change = _sessions.update().where(_sessions.c.token_sha256 == token_hash(token), _sessions.c.revoked.is_(None))
    with store.write() as connection:
        connection.execute(change.values(revoked=store.now()))


def end_sessions(store: Store, rater_id: int, *, only: int | None = None, keep: int | None = None, actor: str) -> int:
    """End the sessions of a rater: all, `only` one, or all but the one to `keep`; returns the number ended."""
    with store.write() as connection:
        rater, now = get_rater(connection, rater_id), store.now()
        count = revoke_sessions(connection, rater, now, only=only, keep=keep)
        if count:
            record_event(connection, rater.study_id, now, actor, "sessions_ended", rater.name, sessions=count)
    return count


def revoke_sessions(
    connection: Connection, rater: Rater, now: int, *, only: int | None = None, keep: int | None = None
) -> int:
    """`end_sessions` within a transaction, without an event."""
    mine = [_sessions.c.rater_id == rater.id, _sessions.c.revoked.is_(None), _sessions.c.expires > now]
    if only is not None:
        mine.append(_sessions.c.id == only)
    if keep is not None:
        mine.append(_sessions.c.id != keep)
    return connection.execute(_sessions.update().where(*mine).values(revoked=now)).rowcount


def token_hash(token: str) -> str:
    """Hash under which a token is stored."""
    return hashlib.sha256(token.encode()).hexdigest()


def _find(store: Store, token: str) -> tuple[Rater, Session] | None:
    query = sa.select(_sessions).where(_sessions.c.token_sha256 == token_hash(token))
    with store.read() as connection:
        row = connection.execute(query).mappings().one_or_none()
        return None if row is None else _alive(connection, row, store.now())


def _alive(connection: Connection, row: sa.RowMapping, now: int) -> tuple[Rater, Session] | None:
    """Rater and session of a row; None if the session has ended."""
    if row["revoked"] is not None or row["expires"] <= now:
        return None
    rater = get_rater(connection, row["rater_id"])
    idle = rater.role != "rater" and row["seen"] is not None and row["seen"] + IDLE_DAYS * DAY_MS <= now
    if rater.removed is not None or idle:
        return None
    return rater, value_of(Session, row)
