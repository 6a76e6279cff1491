"""Raters: whose answers fill the places of items."""

from tutelage.people import Store, add_rater, exclude, get_rater, list_questions, list_raters, submit

from ..worlds import asked, better, study_of


def places_filled(store: Store, study_id: int) -> int:
    return sum(question.answered for question in list_questions(store, study_id))


def test_an_answer_fills_a_place_where_its_rater_fills_places(store: Store) -> None:
    """People do, simulated raters while no person takes part, model judges and excluded raters never."""
    study = study_of(store, 9)

    def answers(rater_id: int) -> bool:
        """Whether one more answer of a rater fills a place, which must be what the rater says."""
        question, before = asked(store, rater_id), places_filled(store, study.id)
        submit(store, question.id, better(question))
        filled = places_filled(store, study.id) - before
        assert filled == get_rater(store, rater_id).fills_places
        return bool(filled)

    stand_in = add_rater(store, study.id, "stand-in", kind="simulated").id
    judge = add_rater(store, study.id, "judge", kind="llm").id
    assert answers(stand_in)
    assert not answers(judge)
    anna = add_rater(store, study.id, "Anna").id
    assert answers(anna)
    assert not answers(stand_in)
    asked(store, anna)
    exclude(store, study.id, "rater", "Anna", "votes at random")
    assert not get_rater(store, anna).fills_places
    assert {rater.name for rater in list_raters(store, study.id) if rater.fills_places} == set()
    assert get_rater(store, stand_in).fills_places is False, "a person takes part, although excluded"
