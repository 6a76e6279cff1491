"""Ratings of single responses: the law of pairs, every stage from the answer to training rows, and back from files."""

import csv
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import ceil
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.data.records import CompletionRecord, Prompt, user
from tutelage.data.tables import read_table
from tutelage.people import (
    Answer,
    Assignment,
    Item,
    Plan,
    Presentation,
    Selection,
    Store,
    Study,
    add_items,
    add_rater,
    create_study,
    feedback,
    get_rater,
    label_study,
    list_judgements,
    list_questions,
    list_raters,
    list_votes,
    present,
    recent_answers,
    reserve_item,
    submit,
)
from tutelage.people.aggregation import agreements
from tutelage.people.export import export_study
from tutelage.people.kinds.kind import ResponseValues, Screen
from tutelage.people.kinds.likert import LIKERT, rated
from tutelage.people.restoration import import_export
from tutelage.people.simulated_raters import SimulatedRater
from tutelage.people.statistics.cache import Keeper
from tutelage.people.vote_import import import_votes
from tutelage.people.vote_mapping import VoteMapping
from tutelage.stats.agreement import krippendorff_alpha
from tutelage.stats.vote_codes import Votes

from ..worlds import QUIET, SECRET, asked, records, work

CRITERIA = ("clear", "correct")
SHOWN = Presentation("How good is each?", 5, CRITERIA)
TEXTS = ("best", "middling", "middling too", "worst")
RATINGS = {"best": (5, 4), "middling": (3, 3), "middling too": (2, 4), "worst": (1, 1)}


def study_of_four(store: Store, overlap: int = 1) -> Study:
    plan = replace(QUIET, overlap=overlap)
    study = create_study(store, "ratings", kind="likert", plan=plan, presentation=SHOWN, secret=SECRET)
    completions = [CompletionRecord(text, "p", text, "m") for text in TEXTS]
    add_items(store, study.id, [Prompt("p", user("?"))], completions, [Item("i", "p", TEXTS, overlap=overlap)])
    return study


def study_of_pairs(store: Store, pairs: int = 12, plan: Plan = QUIET, name: str = "pairs") -> Study:
    study = create_study(store, name, kind="likert", plan=plan, presentation=SHOWN, secret=SECRET)
    add_items(store, study.id, *records(pairs))
    return study


def as_rated(question: Assignment) -> Answer:
    return rated({name: [RATINGS[text][n] for text in question.texts] for n, name in enumerate(CRITERIA)})


def good_above(question: Assignment, good: int = 5, bad: int = 2) -> Answer:
    """What someone answers who knows the good response."""
    values = [good if text.startswith("good") else bad for text in question.texts]
    return rated(dict.fromkeys(CRITERIA, values))


@for_each(product([5, 7], [1, 2]))
def test_the_higher_mean_wins_by_thirds_of_the_scale(scale: int, count: int) -> None:
    """All ratings of two responses, against exact fractions; turning the screen round changes nothing."""
    screen = Screen(2, scale, tuple("xyz"[:count]))
    for one, other in product(product(range(1, scale + 1), repeat=count), repeat=2):
        answer = rated({name: (one[n], other[n]) for n, name in enumerate(screen.criteria)})
        LIKERT.check(answer, screen)
        mean = Fraction(sum(one) - sum(other), count)
        verdict = "a" if mean > 0 else "b" if mean < 0 else "tie"
        strength = ceil(3 * abs(mean) / (scale - 1))
        said = LIKERT.canonical(answer, (0, 1), screen)
        assert (said.verdict, said.strength) == (verdict, strength)
        assert list(LIKERT.pairs(said, 2)) == [(0, 1, verdict, strength)]
        turned = rated({name: (other[n], one[n]) for n, name in enumerate(screen.criteria)})
        assert LIKERT.canonical(turned, (1, 0), screen) == said
    assert strength <= 3


@given(order=st.permutations(range(4)), ratings=st.lists(st.integers(1, 7), min_size=4, max_size=4))
def test_every_response_keeps_its_rating_wherever_it_stood(order: list[int], ratings: list[int]) -> None:
    said = LIKERT.canonical(rated({"overall": ratings}), tuple(order), Screen(4, 7))
    found = said.content["ratings"]["overall"]  # type: ignore[index]
    assert all(found[response] == ratings[place] for place, response in enumerate(order))
    assert said.verdict == "rated"


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"ratings": {}},
        {"ratings": {"clear": [1, 2]}},
        {"ratings": {"clear": [1, 2], "correct": [1, 2], "kind": [1, 2]}},
        {"ratings": {"clear": [1, 2], "correct": [1]}},
        {"ratings": {"clear": [1, 2], "correct": [1, 6]}},
        {"ratings": {"clear": [1, 2], "correct": [0, 2]}},
        {"ratings": {"clear": [1, 2], "correct": [1.0, 2]}},
        {"ratings": {"clear": [1, 2], "correct": [True, 2]}},
        {"ratings": {"clear": [1, 2], "correct": "12"}},
        {"ratings": [[1, 2], [1, 2]]},
    ],
)
def test_half_a_rating_is_refused_and_leaves_nothing(lite: Store, content: dict[str, object]) -> None:
    study = study_of_pairs(lite, 1)
    question = asked(lite, add_rater(lite, study.id, "anna").id)
    with pytest.raises(TutelageError, match=r"1 to 5.*clear, correct"):
        submit(lite, question.id, Answer("rated", content=content))
    with pytest.raises(TutelageError, match=r"'skip'.*'ratings'"):
        submit(lite, question.id, Answer("skip", content={"ratings": {}}, reason="?"))
    with pytest.raises(TutelageError, match="'left'"):
        submit(lite, question.id, Answer("left", 1))
    assert list_votes(lite, study.id) == ()


