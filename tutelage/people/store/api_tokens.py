"""Tokens by which programs use the API of a study, and what was answered to their changes.

A token is 256 random bits behind `PREFIX`; only its hash is stored. It belongs to one study, has one or more of
`RIGHTS`, and works until its end, if it has one, or until it is revoked.
"""

import hashlib
import json
import secrets
from dataclasses import dataclass
from typing import cast

import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.people.grants import RIGHTS, Credential, NewToken, Right
from tutelage.people.languages import Sentence
from tutelage.people.store import schema
from tutelage.people.store.engine import DAY_MS, Connection, Store, insert_row, lock, record_event, value_of
from tutelage.people.store.sessions import token_hash
from tutelage.people.validation import FieldError

PREFIX = "tutelage_"
"""How every token begins, so that scanners of repositories recognise one that was published."""
USE_MS = 60_000
"""The last use of a token is noted at most so often."""
REPLY_MS = 7 * 86_400_000
"""How long the answer to a change is kept for a program that sends it again."""
_tokens, _requests = schema.token, schema.api_request


@dataclass(frozen=True)
class Token:
    """A token as an owner sees it, times in milliseconds since the epoch. `problem` says why it cannot be used."""

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
        """The token in the audit trail."""
        return f"program {self.name}"


class KeyReused(TutelageError):
    """An idempotency key that came with another change before."""


def create_token(store: Store, study_id: int, new: NewToken, *, actor: str = "owner") -> Credential:
    """Make a token, which cannot be read again later.

    Raises:
        FieldError: the name is that of a token that works.
    """
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
                "name",
                "There is a token '%(name)s' already; revoke it first, or choose another name.",
                name=name,
            )
        number = insert_row(connection, _tokens, row)
        detail = {"name": name, "rights": rights, "days": new.days}
        record_event(connection, study_id, now, actor, "token_created", f"token {number}", **detail)
    return Credential(number, secret)


def list_tokens(store: Store, study_id: int) -> tuple[Token, ...]:
    """The tokens of a study, newest first, those that cannot be used any more included."""
    with store.read() as connection:
        return _tokens_of(connection, study_id, store.now())


def revoke_token(store: Store, study_id: int, number: int, *, actor: str = "owner") -> None:
    """Make a token useless. Raises TutelageError where the study has no such token."""
    now = store.now()
    with store.write() as connection:
        known = {token.id: token for token in _tokens_of(connection, study_id, now)}
        if number not in known:
            raise TutelageError(Sentence("There is no token %(number)s in this study.", number=number))
        if known[number].revoked is not None:
            return
        connection.execute(_tokens.update().where(_tokens.c.id == number).values(revoked=now))
        name = known[number].name
        record_event(connection, study_id, now, actor, "token_revoked", f"token {number}", name=name)


def find_token(store: Store, token: str) -> Token | None:
    """The token of that text, whether it can be used or not; None for a text that was never one."""
    query = sa.select(_tokens).where(_tokens.c.token_sha256 == token_hash(token))
    with store.read() as connection:
        row = connection.execute(query).mappings().one_or_none()
    return None if row is None else _token(row, store.now())


def note_use(store: Store, token: Token) -> None:
    """Note that the token is used now, unless that was noted a moment ago."""
    now = store.now()
    if token.used is None or now - token.used >= USE_MS:
        with store.write(lasting=False) as connection:
            connection.execute(_tokens.update().where(_tokens.c.id == token.id).values(used=now))


def earlier_reply(connection: Connection, token: Token, key: str, body: bytes, now: int) -> str | None:
    """The answer to the change that this token sent under this key before; None where it is the first time. Others who
    add to the study wait until the transaction ends, so that a change that is sent twice at once is made once.

    Raises:
        KeyReused: the key came with another body.
    """
    lock(connection, schema.study, token.study_id)
    old = sa.and_(_requests.c.token_id == token.id, _requests.c.created < now - REPLY_MS)
    connection.execute(_requests.delete().where(old))
    mine = sa.and_(_requests.c.token_id == token.id, _requests.c.idempotency_key == key)
    row = connection.execute(sa.select(_requests).where(mine)).mappings().one_or_none()
    if row is None:
        return None
    if row["sha256"] != _digest(body):
        raise KeyReused(f"The idempotency key '{key}' came with other content before; take a new key for it.")
    return cast(str, row["reply"])


def keep_reply(connection: Connection, token: Token, key: str, body: bytes, reply: str, now: int) -> None:
    """Keep the answer to a change for the case that it is sent again."""
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
