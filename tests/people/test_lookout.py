"""Looking out for occasions in studies that people work on."""

import pytest

from tutelage.people import Answer, Assignment, Store, add_items, exclude, list_notices, set_overlap
from tutelage.people.lookout import LEAST_ITEMS, Lookout
from tutelage.people.store.live_models import LiveModels, set_live_models
from tutelage.people.store.occasions import set_alarm

from .worlds import better, raters_of, records, study_of, work


def kinds(store: Store, study: int) -> list[str]:
    return [notice.kind for notice in list_notices(store, study)][::-1]


def test_a_round_is_full_when_every_item_has_its_answers_and_again_when_more_came(store: Store) -> None:
    study = study_of(store, 3)
    raters = raters_of(store, study, 2)
    lookout = Lookout(store, study.id)
    lookout.look()
    work(store, raters[:1])
    lookout.look()
    assert kinds(store, study.id) == []
    work(store, raters[1:])
    for _ in range(2):
        lookout.look()
        Lookout(store, study.id).look()  # as after a restart
    assert kinds(store, study.id) == ["round"]
    add_items(store, study.id, *records(1, start=3))
    lookout.look()
    assert kinds(store, study.id) == ["round"]
    work(store, raters)
    lookout.look()
    assert [dict(notice.facts) for notice in list_notices(store, study.id)] == [
        {"round": 1, "items": 4},
        {"round": 1, "items": 3},
    ]


def test_what_an_owner_changes_can_fill_a_round(lite: Store) -> None:
    study = study_of(lite, 3)
    work(lite, raters_of(lite, study, 1))
    lookout = Lookout(lite, study.id)
    set_overlap(lite, study.id, 1, ["c0", "c1"])
    lookout.look()
    assert kinds(lite, study.id) == []
    exclude(lite, study.id, "item", "c2", "no question at all")
    lookout.look()
    assert [dict(notice.facts) for notice in list_notices(lite, study.id)] == [{"round": 1, "items": 2}]


def test_a_round_of_live_conversations_is_never_full(lite: Store) -> None:
    study = study_of(lite, 1)
    set_live_models(lite, study.id, LiveModels("a", "b", 4, (), {}, 1))
    work(lite, raters_of(lite, study, 2))
    Lookout(lite, study.id).look()
    assert kinds(lite, study.id) == []


@pytest.mark.parametrize("pairs", [LEAST_ITEMS - 1, LEAST_ITEMS])
def test_agreement_below_the_bound_is_told_once_there_is_enough_to_tell_by(lite: Store, pairs: int) -> None:
    study = study_of(lite, pairs)
    first, second = raters_of(lite, study, 2)
    set_alarm(lite, study.id, 0.6)

    def contrary(question: Assignment) -> Answer:
        return Answer("right" if better(question).choice == "left" else "left", 2)

    work(lite, [first])
    work(lite, [second], contrary)
    for _ in range(2):
        Lookout(lite, study.id).look()
    told = [notice for notice in list_notices(lite, study.id) if notice.kind == "agreement"]
    assert [dict(notice.facts) for notice in told] == (
        [{"agreement": 0.0, "bound": 0.6, "items": pairs}] if pairs == LEAST_ITEMS else []
    )