def test_a_study_of_ratings_names_a_scale_of_its_kind(lite: Store) -> None:
    assert create_study(lite, "plain", kind="likert").presentation.scale == 5
    with pytest.raises(TutelageError, match=r"scale.*3.*5, 7"):
        create_study(lite, "bar", kind="likert", presentation=Presentation())
    study, texts = create_study(lite, "one", kind="likert"), [CompletionRecord("x", "p", "x", "m")]
    with pytest.raises(TutelageError, match=r"1 response.*2 to 6"):
        add_items(lite, study.id, [Prompt("p", user("?"))], texts, [Item("i", "p", ("x",))])


def test_rated_responses_are_every_pair_among_them(store: Store) -> None:
    study = study_of_four(store)
    question = asked(store, add_rater(store, study.id, "anna").id)
    submit(store, question.id, as_rated(question))
    labelled = label_study(store, study.id, Selection(kinds=("human",), ties="keep", use_strength=False))
    found = {
        (row.preference.chosen, row.preference.rejected): row.strength
        for row in labelled.rows
        if row.preference.p_chosen > 0.5
    }
    assert found == {
        ("best", "middling"): 2, ("best", "middling too"): 2, ("best", "worst"): 3,
        ("middling", "worst"): 2, ("middling too", "worst"): 2,
    }  # fmt: skip
    (tie,) = [row.preference for row in labelled.rows if row.preference.p_chosen == 0.5]
    assert {tie.chosen, tie.rejected} == {"middling", "middling too"}
    assert sum(row.preference.weight for row in labelled.rows) == pytest.approx(1)
    (vote,) = list_votes(store, study.id)
    assert vote.displayed["choice"] == "rated"
    assert list_judgements(store, study.id) == ()
    (again,) = recent_answers(store, list_raters(store, study.id)[0].id)
    assert again.answer.content == as_rated(question).content


def test_an_owners_ratings_settle_every_pair(store: Store) -> None:
    study = study_of_four(store, overlap=2)
    for name in ("anna", "bert"):
        question = asked(store, add_rater(store, study.id, name).id)
        submit(store, question.id, rated(dict.fromkeys(CRITERIA, [3] * 4)))
    assert label_study(store, study.id, Selection()).rows == ()
    owner = add_rater(store, study.id, "owner", role="owner").id
    adjudicated = reserve_item(store, owner, "i")
    submit(store, adjudicated.id, as_rated(adjudicated))
    rows = label_study(store, study.id, Selection()).rows
    assert {(row.preference.chosen, row.preference.rejected, row.preference.p_chosen) for row in rows} == {
        ("best", "middling", 1), ("best", "middling too", 1), ("best", "worst", 1), ("middling", "worst", 1),
        ("middling too", "worst", 1),
    }  # fmt: skip


def test_known_answers_practice_and_repeats_apply_to_pairs(store: Store) -> None:
    plan = replace(QUIET, overlap=2, gold_rate=0.25, repeat_rate=0.25)
    study = study_of_pairs(store, 40, plan)
    for pool, start in (("gold", 100), ("training", 200)):
        prompts, completions, comparisons = records(3, start)
        known = [replace(Item.of(c), pool=pool, gold="b", explanation="b") for c in comparisons]  # type: ignore[arg-type]
        add_items(store, study.id, prompts, completions, known)
    raters = [add_rater(store, study.id, name, training=True).id for name in ("anna", "bert")]
    novice = asked(store, raters[0])
    submit(store, novice.id, good_above(novice))
    told = feedback(store, novice.id)
    assert told is not None
    assert told.right
    assert told.expected == ("left" if novice.left.startswith("good") else "right")
    work(store, raters[:1], good_above)
    work(store, raters[1:], lambda question: good_above(question, 2, 4))
    anna, bert = (get_rater(store, rater) for rater in raters)
    assert anna.state == "active"
    assert anna.tallies.gold_seen == anna.tallies.gold_right > 0
    assert anna.tallies.repeat_seen == anna.tallies.repeat_same > 0
    assert bert.state != "active"  # failed the practice: everything the wrong way round
    statistics = Keeper(store).compute(study).statistics
    assert statistics.raters[anna.id].gold.right == anna.tallies.gold_right
    counts = Counter(question.counts["b"] for question in list_questions(store, study.id))
    assert counts[1] > 0
    three = Item("x", "p0", ("p0a", "p0b", "p0c"), gold="a")
    with pytest.raises(TutelageError, match="pairs"):
        add_items(store, study.id, [], [CompletionRecord("p0c", "p0", "c", "m")], [three])


