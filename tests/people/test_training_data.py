"""From votes to preferences: closed forms, invariances, and the fate of every vote."""

import math
import random
from collections import Counter
from dataclasses import replace

import pytest

from tutelage.base.errors import TutelageError
from tutelage.data.records import Comparison, CompletionRecord, Prompt, user
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
    exclude,
    freeze,
    include,
    label_study,
    list_votes,
    next_assignment,
    open_study,
    preferences,
    present,
    recent_answers,
    reserve_item,
    set_overlap,
    submit,
)
from tutelage.people.kinds.ranking import ranked
from tutelage.people.selection import FATES

from .worlds import QUIET, SECRET, asked, better, raters_of, records, study_of, work

PLAIN = Selection(use_strength=False)


def with_golds(store: Store, golds: int, plan: Plan = QUIET) -> Study:
    """Two pairs, and golds that everybody is asked before them."""
    study = create_study(store, "tutoring", plan=replace(plan, gold_rate=0.5), secret=SECRET)
    prompts, completions, comparisons = records(golds, start=100)
    add_items(store, study.id, prompts, completions, [replace(Item.of(c), pool="gold", gold="b") for c in comparisons])
    return study


def answer_all(store: Store, rater_id: int, wrong_golds: int = 0) -> None:
    """Answer everything rightly, but for so many golds."""
    left = wrong_golds
    while (question := next_assignment(store, rater_id)) is not None:
        good = better(question, 1)
        if left and int(question.item.removeprefix("c")) >= 100:
            good, left = replace(good, choice="right" if good.choice == "left" else "left"), left - 1
        submit(store, question.id, good)


def test_no_votes_make_no_preferences(lite: Store) -> None:
    assert preferences(lite, study_of(lite, 3).id) == ()


def test_a_single_vote_counts_as_its_raters_reliability(store: Store) -> None:
    """One rater, 10 golds of which 9 are right, and 1 pair: a = (9 + a + 4)/(11 + 6), so a = 13/16 = p_chosen."""
    study = with_golds(store, 10)
    rater = add_rater(store, study.id, "anna").id
    answer_all_golds(store, rater, wrong=1)
    add_items(store, study.id, *records(1))
    answer_all(store, rater)
    (preference,) = preferences(store, study.id, PLAIN)
    assert preference.p_chosen == pytest.approx(13 / 16, abs=1e-4)
    assert (preference.chosen, preference.rejected) == ("good 0", "bad 0, and longer")
    assert (preference.weight, preference.margin) == (1.0, 0.0)


def answer_all_golds(store: Store, rater: int, wrong: int) -> None:
    """With nothing else in the study, gold slots are all that is ever filled: go on until they are used up."""
    add_items(store, open_study(store).id, *records(40, start=500))
    while (question := next_assignment(store, rater)) is not None:
        number = int(question.item.removeprefix("c"))
        if number < 500:
            good = better(question, 1)
            flipped = replace(good, choice="right" if good.choice == "left" else "left")
            submit(store, question.id, flipped if wrong else good)
            wrong = max(0, wrong - 1)
        else:
            submit(store, question.id, Answer("skip", reason="not now"))


def test_two_raters_add_their_log_odds(store: Store) -> None:
    study = with_golds(store, 12)
    anna, bert = (add_rater(store, study.id, name).id for name in ("anna", "bert"))
    answer_all_golds(store, anna, wrong=0)
    answer_all_golds(store, bert, wrong=4)
    add_items(store, study.id, *records(1))
    answer_all(store, anna)
    answer_all(store, bert)
    labelled = label_study(store, study.id, PLAIN)
    (row,) = labelled.rows
    odds = sum(math.log(a / (1 - a)) for a in labelled.labels.accuracy.values())
    assert row.preference.p_chosen == pytest.approx(1 / (1 + math.exp(-odds)), abs=1e-4)
    assert labelled.labels.accuracy["anna"] > labelled.labels.accuracy["bert"]


