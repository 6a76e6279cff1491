"""Verdicts on the criteria of a prompt: the law of pairs, every stage from the answer to training rows, and back."""

import json
from dataclasses import replace
from itertools import product
from math import ceil
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.base.errors import TutelageError
from tutelage.data.records import CompletionRecord, Prompt, user
from tutelage.data.rubrics import Criterion, rubric_rows, rubric_score
from tutelage.people import (
    Answer,
    Assignment,
    Item,
    Presentation,
    Selection,
    Store,
    Study,
    add_items,
    add_rater,
    create_study,
    label_study,
    list_questions,
    list_votes,
    present,
    recent_answers,
    submit,
)
from tutelage.people.aggregation import agreements
from tutelage.people.answers import DECISIONS, Canonical, judged
from tutelage.people.export import export_study
from tutelage.people.kinds.checklist import CHECKLIST
from tutelage.people.kinds.kind import ResponseValues, Screen
from tutelage.people.restoration import import_export
from tutelage.people.simulated_raters import SimulatedRater
from tutelage.people.store.rater_erasure import forget

from ..worlds import QUIET, SECRET, asked

RUBRIC = (Criterion("Names the cause", 6.0), Criterion("Is short", 2.0), Criterion("Invents a number", -3.0))
TEXTS = ("best", "long", "worst")
MET = {"best": "met met unmet", "long": "met unmet unmet", "worst": "unmet met met"}


def study_of_three(store: Store, overlap: int = 1) -> Study:
    study = create_study(store, "criteria", kind="checklist", plan=replace(QUIET, overlap=overlap), secret=SECRET)
    completions = [CompletionRecord(text, "p", text, "m") for text in TEXTS]
    prompt = Prompt("p", user("Why?"), data={"rubrics": rubric_rows(RUBRIC), "theme": "x"})
    add_items(store, study.id, [prompt], completions, [Item("i", "p", TEXTS, overlap=overlap)])
    return study


def truth(question: Assignment) -> Answer:
    return judged(
        {
            criterion.text: [MET[text].split()[number] for text in question.texts]
            for number, criterion in enumerate(question.rubric)
        }
    )


def test_the_response_with_the_higher_score_wins_by_thirds_of_the_positive_points() -> None:
    """All verdicts on two responses; turning the screen round changes nothing."""
    screen, names = Screen(2, 2, rubric=RUBRIC), [criterion.text for criterion in RUBRIC]
    for one, other in product(product(DECISIONS, repeat=3), repeat=2):
        answer = judged({name: pair for name, *pair in zip(names, one, other, strict=True)})
        CHECKLIST.check(answer, screen)
        said = CHECKLIST.canonical(answer, (0, 1), screen)
        scores = [rubric_score(RUBRIC, [DECISIONS[value] for value in values]) for values in (one, other)]
        if scores[0] is None or scores[1] is None:
            assert (said.verdict, list(CHECKLIST.pairs(said, 2))) == ("judged", [])
        else:
            difference = round(scores[0] - scores[1], 9)
            verdict = "a" if difference > 0 else "b" if difference < 0 else "tie"
            strength = min(3, ceil(round(3 * abs(difference), 6)))
            assert list(CHECKLIST.pairs(said, 2)) == [(0, 1, verdict, strength)]
            assert (said.verdict, said.strength) == (verdict, strength)
        turned = judged({name: pair for name, *pair in zip(names, other, one, strict=True)})
        assert CHECKLIST.canonical(turned, (1, 0), screen) == said


@given(order=st.permutations(range(4)), verdicts=st.lists(st.sampled_from(sorted(DECISIONS)), min_size=4, max_size=4))
def test_every_response_keeps_its_verdict_wherever_it_stood(order: list[int], verdicts: list[str]) -> None:
    screen = Screen(4, 2, rubric=RUBRIC[:1])
    said = CHECKLIST.canonical(judged({RUBRIC[0].text: verdicts}), tuple(order), screen)
    found = said.content["verdicts"][RUBRIC[0].text]  # type: ignore[index]
    assert all(found[response] == verdicts[place] for place, response in enumerate(order))


@pytest.mark.parametrize(
    "verdicts",
    [
        {},
        {"Names the cause": ["met"] * 3},
        {criterion.text: ["met"] * 2 for criterion in RUBRIC},
        {criterion.text: ["met", "met", "perhaps"] for criterion in RUBRIC},
        {criterion.text: ["met", "met", True] for criterion in RUBRIC},
        {criterion.text: ["met", "met", ["met"]] for criterion in RUBRIC},
        {criterion.text: "met" for criterion in RUBRIC},
        {**{criterion.text: ["met"] * 3 for criterion in RUBRIC}, "Is kind": ["met"] * 3},
        [["met"] * 3] * 3,
    ],
)
def test_other_verdicts_than_one_on_each_criterion_are_refused(lite: Store, verdicts: object) -> None:
    study = study_of_three(lite)
    question = asked(lite, add_rater(lite, study.id, "anna").id)
    with pytest.raises(TutelageError, match="3 responses"):
        submit(lite, question.id, Answer("judged", content={"verdicts": verdicts}))
    assert list_votes(lite, study.id) == ()


