"""What annotations say: laws of joining and deriving, on small cases decided by hand."""

import time
from itertools import permutations

import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.data.annotations import (
    MOST_PAIRS,
    Annotation,
    Derived,
    Ledger,
    Reading,
    Statement,
    Subject,
    _rated,
    derive,
    join,
)
from tutelage.data.records import Demonstration, Preference, UnpairedAnswer, user

WHY = user("Why?")
SUBJECTS = [Subject(f"t{n}", WHY, f"{n}.") for n in range(4)]


PLAIN = Reading()


def derived(*statements: Statement, reading: Reading = PLAIN) -> tuple[Derived, Ledger]:
    ledger = Ledger()
    joined = join(SUBJECTS, [(each, f"line {n}") for n, each in enumerate(statements, 1)], ledger)
    result = derive(joined, reading, ledger)
    assert ledger.read == len(statements)  # every statement has a fate
    return result, ledger


def chosen(word: str, key: str = "v", first: str = "t0", second: str = "t1") -> Statement:
    return Statement(key, (first, second), "better", word, rater=key)


def rated(subject: str, value: float | str, key: str = "r", question: str = "quality") -> Statement:
    return Statement(f"{key}/{subject}/{question}", (subject,), question, value, rater=key)


def test_the_share_of_votes_is_the_label_of_a_pair() -> None:
    votes = [chosen("a", "v1"), chosen("b", "v2", "t1", "t0"), chosen("b", "v3"), chosen("tie", "v4")]
    result, _ = derived(*votes)
    assert result.preferences == (Preference(WHY, "0.", "1.", p_chosen=2 / 3),)
    assert [word for _, word in result.votes] == ["a", "b", "b", "tie"]


def test_a_pair_without_a_majority_has_no_preference() -> None:
    result, ledger = derived(chosen("a", "v1"), chosen("b", "v2"))
    assert result.preferences == ()
    assert len(ledger.became["vote"]) == 2
    assert "1 pair" in result.remarks[0]


def test_an_item_is_its_prompt_and_its_responses_in_any_order() -> None:
    def item(*responses: str) -> str:
        return Annotation("v", "choice", "better", WHY, responses, (), (), "a").item

    assert item("a", "b") == item("b", "a")
    assert len({item("a|b", "c"), item("a", "b|c"), item("a|b|c"), item("a", "b", "c")}) == 4


def test_the_last_edit_of_a_member_of_a_group_counts_in_any_order() -> None:
    edits = (("f0", "t0", 1.0, 1), ("f1", "t1", 0.5, 1), ("f0", "t0", 0.0, 5), ("f1", "t1", 0.5, 9))
    members = [Statement(key, (about,), "pref", value, time=time, group="g") for key, about, value, time in edits]
    for order in permutations(members):
        result, ledger = derived(*order)
        assert [(pair.chosen, pair.rejected) for pair in result.preferences] == [("1.", "0.")]
        assert (ledger.members, ledger.compared, sum(map(len, ledger.left_out.values()))) == (2, 1, 2)


def test_members_of_a_group_are_compared_in_any_order() -> None:
    members = [
        Statement(f"f{n}", (f"t{n}",), "pref", float(value), "anna", group="g") for n, value in enumerate((1, 0, 1))
    ]
    expected = {("0.", "1."), ("2.", "1.")}
    ids = set()
    for order in permutations(members):
        result, ledger = derived(*order)
        assert {(pair.chosen, pair.rejected) for pair in result.preferences} == expected
        assert (ledger.members, ledger.compared) == (3, 3)
        ids.add(frozenset(each.id for each, _ in result.votes))
    assert len(ids) == 1


def test_a_lonely_member_of_a_group_is_left_out() -> None:
    _, ledger = derived(Statement("f", ("t0",), "pref", 1.0, group="g"))
    assert list(ledger.left_out.values()) == [["line 1"]]


def test_ratings_of_zero_and_one_are_labels_by_majority() -> None:
    ratings = [rated("t0", 1.0, "r1"), rated("t0", 1.0, "r2"), rated("t0", 0.0, "r3"), rated("t1", 0.0)]
    even = [rated("t2", 1.0, "r1"), rated("t2", 0.0, "r2")]
    result, _ = derived(*ratings, *even)
    assert result.labels == (UnpairedAnswer(WHY, "0.", True), UnpairedAnswer(WHY, "1.", False))
    assert any("1 response" in remark for remark in result.remarks)


def test_other_numbers_are_labels_only_by_a_threshold() -> None:
    ratings = [rated("t0", 4.0), rated("t1", 2.0)]
    assert derived(*ratings)[0].labels == ()
    assert "--threshold" in derived(*ratings)[0].remarks[0]
    result, _ = derived(*ratings, reading=Reading(threshold=2.0))
    assert [label.label for label in result.labels] == [True, False]


def test_the_higher_mean_rating_is_chosen() -> None:
    result, _ = derived(rated("t0", 5.0, "r1"), rated("t0", 2.0, "r2"), rated("t1", 4.0), rated("t2", 4.0))
    assert {(pair.chosen, pair.rejected) for pair in result.preferences} == {("1.", "0."), ("2.", "0.")}


