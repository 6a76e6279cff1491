"""Sessions: where they are used, when they are over, and ending them, on both databases."""

import pytest

from tutelage.people import Store, add_rater, end_session, list_events, rater_of_session, start_session
from tutelage.people.store.sessions import (
    IDLE_DAYS,
    SEEN_EVERY_MS,
    end_sessions,
    list_sessions,
    session_owner,
    use_session,
)

from ..worlds import Clock, study_of

DAY = 86_400


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