def test_a_study_of_criteria_needs_the_rubric_of_every_prompt_and_no_others(lite: Store) -> None:
    with pytest.raises(TutelageError, match="criteria"):
        create_study(lite, "more", kind="checklist", presentation=Presentation("?", 2, ("clear",)))
    study = study_of_three(lite)
    texts = [CompletionRecord(text, "q", text, "m") for text in ("x", "y")]
    for data in ({}, {"rubric": "Be good."}, {"rubric": ["Half \ud800"]}):
        with pytest.raises(TutelageError, match="prompt 'q'"):
            add_items(lite, study.id, [Prompt("q", user("?"), data=data)], texts, [Item("j", "q", ("x", "y"))])
    with pytest.raises(TutelageError, match="rubric"):  # the same prompt with other criteria
        add_items(lite, study.id, [Prompt("p", user("Why?"), data={"rubric": ["Is kind"]})], [], [])
    pairs = create_study(lite, "pairs")
    add_items(lite, pairs.id, [Prompt("q", user("?"), data={"rubric": 3})], texts, [Item("j", "q", ("x", "y"))])
    assert list_questions(lite, pairs.id)[0].prompt.data == {}


def test_verdicts_become_pairs_in_training_and_return_to_the_rater(store: Store) -> None:
    study = study_of_three(store)
    question = asked(store, add_rater(store, study.id, "anna").id)
    assert question.rubric == RUBRIC
    submit(store, question.id, truth(question))
    rows = label_study(store, study.id, Selection(kinds=("human",), ties="keep", use_strength=False)).rows
    found = {
        (row.preference.chosen, row.preference.rejected): row.strength for row in rows if row.preference.p_chosen > 0.5
    }
    assert found == {("best", "long"): 1, ("best", "worst"): 3, ("long", "worst"): 3}  # 1, 3/4 and -1/8
    (again,) = recent_answers(store, question.rater_id)
    assert again.answer.content == truth(question).content


def test_agreement_is_over_criteria_and_unsure_is_missing(lite: Store) -> None:
    study = study_of_three(lite, overlap=3)
    for name in ("anna", "bert", "cora"):
        question = asked(lite, add_rater(lite, study.id, name).id)
        answer = truth(question)
        if name == "cora":
            answer = judged({criterion.text: ["unsure"] * 3 for criterion in question.rubric})
        submit(lite, question.id, answer)
    (alpha,) = agreements(list_votes(lite, study.id)).values()
    assert (alpha.value, alpha.items) == (1.0, 9)


def test_an_export_restores_the_rubric_and_the_verdicts(lite: Store, tmp_path: Path) -> None:
    study = study_of_three(lite)
    question = asked(lite, add_rater(lite, study.id, "anna").id)
    submit(lite, question.id, truth(question))
    export_study(lite, study.id, tmp_path / "export", Selection())
    again = import_export(lite, tmp_path / "export", name="again")
    votes, copies = (list_votes(lite, each.id) for each in (study, again))
    assert [vote.canonical for vote in copies] == [vote.canonical for vote in votes]
    assert list_questions(lite, again.id)[0].prompt == list_questions(lite, study.id)[0].prompt


def test_an_answer_that_decides_about_no_pair_counts_as_skipped(lite: Store, tmp_path: Path) -> None:
    """Unsure about everything: no response has a score."""
    study = study_of_three(lite, overlap=2)
    for name in ("anna", "bert"):
        question = asked(lite, add_rater(lite, study.id, name).id)
        unsure = judged({criterion.text: ["unsure"] * 3 for criterion in question.rubric})
        submit(lite, question.id, unsure if name == "anna" else truth(question))
    assert label_study(lite, study.id, Selection()).fates == {"skipped": 1, "used": 1}
    assert export_study(lite, study.id, tmp_path / "export").manifest["judgements"]


def test_a_forgotten_rater_leaves_the_verdicts(lite: Store) -> None:
    study = study_of_three(lite)
    rater = add_rater(lite, study.id, "anna").id
    question = asked(lite, rater)
    submit(lite, question.id, truth(question))
    (before,), labels = list_votes(lite, study.id), label_study(lite, study.id, Selection()).labels.labels
    forget(lite, rater)
    (after,) = list_votes(lite, study.id)
    assert (after.canonical, after.displayed) == (before.canonical, before.displayed)
    assert label_study(lite, study.id, Selection()).labels.labels == labels


def test_a_changed_question_keeps_the_criteria(lite: Store) -> None:
    study = study_of_three(lite)
    present(lite, study.id, Presentation("Which hold?", 2))
    assert asked(lite, add_rater(lite, study.id, "anna").id).rubric == RUBRIC


def test_votes_in_tables_have_a_column_for_each_response() -> None:
    """However many criteria the prompts of a study have."""
    screen = Screen(2, 2, rubric=RUBRIC)
    answer = judged({criterion.text: ["met", "unsure"] for criterion in RUBRIC})
    cells = CHECKLIST.cells(CHECKLIST.canonical(answer, (0, 1), screen))
    assert list(cells) == ["verdicts_a", "verdicts_b"]
    assert json.loads(str(cells["verdicts_b"])) == {criterion.text: "unsure" for criterion in RUBRIC}
    read = CHECKLIST.read(cells, screen)
    assert read is not None
    assert read.content == answer.content
    for other in (
        {},
        {"verdicts_a": "["},
        {**cells, "verdicts_b": "[]"},
        {**cells, "verdicts_a": '{"Is short": "met"}'},
    ):
        assert CHECKLIST.read(other, screen) is None
    assert CHECKLIST.cells(Canonical("skip", 0, {}, {})) == {}


def test_simulated_raters_find_more_criteria_met_in_better_responses() -> None:
    screen, rng = Screen(2, 2, rubric=RUBRIC), Random(0)
    counts = [0, 0]
    for _ in range(50):
        answer = CHECKLIST.simulate(ResponseValues((2.0, -2.0), (9, 9)), screen, SimulatedRater("a"), rng, 0)
        CHECKLIST.check(answer, screen)
        for values in answer.content["verdicts"].values():  # type: ignore[attr-defined]
            counts = [count + (value == "met") for count, value in zip(counts, values, strict=True)]
    assert counts[0] > 2 * counts[1]