def test_categories_are_labels_if_the_good_ones_are_named() -> None:
    words = [rated("t0", "correct"), rated("t1", "wrong")]
    nothing, ledger = derived(*words)
    assert nothing.ratings == ()
    assert sum(map(len, ledger.left_out.values())) == 2
    result, _ = derived(*words, reading=Reading(good=("correct",)))
    assert [label.label for label in result.labels] == [True, False]


def test_a_correction_is_a_demonstration_over_what_it_corrects() -> None:
    better = Statement("c", ("t0",), "output", "Better.", corrects=True)
    result, _ = derived(better)
    assert result.demonstrations == (Demonstration(WHY, "Better."),)
    assert result.preferences == (Preference(WHY, "Better.", "0."),)


def test_two_scores_are_never_mixed() -> None:
    both = [rated("t0", 1.0), rated("t1", 1.0, question="toxicity")]
    with pytest.raises(TutelageError, match=r"quality \(1\), toxicity \(1\).*--question"):
        derived(*both)
    result, ledger = derived(*both, reading=Reading(("quality",)))
    assert [each.question for each, _ in result.ratings] == ["quality"]
    assert list(ledger.left_out.values()) == [["line 2"]]
    with pytest.raises(TutelageError, match="--question humour"):
        derived(*both, reading=Reading(("humour",)))


def test_models_count_only_on_request() -> None:
    judge = Statement("j", ("t0",), "quality", 1.0, kind="model")
    assert derived(judge)[0].ratings == ()
    assert len(derived(judge, reading=Reading(models=True))[0].ratings) == 1


def test_an_unknown_word_is_named_with_its_flag() -> None:
    result, ledger = derived(chosen("links"))
    assert result.votes == ()
    assert ["links" in reason and "--choice" in reason for reason in ledger.left_out] == [True]
    assert len(derived(chosen("links"), reading=Reading(choices={"links": "a"}))[0].votes) == 1


def test_a_statement_about_an_unknown_response_is_left_out() -> None:
    result, ledger = derived(rated("t9", 1.0))
    assert result.ratings == ()
    assert list(ledger.left_out.values()) == [["line 1"]]


def test_an_alias_is_weaker_than_an_id() -> None:
    subjects = [Subject("obs", WHY, "Alias.", alias="t"), Subject("t", WHY, "Own.")]
    (annotation, _), *_ = join(subjects, [(rated("t", 1.0), "line 1")], Ledger())
    assert annotation.responses == ("Own.",)
    assert join(subjects[:1], [(rated("t", 1.0), "line 1")], Ledger())[0][0].responses == ("Alias.",)


def test_the_item_is_the_same_in_any_order() -> None:
    one, other = (
        Annotation("x", "choice", "q", WHY, responses, ("1", "2"), ("", ""), "a")
        for responses in (("A", "B"), ("B", "A"))
    )
    assert one.item == other.item


def test_a_prompt_with_many_rated_responses_has_a_bounded_number_of_pairs() -> None:
    """Ten of all pairs, the same ones in any order, each with the higher rating first; the rest is counted."""
    numbers = {f"response {n}": float(n // 2) for n in range(30)}
    several = {f"one of {n}": float(n) for n in range(5)}
    subjects = [
        Subject(text, user(prompt), text) for prompt, texts in (("A?", numbers), ("B?", several)) for text in texts
    ]
    ratings = [rated(text, value) for text, value in (numbers | several).items()]
    chosen = []
    for order in (ratings, ratings[::-1]):
        ledger = Ledger()
        joined = join(subjects, [(each, "line 1") for each in order], ledger)
        result = derive(joined, Reading(threshold=2.0), ledger)
        chosen.append({(pair.chosen, pair.rejected) for pair in result.preferences})
        assert all(numbers[one] > numbers[other] for one, other in chosen[-1] if one in numbers)
        counts = [sum(one in texts for one, _ in chosen[-1]) for texts in (numbers, several)]
        assert counts == [10, 10]
        assert any("410 pairs" in remark for remark in result.remarks)  # 435 pairs, of which 15 are equal
    assert chosen[0] == chosen[1]


def test_pairs_of_ratings_take_time_in_proportion_to_the_responses() -> None:
    """Of 20,000 responses, all but one rated alike, the pairs with that one, of 200 million; each response of many
    ratings is in few pairs."""
    alike = {f"response {n}": 0.0 for n in range(20_000)} | {"the other": 1.0}
    began = time.process_time()
    remarks: list[str] = []
    pairs = list(_rated({user("A?"): alike}, remarks))
    assert time.process_time() - began < 2
    assert len({pair.rejected for pair in pairs}) == len(pairs) == MOST_PAIRS
    assert {pair.chosen for pair in pairs} == {"the other"}
    assert remarks == ["199,990,000 pairs of equal ratings without a preference",
                       "19,990 pairs of rated responses left out: at most 10 of a prompt"]  # fmt: skip


@for_each([2, 3, 4, 5, 6, 7])
def test_all_pairs_are_there_if_they_are_few(count: int) -> None:
    ratings = {str(n): float(n) for n in range(count)}
    every = {(str(one), str(other)) for one in range(count) for other in range(one)}
    pairs = [(pair.chosen, pair.rejected) for pair in _rated({user("A?"): ratings}, [])]
    assert len(set(pairs)) == len(pairs) == min(len(every), MOST_PAIRS)
    assert set(pairs) <= every
