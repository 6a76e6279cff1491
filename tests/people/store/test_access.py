"""Invitations and sessions."""

import hashlib

import pytest
import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.people import (
    Store,
    accept_invite,
    add_items,
    add_rater,
    create_invite,
    create_study,
    end_session,
    list_events,
    list_invites,
    peek_invite,
    rater_of_session,
    revoke_invite,
    start_session,
)
from tutelage.people.settings import NewInvitation
from tutelage.people.store import schema
from tutelage.people.store.access import (
    IDLE_DAYS,
    SEEN_EVERY_MS,
    end_sessions,
    list_sessions,
    session_owner,
    use_session,
)

from ..worlds import Clock, item_rows, records, study_of

DAY = 86_400


def test_looking_at_an_invitation_does_not_use_it(store: Store) -> None:
    study = create_study(store, "tutoring")
    token = create_invite(store, study.id).secret
    for _ in range(3):
        invite = peek_invite(store, token)
        assert invite is not None
        assert (invite.problem, invite.uses, invite.role) == ("", 0, "rater")
    rater, session = accept_invite(store, token, "anna")
    assert rater_of_session(store, session) == rater
    assert (rater.role, rater.state) == ("rater", "active")
    used = peek_invite(store, token)
    assert used is not None
    assert "used already" in used.problem
    with pytest.raises(TutelageError, match="used"):
        accept_invite(store, token, "bert")


def test_an_invitation_is_good_for_so_many_uses_and_days(store: Store, clock: Clock) -> None:
    study = create_study(store, "tutoring")
    token = create_invite(store, study.id, NewInvitation(uses=2, days=3)).secret
    accept_invite(store, token, "anna")
    with pytest.raises(TutelageError, match="'anna'"):
        accept_invite(store, token, "anna")
    clock.seconds += 3 * DAY
    with pytest.raises(TutelageError, match="expired"):
        accept_invite(store, token, "bert")
    clock.seconds -= DAY
    accept_invite(store, token, "bert")  # the refused attempts used nothing up
    with pytest.raises(TutelageError, match="used"):
        accept_invite(store, token, "carl")


def test_a_withdrawn_or_invented_invitation_opens_nothing(store: Store) -> None:
    study = create_study(store, "tutoring")
    token = create_invite(store, study.id, NewInvitation(role="owner")).secret
    revoke_invite(store, study.id, list_invites(store, study.id)[0].id)
    for wrong, complaint in ((token, "withdrawn"), (token[:-1], "exist"), ("", "exist")):
        with pytest.raises(TutelageError, match=complaint):
            accept_invite(store, wrong, "anna")
    assert peek_invite(store, "nonsense") is None


def test_no_token_is_stored(store: Store) -> None:
    study = create_study(store, "tutoring")
    invite = create_invite(store, study.id).secret
    _, session = accept_invite(store, invite, "anna")
    with store.read() as connection:
        stored = str([connection.execute(sa.select(table)).all() for table in schema.metadata.sorted_tables])
    for token in (invite, session):
        assert len(token) >= 43  # 256 bits in base64
        assert token not in stored
        assert hashlib.sha256(token.encode()).hexdigest() in stored


def test_a_session_ends_when_it_is_ended_or_old(store: Store, clock: Clock) -> None:
    study = create_study(store, "tutoring")
    rater = add_rater(store, study.id, "anna")
    first, second = (start_session(store, rater.id, days=2) for _ in range(2))
    assert first != second
    end_session(store, first)
    assert rater_of_session(store, first) is None
    assert rater_of_session(store, second) == rater
    clock.seconds += 2 * DAY
    assert rater_of_session(store, second) is None
    assert rater_of_session(store, "") is None