def test_which_response_is_called_a_makes_no_difference(lite: Store) -> None:
    """The same opinions about the same texts, with a and b exchanged in half of the pairs."""
    prompts, completions, comparisons = records(30)
    swapped = [Comparison(c.id, c.prompt_id, c.b_id, c.a_id) if n % 2 else c for n, c in enumerate(comparisons)]

    def opinion(question: Assignment, rater: int) -> Answer:
        good = random.Random(f"{rater} {question.item}").random() < (0.9, 0.8, 0.6)[rater % 3]
        return better(question) if good else replace(better(question), choice=_other(better(question).choice))

    found = []
    for number, order in enumerate((comparisons, swapped)):
        study = create_study(lite, f"study {number}", plan=QUIET)
        add_items(lite, study.id, prompts, completions, order)
        set_overlap(lite, study.id, 3, [c.id for c in comparisons])
        for place, rater in enumerate(raters_of(lite, study, 3)):
            work(lite, [rater], lambda question, place=place: opinion(question, place))  # type: ignore[misc]
        found.append({(p.chosen, p.rejected): p.p_chosen for p in preferences(lite, study.id)})
    assert found[0].keys() == found[1].keys()
    for pair, p_chosen in found[0].items():
        assert found[1][pair] == pytest.approx(p_chosen, abs=1e-4)


def _other(choice: str) -> str:
    return "right" if choice == "left" else "left"


def voted(store: Store, *choices: str) -> Study:
    """One pair, judged by as many raters: `good` and `bad` are sides, anything else is itself."""
    study = study_of(store, 1)
    set_overlap(store, study.id, len(choices), ["c0"])
    for rater, choice in zip(raters_of(store, study, len(choices)), choices, strict=True):
        question = asked(store, rater)
        good = better(question, 1)
        said = {"good": good, "bad": replace(good, choice=_other(good.choice))}  # type: ignore[arg-type]
        submit(store, question.id, said.get(choice) or Answer(choice, reason="why"))  # type: ignore[arg-type]
    return study


@pytest.mark.parametrize(
    ("choices", "selection", "rows", "bad", "fates"),
    [
        (("good", "good"), PLAIN, 1, 0, {"used": 2}),
        (("good", "tie"), PLAIN, 1, 0, {"used": 1, "outvoted": 1}),
        (("tie", "tie", "good"), PLAIN, 0, 0, {"tied": 3}),
        (("tie", "tie", "good"), replace(PLAIN, ties="keep"), 1, 0, {"used": 3}),
        (("both_bad", "both_bad", "good"), PLAIN, 0, 1, {"both_bad": 3}),
        (("both_bad", "good", "good"), PLAIN, 1, 0, {"used": 2, "outvoted": 1}),
        (("both_bad", "tie", "tie"), replace(PLAIN, ties="keep"), 1, 0, {"used": 2, "outvoted": 1}),
        (("good",), replace(PLAIN, min_votes=2), 0, 0, {"too_few": 1}),
        (("skip",), PLAIN, 0, 0, {"skipped": 1}),
        (("good", "bad"), PLAIN, 1, 0, {"used": 2}),
    ],
)
def test_what_becomes_of_votes(
    lite: Store, choices: tuple[str, ...], selection: Selection, rows: int, bad: int, fates: dict[str, int]
) -> None:
    labelled = label_study(lite, voted(lite, *choices).id, selection)
    assert (len(labelled.rows), len(labelled.bad)) == (rows, bad)
    assert labelled.fates == fates
    if selection.ties == "keep":
        assert [row.preference.p_chosen for row in labelled.rows] == [0.5]


def test_an_owners_word_settles_a_pair(store: Store) -> None:
    study = voted(store, "bad", "bad", "tie")
    owner = add_rater(store, study.id, "owner", role="owner").id
    question = reserve_item(store, owner, "c0")
    submit(store, question.id, better(question, 3))
    (row,) = label_study(store, study.id, Selection()).rows
    assert (row.preference.chosen, row.preference.p_chosen) == ("good 0", 1.0)
    submit(store, question.id, Answer("tie"))
    labelled = label_study(store, study.id, Selection())
    assert (labelled.rows, labelled.fates) == ((), {"tied": 3, "adjudication": 1, "superseded": 1})


