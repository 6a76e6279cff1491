"""Occasions become notices, each once: full rounds, and agreement that falls below the bound."""

import pytest

from tutelage.base.errors import TutelageError
from tutelage.people import Store, close_notices, list_events, list_notices
from tutelage.people.store.occasions import AGAIN, Alarm, alarm_of, notice_agreement, notice_round, set_alarm

from ..worlds import study_of


def texts(store: Store, study: int) -> list[str]:
    return [notice.text for notice in list_notices(store, study)][::-1]


def test_a_round_is_told_once_for_each_number_of_items(store: Store) -> None:
    study = study_of(store, 1).id
    assert [notice_round(store, study, 1, items) for items in (3, 3, 5, 3)] == [True, False, True, False]
    close_notices(store, study)
    assert not notice_round(store, study, 1, 5)
    assert notice_round(store, study, 2, 5)
    assert texts(store, study) == ["round 2 is full: its 5 items have all their answers"]


def test_agreement_is_told_when_it_falls_and_again_after_it_has_risen(store: Store) -> None:
    study = study_of(store, 1).id
    assert not notice_agreement(store, study, 0.1, 30)  # nobody asked
    set_alarm(store, study, 0.7, actor="boss")
    course = [0.8, 0.69, 0.5, 0.7, 0.69, 0.7 + AGAIN, 0.69]
    assert [notice_agreement(store, study, each, 30) for each in course] == [
        False,
        True,
        False,
        False,
        False,
        False,
        True,
    ]
    assert texts(store, study) == ["agreement is 69.0%, below 70%, on 30 items with two raters or more"] * 2
    assert alarm_of(store, study) == Alarm(0.7, True)
    set_alarm(store, study, None)
    assert alarm_of(store, study) is None
    assert not notice_agreement(store, study, 0.1, 30)
    events = list_events(store, study, action="alarm_set")
    assert [(event.actor, event.detail["bound"]) for event in events] == [("owner", None), ("boss", 0.7)]


@pytest.mark.parametrize("bound", [0.0, -0.1, 1.1, float("nan")])
def test_a_bound_that_is_no_share_is_refused(lite: Store, bound: float) -> None:
    study = study_of(lite, 1).id
    with pytest.raises(TutelageError, match="share"):
        set_alarm(lite, study, bound)
    assert alarm_of(lite, study) is None
