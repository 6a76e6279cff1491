"""Access to a study: invitations, personal links, and the sessions of signed-in raters, reviewers and owners. Only
hashes of tokens are stored; a token is shown once.

Opening a link (`peek_invite`) does not accept the invitation (`accept_invite`), because mail scanners follow links. An
invitation with a rater is that rater's personal link: it can be used repeatedly, until it expires or is revoked.

A session ends when it expires. Sessions of owners and reviewers also end after `IDLE_DAYS` without use, and all
sessions of a member end when access is removed.
"""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.people.languages import Sentence
from tutelage.people.settings import Credential, NewInvitation
from tutelage.people.store import schema
from tutelage.people.store.engine import DAY_MS, Connection, Store, Unavailable, insert_row, record_event, value_of
from tutelage.people.store.raters import Rater, Role, find_rater, get_rater, has_stand_ins, insert_rater
from tutelage.people.store.studies import Study, study_of
from tutelage.people.validation import FieldError, StudyError

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
    """Start a session of a rater; returns its token. Raises TutelageError if the member's access was removed."""
    with store.write() as connection:
        return new_session(connection, get_rater(connection, rater_id), store.now(), days, device)


def new_session(connection: Connection, rater: Rater, now: int, days: float, device: str | None = None) -> str:
    """`start_session` within a transaction."""
    if rater.removed is not None:
        raise StudyError("The access of “%(name)s” was taken away; an owner can give it back.", name=rater.name)
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


PERSONAL_DAYS = 90.0
"""Default validity of a personal link."""
MOST_RETURNS = 1_000
"""Maximum number of uses of a personal link."""
_invites, _items = schema.invite, schema.item


@dataclass(frozen=True)
class Invite:
    """An invitation as shown to owners. `problem` is the reason why it cannot be used, if any; `rater` is the owner of
    a personal link."""

    id: int
    study_id: int
    role: Role
    note: str
    uses: int
    max_uses: int
    expires: int
    problem: str
    rater: int | None = None


def create_invite(store: Store, study_id: int, new: NewInvitation | None = None, *, actor: str = "owner") -> Credential:
    """Create an invitation, by default for one rater; its secret cannot be read again."""
    new, now = new or NewInvitation(), store.now()
    with store.write() as connection:
        number, token = _insert(connection, study_id, new.role, new.note, new.uses, new.days, now)
        detail = {"role": new.role, "uses": new.uses}
        record_event(connection, study_id, now, actor, "invite_created", f"invite {number}", **detail)
    return Credential(number, token)


def personal_link(
    store: Store, rater_id: int, *, days: float = PERSONAL_DAYS, note: str = "", actor: str = "owner"
) -> str:
    """Create a personal link of a rater; returns its token, which cannot be read again."""
    with store.write() as connection:
        return _new_link(connection, get_rater(connection, rater_id), store.now(), days, note, actor)


def personal_links(
    store: Store,
    study_id: int,
    names: Sequence[str],
    *,
    days: float = PERSONAL_DAYS,
    note: str = "",
    actor: str = "owner",
) -> tuple[tuple[str, str], ...]:
    """Create a personal link for each name, all or none: for the existing rater of that name (case-insensitive) or a
    new one. Returns pairs of stored name and token. Raises FieldError if a name is invalid, or belongs to an owner, a
    reviewer, or a rater that is not a person."""
    now = store.now()
    links: dict[int, tuple[str, str]] = {}
    with store.write(alone=has_stand_ins(store, study_id)) as connection:
        training = has_training(connection, study_of(connection, study_id))
        for name in names:
            try:
                rater = find_rater(connection, study_id, name) or insert_rater(
                    connection, study_id, name, now=now, training=training, actor=actor
                )
            except FieldError as error:  # of one of the `names`
                raise FieldError("names", error.args[0]) from error
            if rater.role != "rater" or rater.kind != "human":
                raise FieldError(
                    "names",
                    Sentence(
                        "'%(name)s' is an owner or a reviewer of this study, so a personal link is not for them.",
                        name=rater.name,
                    )
                    if rater.role != "rater"
                    else Sentence("'%(name)s' is not a person, so a personal link is not for them.", name=rater.name),
                )
            if rater.id not in links:
                links[rater.id] = rater.name, _new_link(connection, rater, now, days, note, actor)
    return tuple(links.values())


def _new_link(connection: Connection, rater: Rater, now: int, days: float, note: str, actor: str) -> str:
    _, token = _insert(connection, rater.study_id, rater.role, note, MOST_RETURNS, days, now, rater.id)
    record_event(connection, rater.study_id, now, actor, "personal_link", rater.name, days=days)
    return token