def test_raters_are_trained_where_there_is_training_and_owners_are_not(lite: Store) -> None:
    study = study_of(lite, 1)
    prompts, completions, _ = records(3)
    taught = [row for row in item_rows(3, pool="training", gold="b") if row.key != "c0"]
    add_items(lite, study.id, prompts, completions, taught)
    rater, _ = accept_invite(lite, create_invite(lite, study.id).secret, "anna")
    owner, _ = accept_invite(lite, create_invite(lite, study.id, NewInvitation(role="owner")).secret, "boss")
    assert (rater.state, owner.state, owner.role) == ("training", "active", "owner")


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 81, "\x1f"])
def test_names_are_for_people_to_read(lite: Store, name: str) -> None:
    study = create_study(lite, "tutoring")
    with pytest.raises(TutelageError, match="printable"):
        add_rater(lite, study.id, name)


def test_a_session_tells_its_device_and_when_it_was_used_last(store: Store, clock: Clock) -> None:
    rater = add_rater(store, study_of(store, 1).id, "anna")
    token = start_session(store, rater.id)
    [session] = list_sessions(store, rater.id)
    assert (session.device, session.seen) == (None, None)
    assert use_session(store, token, "Firefox on Linux") == (rater, session.id)
    [used] = list_sessions(store, rater.id)
    assert used.device == "Firefox on Linux"
    assert used.seen is not None
    clock.seconds += SEEN_EVERY_MS / 1000 - 1
    use_session(store, token, "Firefox on Linux")
    assert list_sessions(store, rater.id) == (used,)  # no write for every request
    clock.seconds += 1
    use_session(store, token, "Safari on iPhone")
    [later] = list_sessions(store, rater.id)
    assert later.seen is not None
    assert (later.device, later.seen > used.seen) == ("Safari on iPhone", True)


def test_one_all_others_and_all_sessions_are_ended(store: Store) -> None:
    study = study_of(store, 1)
    anna, bert = (add_rater(store, study.id, name) for name in ("anna", "bert"))
    tokens = [start_session(store, anna.id, device="x") for _ in range(4)]
    other = start_session(store, bert.id)
    numbers = [use_session(store, token, "x")[1] for token in tokens]  # type: ignore[index]

    def alive() -> list[bool]:
        return [rater_of_session(store, token) is not None for token in tokens]

    assert end_sessions(store, anna.id, only=numbers[1], actor="anna") == 1
    assert alive() == [True, False, True, True]
    assert end_sessions(store, bert.id, only=numbers[0], actor="bert") == 0  # nobody ends another's
    assert end_sessions(store, anna.id, keep=numbers[2], actor="anna") == 2
    assert alive() == [False, False, True, False]
    assert end_sessions(store, anna.id, actor="olga") == 1
    assert alive() == [False] * 4
    assert list_sessions(store, anna.id) == ()
    assert rater_of_session(store, other) == bert
    told = [
        (event.actor, event.subject, event.detail["sessions"])
        for event in list_events(store, study.id, action="sessions_ended")
    ]
    assert told == [("olga", "anna", 1), ("anna", "anna", 2), ("anna", "anna", 1)]


@pytest.mark.parametrize(("role", "idle"), [("rater", False), ("reviewer", True), ("owner", True)])
def test_a_members_session_ends_when_nobody_uses_it(store: Store, clock: Clock, role: str, idle: bool) -> None:
    rater = add_rater(store, study_of(store, 1).id, "anna", role=role)  # type: ignore[arg-type]
    token = start_session(store, rater.id, days=30)
    for _ in range(3):
        clock.seconds += (IDLE_DAYS - 1) * DAY
        assert use_session(store, token, "x") is not None
    clock.seconds += IDLE_DAYS * DAY
    assert (use_session(store, token, "x") is None) == idle
    assert (list_sessions(store, rater.id) == ()) == idle
    clock.seconds += 30 * DAY
    assert use_session(store, token, "x") is None


def test_the_owner_of_a_number_is_told_while_the_session_lasts(store: Store) -> None:
    study, other = study_of(store, 1), study_of(store, 1, name="other")
    rater = add_rater(store, study.id, "anna")
    token = start_session(store, rater.id)
    [session] = list_sessions(store, rater.id)
    assert session_owner(store, study.id, session.id) == rater
    assert session_owner(store, other.id, session.id) is None
    assert session_owner(store, study.id, session.id + 1) is None
    end_session(store, token)
    assert session_owner(store, study.id, session.id) is None