def test_agreement_on_ratings_is_ordinal_alpha_by_criterion(store: Store) -> None:
    study = study_of_pairs(store, 8, replace(QUIET, overlap=3))
    rng = Random(5)
    raters = [add_rater(store, study.id, name).id for name in ("anna", "bert", "carl")]
    noisy = lambda question: rated({c: [rng.randint(2, 5), rng.randint(1, 4)] for c in CRITERIA})  # noqa: E731
    work(store, raters, noisy)
    votes = list_votes(store, study.id)
    found = Keeper(store).compute(study).agreements
    assert list(found) == list(CRITERIA)
    for name in CRITERIA:
        units = [(f"{v.item}/{side}", v.rater, str(v.content["ratings"][name][side])) for v in votes for side in (0, 1)]  # type: ignore[index]
        expected = krippendorff_alpha(Votes.of(*zip(*units, strict=True), list("12345")), "ordinal")  # type: ignore[arg-type]
        assert found[name].value == pytest.approx(expected.value)
    assert agreements(votes) == found
    present(store, study.id, replace(SHOWN, scale=7))
    assert agreements(votes) == found


def test_an_export_comes_back_the_same(store: Store, tmp_path: Path) -> None:
    study = study_of_pairs(store, 6)
    raters = [add_rater(store, study.id, name).id for name in ("anna", "bert")]
    work(store, raters, lambda question: good_above(question, 4, 1 + question.id % 5))
    manifest = export_study(store, study.id, tmp_path / "export").manifest
    assert manifest["study"]["kind"] == "likert"  # type: ignore[index]
    assert set(manifest["agreements"]) == set(CRITERIA)  # type: ignore[call-overload]
    again = import_export(store, tmp_path / "export", name="again")
    both = [label_study(store, each.id, Selection()) for each in (study, again)]
    assert [row.preference for row in both[0].rows] == [row.preference for row in both[1].rows]
    assert [vote.content for vote in both[0].votes] == [vote.content for vote in both[1].votes]
    with (tmp_path / "export" / "votes.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row, vote in zip(rows, list_votes(store, study.id), strict=True):
        cells = {f"{name}_{letter}": int(row[f"{name}_{letter}"]) for name in CRITERIA for letter in "ab"}
        assert cells == LIKERT.cells(vote.canonical)


def test_ratings_are_taken_in_from_a_table(store: Store, tmp_path: Path) -> None:
    study = create_study(store, "theirs", kind="likert", presentation=SHOWN)
    table = tmp_path / "ratings.csv"
    header = "prompt,completion_a,completion_b,evaluator,clear_a,clear_b,correct_a,correct_b\n"
    table.write_text(
        f"{header}Q,one,two,eva,5,2,4,4\nQ,one,two,max,1,1,1,6\nQ,one,two,ann,1,,1,2\nQ,one,two,joe,2,2,2,2\n"
    )
    with pytest.raises(TutelageError, match=r"Nothing was imported: 2 of the votes .*rated from 1 to 5.*--partial"):
        import_votes(store, study.id, read_table(str(table)), VoteMapping())
    assert list_votes(store, study.id) == ()
    assert list_questions(store, study.id) == ()
    done = import_votes(store, study.id, read_table(str(table)), VoteMapping(partial=True))
    assert done.votes == 2
    assert sum(each.count for each in done.dropped) == 2
    assert any("rated from 1 to 5" in each.reason for each in done.dropped)
    assert done.remarks == ()
    found = {vote.rater: vote for vote in list_votes(store, study.id)}
    first = {"eva": ("one", 2), "joe": ("", 0)}
    (question,) = list_questions(store, study.id)
    for name, (better, strength) in first.items():
        said = found[name]
        assert said.strength == strength
        assert (question.texts["ab".index(said.verdict)] if better else "") == better
    assert import_votes(store, study.id, read_table(str(table)), VoteMapping(partial=True)).votes == 0


@pytest.mark.parametrize("scale", [5, 7])
def test_a_simulated_rater_rates_what_is_better_higher(scale: int) -> None:
    screen = Screen(3, scale, CRITERIA)
    question = ResponseValues((2.0, 0.0, -2.0), (10, 10, 10))

    def mean(rater: SimulatedRater) -> np.ndarray:
        rng, found = Random(3), []
        for _ in range(400):
            answer = LIKERT.simulate(question, screen, rater, rng, 0)
            LIKERT.check(answer, screen)
            found.append(answer.content["ratings"]["clear"])  # type: ignore[index]
        return np.array(found).mean(axis=0)

    ordinary, careless, adversary = (
        mean(SimulatedRater("x", kind=kind)) for kind in ("ordinary", "careless", "adversarial")
    )
    middle = (scale + 1) / 2
    assert ordinary[0] > middle + 0.5 > ordinary[1] > middle - 0.5 > ordinary[2]
    assert np.abs(careless - middle).max() < 0.35
    assert adversary[0] < middle - 0.5 < middle + 0.5 < adversary[2]