def test_strength_makes_weights_of_mean_one_and_margins(lite: Store) -> None:
    study = study_of(lite, 6, replace(QUIET, overlap=1))
    strengths = {f"c{n}": 1 + n % 3 for n in range(6)}
    work(lite, raters_of(lite, study, 2), lambda question: better(question, strengths[question.item]))
    rows = label_study(lite, study.id, Selection(weights=True, margins=True)).rows
    assert {row.question.key: row.preference.margin for row in rows} == strengths
    assert sum(row.preference.weight for row in rows) / 6 == pytest.approx(1)
    assert all(row.preference.weight == pytest.approx(strengths[row.question.key] / 2) for row in rows)
    plain = label_study(lite, study.id, Selection()).rows
    assert {(row.preference.weight, row.preference.margin) for row in plain} == {(1.0, 0.0)}


def test_a_ranking_is_every_pair_in_it(store: Store) -> None:
    study = create_study(store, "ranks", kind="ranking", plan=replace(QUIET, overlap=1), secret=SECRET)
    texts = ("best", "middling", "middling too", "worst")
    completions = [CompletionRecord(text, "p", text, "m") for text in texts]
    add_items(store, study.id, [Prompt("p", user("?"))], completions, [Item("i", "p", texts, overlap=1)])
    rater = add_rater(store, study.id, "anna").id
    question = asked(store, rater)
    ranks = {"best": 1, "middling": 2, "middling too": 2, "worst": 4}
    submit(store, question.id, ranked(tuple(ranks[text] for text in question.texts)))
    rows = label_study(store, study.id, replace(PLAIN, ties="keep")).rows
    found = {(row.preference.chosen, row.preference.rejected) for row in rows if row.preference.p_chosen > 0.5}
    lower = {("best", "middling"), ("best", "middling too"), ("middling", "worst"), ("middling too", "worst")}
    assert found == {("best", "worst"), *lower}
    (tie,) = [row.preference for row in rows if row.preference.p_chosen == 0.5]
    assert {tie.chosen, tie.rejected} == {"middling", "middling too"}
    assert sum(row.preference.weight for row in rows) == pytest.approx(1)
    assert label_study(store, study.id, PLAIN).fates == {"used": 1}


def eventful_study(store: Store) -> Study:
    """Everything that can become of a vote happens here at least once."""
    study = study_of(store, 14, Plan(overlap=2, gold_rate=0.25, repeat_rate=0.15))
    prompts, completions, comparisons = records(4, start=100)
    add_items(store, study.id, prompts, completions, [replace(Item.of(c), pool="gold", gold="b") for c in comparisons])
    prompts, completions, comparisons = records(1, start=200)
    taught = [replace(Item.of(comparisons[0]), pool="training", gold="b")]
    add_items(store, study.id, prompts, completions, taught)
    same = [CompletionRecord(f"same{n}", "p0", "the same words", f"m{n}") for n in range(2)]
    add_items(store, study.id, [], same, [Comparison("same", "p0", "same0", "same1")])
    raters = [add_rater(store, study.id, name, training=name == "novice").id for name in ("novice", "anna", "bert")]
    draw = random.Random(3)
    set_overlap(store, study.id, 3, ["c13"])

    def answer(question: Assignment) -> Answer:
        choice = draw.choices(("good", "tie", "both_bad", "skip"), (12, 2, 2, 1))[0]
        choice = {"c10": "tie", "c11": "both_bad", "c12": "skip", "same": "good"}.get(question.item, choice)
        if question.item == "c13":
            choice = "tie" if question.rater_id == raters[0] else "good"
        if question.training or choice == "good":
            return better(question, draw.randint(1, 3))
        return Answer(choice, reason="?")  # type: ignore[arg-type]

    work(store, raters, answer)
    judge = add_rater(store, study.id, "judge", kind="llm").id
    work(store, [judge])
    (last,) = recent_answers(store, raters[1])
    submit(store, last.assignment.id, Answer("tie"))
    owner = add_rater(store, study.id, "owner", role="owner").id
    submit(store, reserve_item(store, owner, "c3").id, Answer("left", 1))
    present(store, study.id, Presentation(question="Another question?"))
    work(store, [add_rater(store, study.id, "latecomer").id])
    set_overlap(store, study.id, 4, ["c5", "c6"])
    work(store, [add_rater(store, study.id, name).id for name in ("spammer", "latest")], answer)
    exclude(store, study.id, "rater", "spammer", "answers at random")
    return study


