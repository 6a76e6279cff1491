"""Tokens: hashed, of limited rights, with an end, revocable, audited; and changes that are sent twice."""

import base64
from typing import Any

import pytest
import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.people import Store, create_study, list_events
from tutelage.people.settings import NewToken
from tutelage.people.store import schema
from tutelage.people.store.api_tokens import (
    PREFIX,
    REPLY_MS,
    USE_MS,
    KeyReused,
    Token,
    create_token,
    earlier_reply,
    find_token,
    keep_reply,
    list_tokens,
    note_use,
    revoke_token,
)

from ..worlds import Clock, study_of


def found(store: Store, text: str) -> Token:
    token = find_token(store, text)
    assert token is not None
    return token


def test_a_token_has_256_bits_of_which_only_the_hash_is_stored(store: Store) -> None:
    study = study_of(store, 1)
    text = create_token(store, study.id, NewToken("ci", ("export", "read")), actor="boss").secret
    assert len(base64.urlsafe_b64decode(text.removeprefix(PREFIX) + "=")) == 32
    with store.read() as connection:
        row = connection.execute(sa.select(schema.token)).mappings().one()
    assert all(text.removeprefix(PREFIX) not in str(value) for value in row.values())
    assert found(store, text).rights == ("read", "export")
    assert find_token(store, text + "x") is None
    (event,) = list_events(store, study.id, action="token_created")
    assert (event.actor, event.detail["name"], event.detail["rights"]) == ("boss", "ci", ["read", "export"])


def test_a_token_ends_by_itself_or_when_it_is_revoked(store: Store, clock: Clock) -> None:
    study = study_of(store, 1)
    short, long = (
        create_token(store, study.id, NewToken(f"{days} days", ("read",), days=days)).secret for days in (1, 2)
    )
    assert not found(store, short).problem
    clock.seconds += 86_400
    assert "expired" in found(store, short).problem
    assert not found(store, long).problem
    number = found(store, long).id
    for _ in range(2):
        revoke_token(store, study.id, number, actor="boss")
    assert "revoked" in found(store, long).problem
    assert [event.actor for event in list_events(store, study.id, action="token_revoked")] == ["boss"]
    other = create_study(store, "another")
    with pytest.raises(TutelageError, match=f"token {number}"):
        revoke_token(store, other.id, number)
    assert [token.name for token in list_tokens(store, study.id)] == ["2 days", "1 days"]
    assert list_tokens(store, other.id) == ()


def test_the_last_use_is_noted_now_and_then(store: Store, clock: Clock) -> None:
    study = study_of(store, 1)
    text = create_token(store, study.id, NewToken("ci", ("read",))).secret
    assert found(store, text).used is None
    note_use(store, found(store, text))
    first = found(store, text).used
    note_use(store, found(store, text))
    assert found(store, text).used == first
    clock.seconds += USE_MS / 1000
    note_use(store, found(store, text))
    assert found(store, text).used > (first or 0)  # type: ignore[operator]


NONSENSE: tuple[tuple[str, tuple[Any, ...], float | None, str], ...] = (
    ("", ("read",), None, "printable"),
    ("x" * 101, ("read",), None, "printable"),
    ("a\nb", ("read",), None, "printable"),
    ("ci", (), None, "right"),
    ("ci", ("read", "rule"), None, "'rule'"),
    ("ci", ("read",), 0, "days"),
    ("known", ("read",), None, "already"),
)


def test_tokens_that_make_no_sense_are_refused(lite: Store) -> None:
    study = study_of(lite, 1)
    create_token(lite, study.id, NewToken("known", ("read",)))
    for name, rights, days, complaint in NONSENSE:
        with pytest.raises(TutelageError, match=complaint):
            create_token(lite, study.id, NewToken(name, rights, days))
    assert len(list_tokens(lite, study.id)) == 1
    revoke_token(lite, study.id, list_tokens(lite, study.id)[0].id)
    create_token(lite, study.id, NewToken("known", ("read",)))


def test_a_change_is_answered_once_under_its_key(store: Store, clock: Clock) -> None:
    study = study_of(store, 1)
    first, second = (found(store, create_token(store, study.id, NewToken(name, ("add",))).secret) for name in "ab")
    with store.write() as connection:
        assert earlier_reply(connection, first, "k", b"body", store.now()) is None
        keep_reply(connection, first, "k", b"body", "the answer", store.now())
    with store.write() as connection:
        assert earlier_reply(connection, first, "k", b"body", store.now()) == "the answer"
        assert earlier_reply(connection, second, "k", b"other", store.now()) is None
        with pytest.raises(KeyReused):
            earlier_reply(connection, first, "k", b"other", store.now())
    clock.seconds += REPLY_MS / 1000 + 1
    with store.write() as connection:
        assert earlier_reply(connection, first, "k", b"other", store.now()) is None
