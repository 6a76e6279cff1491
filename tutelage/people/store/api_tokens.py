"""API tokens of programs, and replies to repeated requests.

A token is 256 random bits after `PREFIX`; only its hash is stored. It belongs to one study, has one or more of
`RIGHTS`, and is valid until it expires, if ever, or is revoked.
"""

import hashlib
import json
import secrets
from dataclasses import dataclass
from typing import cast

import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.people.settings import RIGHTS, Credential, NewToken, Right
from tutelage.people.store import schema
from tutelage.people.store.access import token_hash
from tutelage.people.store.engine import DAY_MS, Connection, Store, insert_row, lock, record_event, value_of
from tutelage.people.validation import FieldError, StudyError

PREFIX = "tutelage_"
"""Prefix of every token, so that secret scanners recognise tokens published by mistake."""
USE_MS = 60_000
"""Minimum interval between updates of a token's last use."""
REPLY_MS = 7 * 86_400_000
"""Retention of replies, for programs that repeat a request."""
_tokens, _requests = schema.token, schema.api_request


@dataclass(frozen=True)
class Token:
    """A token as shown to owners; times in milliseconds since the epoch. `problem` is the reason why it cannot be used,
    if any."""

    id: int
    study_id: int
    name: str
    rights: tuple[Right, ...]
    expires: int | None
    revoked: int | None
    used: int | None
    created: int
    problem: str

    @property
    def actor(self) -> str:
        """Name of the token in the audit trail."""
        return f"program {self.name}"


class KeyReused(TutelageError):
    """The idempotency key was used for a different change before."""


def create_token(store: Store, study_id: int, new: NewToken, *, actor: str = "owner") -> Credential:
    """Create a token; its secret cannot be read again. Raises FieldError if a valid token already has this name."""
    now, secret, name = store.now(), PREFIX + secrets.token_urlsafe(32), new.name.strip()
    rights = [right for right in RIGHTS if right in new.rights]
    row = {
        "study_id": study_id, "name": name, "rights": json.dumps(rights), "token_sha256": token_hash(secret),
        "expires": None if new.days is None else now + int(new.days * DAY_MS), "created": now,
    }  # fmt: skip
    with store.write() as connection:
        lock(connection, schema.study, study_id)
        if any(token.name == name and not token.problem for token in _tokens_of(connection, study_id, now)):
            raise FieldError(
                "name", "There is a token '%(name)s' already; revoke it first, or choose another name.", name=name
            )
        number = insert_row(connection, _tokens, row)
        detail = {"name": name, "rights": rights, "days": new.days}
        record_event(connection, study_id, now, actor, "token_created", f"token {number}", **detail)
    return Credential(number, secret)


def list_tokens(store: Store, study_id: int) -> tuple[Token, ...]:
    """Tokens of a study, newest first, including expired and revoked ones."""
    with store.read() as connection:
        return _tokens_of(connection, study_id, store.now())


def revoke_token(store: Store, study_id: int, number: int, *, actor: str = "owner") -> None:
    """Revoke a token. Raises TutelageError if the study has no such token."""
    now = store.now()
    with store.write() as connection:
        tokens = {token.id: token for token in _tokens_of(connection, study_id, now)}
        if number not in tokens:
            raise StudyError("There is no token %(number)s in this study.", number=number)
        if tokens[number].revoked is not None:
            return
        connection.execute(_tokens.update().where(_tokens.c.id == number).values(revoked=now))
        name = tokens[number].name
        record_event(connection, study_id, now, actor, "token_revoked", f"token {number}", name=name)


def find_token(store: Store, token: str) -> Token | None:
    """Token with this secret, valid or not; None if there is none."""
    query = sa.select(_tokens).where(_tokens.c.token_sha256 == token_hash(token))
    with store.read() as connection:
        row = connection.execute(query).mappings().one_or_none()
    return None if row is None else _token(row, store.now())


def note_use(store: Store, token: Token) -> None:
    """Update the time of the token's last use, at most once per `USE_MS`."""
    now = store.now()
    if token.used is None or now - token.used >= USE_MS:
        with store.write(lasting=False) as connection:
            connection.execute(_tokens.update().where(_tokens.c.id == token.id).values(used=now))


def earlier_reply(connection: Connection, token: Token, key: str, body: bytes, now: int) -> str | None:
    """Reply to the change that this token sent before under this key; None if there is none. Locks the study until the
    transaction ends, so that concurrent duplicates are applied once. Raises KeyReused if the key was used with a
    different body."""
    lock(connection, schema.study, token.study_id)
    old = sa.and_(_requests.c.token_id == token.id, _requests.c.created < now - REPLY_MS)
    connection.execute(_requests.delete().where(old))
    mine = sa.and_(_requests.c.token_id == token.id, _requests.c.idempotency_key == key)
    row = connection.execute(sa.select(_requests).where(mine)).mappings().one_or_none()
    if row is None:
        return None
    if row["sha256"] != _digest(body):
        raise KeyReused(f"The idempotency key '{key}' was used for different content; use a new key.")
    return cast(str, row["reply"])


def keep_reply(connection: Connection, token: Token, key: str, body: bytes, reply: str, now: int) -> None:
    """Store the reply to a change, in case the request is repeated."""
    row = {"token_id": token.id, "idempotency_key": key, "sha256": _digest(body)}
    insert_row(connection, _requests, row | {"reply": reply, "created": now})


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _tokens_of(connection: Connection, study_id: int, now: int) -> tuple[Token, ...]:
    query = sa.select(_tokens).where(_tokens.c.study_id == study_id).order_by(_tokens.c.id.desc())
    return tuple(_token(row, now) for row in connection.execute(query).mappings())


def _token(row: sa.RowMapping, now: int) -> Token:
    problem = ""
    if row["revoked"] is not None:
        problem = "This token was revoked."
    elif row["expires"] is not None and row["expires"] <= now:
        problem = "This token has expired."
    return value_of(Token, row, rights=tuple(json.loads(row["rights"])), problem=problem)