def _insert(
    connection: Connection,
    study_id: int,
    role: Role,
    note: str,
    max_uses: int,
    days: float,
    now: int,
    rater: int | None = None,
) -> tuple[int, str]:
    """Insert an invitation; returns its id and token."""
    token = secrets.token_urlsafe(32)
    row = {
        "study_id": study_id, "role": role, "token_sha256": token_hash(token), "note": note, "max_uses": max_uses,
        "expires": now + int(days * DAY_MS), "created": now, "rater_id": rater,
    }  # fmt: skip
    return insert_row(connection, _invites, row), token


def list_invites(store: Store, study_id: int, *, rater: int | None = None) -> tuple[Invite, ...]:
    """Open invitations of a study, or personal links of a rater, newest first."""
    query = sa.select(_invites).where(_invites.c.study_id == study_id).order_by(_invites.c.id.desc())
    with store.read() as connection:
        return tuple(_invite(row, store.now()) for row in connection.execute(query.where(_of(rater))).mappings())


def _of(rater: int | None) -> sa.ColumnElement[bool]:
    return _invites.c.rater_id.is_(None) if rater is None else _invites.c.rater_id == rater


def revoke_invite(store: Store, study_id: int, number: int, *, rater: int | None = None, actor: str = "owner") -> None:
    """Revoke an open invitation, or a personal link of a rater; raters who accepted it stay. Raises TutelageError if
    the study has no such invitation."""
    mine = sa.and_(_invites.c.id == number, _invites.c.study_id == study_id, _of(rater))
    with store.write() as connection:
        if not connection.execute(_invites.update().where(mine).values(revoked=store.now())).rowcount:
            raise StudyError("There is no such invitation in this study.")
        record_event(connection, study_id, store.now(), actor, "invite_revoked", f"invite {number}")


def peek_invite(store: Store, token: str) -> Invite | None:
    """Invitation of a token, without using it; None for an unknown token."""
    query = sa.select(_invites).where(_invites.c.token_sha256 == token_hash(token))
    with store.read() as connection:
        row = connection.execute(query).mappings().one_or_none()
    return None if row is None else _invite(row, store.now())


def accept_invite(store: Store, token: str, name: str, *, session_days: float = 30) -> tuple[Rater, str]:
    """Accept an invitation. Returns the rater and a session token: a new rater with this name or, for a personal link,
    its owner, regardless of `name`.

    Raises:
        NameTaken: the study already has a rater of that name.
        TutelageError: the invitation is unknown, used up, expired or revoked.
    """
    now = store.now()
    preview = peek_invite(store, token)
    with store.write(alone=preview is not None and has_stand_ins(store, preview.study_id)) as connection:
        query = sa.select(_invites).where(_invites.c.token_sha256 == token_hash(token)).with_for_update()
        row = connection.execute(query).mappings().one_or_none()
        if row is None:
            raise StudyError("This invitation does not exist; ask the person who sent it for a new one.")
        invite = _invite(row, now)
        if invite.problem:
            raise TutelageError(invite.problem)
        connection.execute(_invites.update().where(_invites.c.id == invite.id).values(uses=invite.uses + 1))
        if invite.rater is not None:
            rater = get_rater(connection, invite.rater)
            return rater, new_session(connection, rater, now, session_days)
        study = study_of(connection, invite.study_id)
        training = invite.role == "rater" and has_training(connection, study)
        rater = insert_rater(connection, study.id, name, now=now, role=invite.role, training=training, actor=name)
        record_event(connection, study.id, now, name, "invite_accepted", f"invite {invite.id}", rater=rater.id)
        return rater, new_session(connection, rater, now, session_days)


def has_training(connection: Connection, study: Study) -> bool:
    """Whether new raters start with practice questions."""
    mine = sa.and_(_items.c.study_id == study.id, _items.c.pool == "training")
    return connection.scalar(sa.select(_items.c.id).where(mine).limit(1)) is not None


def _invite(row: sa.RowMapping, now: int) -> Invite:
    problem = ""
    if row["revoked"] is not None:
        problem = Sentence("This invitation was withdrawn; ask the person who sent it for a new one.")
    elif row["expires"] <= now:
        problem = Sentence("This invitation has expired; ask the person who sent it for a new one.")
    elif row["uses"] >= row["max_uses"]:
        problem = Sentence("This invitation has been used already; ask the person who sent it for a new one.")
    return value_of(Invite, row, problem=problem, rater=row["rater_id"])