def test_every_judgement_has_exactly_one_fate(store: Store) -> None:
    study = eventful_study(store)
    votes = list_votes(store, study.id, every_revision=True)
    fates = label_study(store, study.id, Selection(versions=(1,), min_votes=2)).fates
    assert sum(fates.values()) == len(votes)
    assert set(fates) == set(FATES)  # each of them occurs
    latest = [vote for vote in votes if vote.latest and vote.rater_kind == "human" and not vote.excluded]
    assert fates["superseded"] == sum(not vote.latest for vote in votes)
    assert fates["excluded"] == sum(vote.rater == "spammer" for vote in votes)
    assert fates["other_kind"] == sum(vote.rater == "judge" for vote in votes)
    assert fates["training"] == sum(vote.pool == "training" for vote in latest)
    assert fates["other_version"] == sum(vote.version == 2 and vote.pool != "training" for vote in latest)


def test_questions_are_never_mixed_silently(store: Store) -> None:
    study = eventful_study(store)
    with pytest.raises(TutelageError, match="1, 2"):
        preferences(store, study.id)
    mixed = label_study(store, study.id, Selection(versions=(1, 2))).fates
    assert "other_version" not in mixed
    first, second = (label_study(store, study.id, Selection(versions=(n,))).fates for n in (1, 2))
    under = Counter(vote.version for vote in list_votes(store, study.id) if vote.rater_kind == "human")
    assert (
        first["other_version"] + second["other_version"] == sum(under.values()) - first["excluded"] - first["training"]
    )


def test_model_judges_count_only_when_named(store: Store) -> None:
    study = study_of(store, 4)
    work(store, [add_rater(store, study.id, "judge", kind="llm").id])
    assert label_study(store, study.id, PLAIN).fates == {"other_kind": 4}
    assert len(label_study(store, study.id, replace(PLAIN, kinds=("llm",))).rows) == 4


def test_a_snapshot_reads_the_same_for_ever(store: Store) -> None:
    study = study_of(store, 8)
    raters = raters_of(store, study, 3)
    work(store, raters)
    exclude(store, study.id, "rater", "rater 1", "for now")
    moment = freeze(store, study.id)
    before = label_study(store, study.id, Selection(), moment)
    include(store, study.id, "rater", "rater 1")
    exclude(store, study.id, "item", "c2", "broken")
    (last,) = recent_answers(store, raters[0])
    submit(store, last.assignment.id, Answer("both_bad"))
    set_overlap(store, study.id, 3, ["c0", "c1"])
    work(store, raters)
    after = label_study(store, study.id, Selection(), moment)
    assert [row.preference for row in after.rows] == [row.preference for row in before.rows]
    assert (after.fates, after.labels) == (before.fates, before.labels)
    assert label_study(store, study.id, Selection()).fates != before.fates


def test_preferences_keep_to_the_split_of_their_prompts(lite: Store) -> None:
    study = create_study(lite, "split", plan=replace(QUIET, overlap=1))
    prompts, completions, comparisons = records(6)
    prompts = [replace(p, split="held_out" if n < 2 else "train") for n, p in enumerate(prompts)]
    add_items(lite, study.id, prompts, completions, comparisons)
    work(lite, raters_of(lite, study, 2))
    held_out = {p.messages for p in preferences(lite, study.id, split="held_out")}
    train = {p.messages for p in preferences(lite, study.id, split="train")}
    assert (len(held_out), len(train)) == (2, 4)
    assert not held_out & train
