"""Labels of steps: what an answer says of which step, what is refused, and what follows for labels and reliability."""

from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from offenders import for_each

from tests.people.worlds import Clock, opened
from tutelage.base.errors import TutelageError
from tutelage.data.records import CompletionRecord, Message, Prompt, ToolCall, user
from tutelage.people import (
    Answer,
    Item,
    Plan,
    Selection,
    Store,
    Study,
    add_items,
    add_rater,
    create_study,
    exclude,
    list_questions,
    list_votes,
    next_assignment,
    set_overlap,
    submit,
)
from tutelage.people.answers import Canonical
from tutelage.people.export import export_study
from tutelage.people.kinds.kind import PairVerdict, RaterAnswer, ResponseValues, Screen
from tutelage.people.kinds.steps import STEPS, first_wrong, judged, labels_until
from tutelage.people.restoration import import_export
from tutelage.people.simulated_raters import ReliableRater
from tutelage.people.statistics.cache import Keeper
from tutelage.people.store.rater_erasure import forget
from tutelage.people.store.studies import Presentation
from tutelage.people.training_data import label_study
from tutelage.people.vote_import import import_votes
from tutelage.people.vote_mapping import VoteMapping
from tutelage.people.web.api.changes import request_table

FIRST, EACH = Screen(1, 2, steps=4), Screen(1, 3, steps=4)


def said(answer: Answer, screen: Screen = FIRST) -> Canonical:
    STEPS.check(answer, screen)
    return STEPS.canonical(answer, (0,), screen)


@for_each([(0, [1, 1, 1, 1], "aaaa"), (1, [-1, None, None, None], "b"), (3, [1, 1, -1, None], "aab")])
def test_the_first_wrong_step_labels_the_steps_up_to_it(number: int, labels: list[int | None], verdicts: str) -> None:
    answer = said(first_wrong(number, 4))
    assert answer.content["labels"] == labels
    assert answer.verdict == str(number)
    assert list(STEPS.pairs(answer, 1)) == [PairVerdict(step, step, word, 0) for step, word in enumerate(verdicts)]
    assert list(STEPS.gold_pairs(str(number), 4)) == list(STEPS.pairs(answer, 1))


def test_neutral_steps_are_ties_and_do_not_make_a_step_the_first_wrong_one() -> None:
    answer = said(judged([1, 0, -1, -1]), EACH)
    assert answer.verdict == "3"
    assert [pair.verdict for pair in STEPS.pairs(answer, 1)] == ["a", "tie", "b", "b"]


@for_each(
    [
        (judged([1, 1, 1]), FIRST),
        (judged([1, 2, 1, 1]), EACH),
        (judged([1, True, 1, 1]), EACH),
        (judged([1, None, 1, 1]), EACH),
        (judged([1, 0, 1, 1]), FIRST),
        (judged([-1, 1, 1, 1]), FIRST),
        (judged([1, None, None, None]), FIRST),
        (Answer("judged"), FIRST),
        (judged([1] * 4, {5: "later"}), FIRST),
        (judged([1] * 4, {1: "x" * 20_001}), FIRST),
        (Answer("judged", content={"labels": [1] * 4, "reasons": {"1": 3}}), FIRST),
        (Answer("left", 1), FIRST),
        (Answer("judged", 2, content={"labels": [1] * 4}), FIRST),
        (Answer("skip", content={"labels": [1] * 4}), FIRST),
    ]
)
def test_labels_that_the_question_does_not_allow_are_refused(answer: Answer, screen: Screen) -> None:
    with pytest.raises(TutelageError):
        STEPS.check(answer, screen)


@for_each(["a", "5", "-1", "", "02", "٢", "2 "])
def test_a_known_answer_is_the_number_of_a_step(gold: str) -> None:
    with pytest.raises(TutelageError, match="first wrong step"):
        STEPS.gold_pairs(gold, 4)


@pytest.mark.parametrize(
    "answer",
    [first_wrong(0, 4), first_wrong(2, 4), judged([0, 1, -1, 1], {2: "why", 3: "so"})],
    ids=["none", "second", "reasons"],
)
def test_the_columns_of_a_table_say_the_same_answer(answer: Answer) -> None:
    screen = EACH if 0 in answer.content["labels"] else FIRST  # type: ignore[operator]
    cells = {name: "" if value is None else f"{value}" for name, value in STEPS.cells(said(answer, screen)).items()}
    read = STEPS.read(cells, screen)
    assert read is not None
    assert (read.choice, read.content) == (answer.choice, answer.content)


def test_the_column_first_wrong_is_read_as_a_number_or_not_at_all() -> None:
    read = STEPS.read({"first_wrong": "2"}, FIRST)
    assert read is not None
    assert read.content["labels"] == labels_until(2, 4)
    assert STEPS.read({"first_wrong": "none"}, FIRST) is None
    assert STEPS.read({}, FIRST) is None


def test_agreement_is_perfect_with_one_voice_and_of_units_that_two_raters_labelled() -> None:
    def statement(item: str, rater: str, number: int) -> RaterAnswer:
        return RaterAnswer(item, rater, said(first_wrong(number, 4)))

    same = [statement(item, rater, number) for item, number in (("x", 0), ("y", 2)) for rater in "ab"]
    alphas = STEPS.agreements(same)
    assert [alpha.value for alpha in alphas.values()] == [1.0, 1.0]
    assert alphas["each step"].items == 6  # four of x, two of y: nobody said anything of the last two
    differing = STEPS.agreements([*same, statement("z", "a", 1), statement("z", "b", 3)])
    assert differing["each step"].items == 7  # step 1 of z alone has two labels
    value, low, high = (getattr(differing["each step"], name) for name in ("value", "low", "high"))
    assert value < 1
    assert low <= value <= high


def test_a_simulated_rater_stops_at_the_first_step_that_it_calls_wrong() -> None:
    rater, values = ReliableRater("sure", 1.0), ResponseValues((1.0, -1.0, 1.0, -1.0), (5, 5, 5, 5))
    assert STEPS.simulate(values, FIRST, rater, Random(0), 0).content["labels"] == [1, -1, None, None]
    assert STEPS.simulate(values, EACH, rater, Random(0), 0).content["labels"] == [1, -1, 1, -1]


def test_a_rater_of_stated_reliability_is_right_so_often() -> None:
    rater, rng = ReliableRater("fair", 0.8), Random(1)
    right = sum(rater.judge(-1.0, 0.0, 5, 5, rng).verdict == "right" for _ in range(4_000))
    assert right / 4_000 == pytest.approx(0.8, abs=0.02)


# ---- through the store

RELIABILITY = {"one": 0.95, "two": 0.85, "three": 0.75}


def trace(number: int) -> tuple[Message, ...]:
    call = ToolCall("calculator", '{"expression": "6 * 7"}', f"call-{number}")
    return Message("assistant", "", calls=(call,)), Message("tool", "42", name="calculator", call_id=call.id)


def voted_study(store: Store, items: int, *, scale: int = 2) -> tuple[Study, dict[str, list[int]]]:
    """A study in which simulated raters of known reliability have judged every trace, and the true labels."""
    study = create_study(
        store, "traces", kind="steps", plan=Plan(overlap=3, gold_rate=0, repeat_rate=0), secret="5a" * 32,
        presentation=Presentation(scale=scale),
    )  # fmt: skip
    rng, truth = Random(0), dict[str, list[int]]()
    prompts, completions, rows = [], [], []
    for number in range(items):
        truth[f"i{number}"] = labels = [1 if rng.random() < 0.8 else -1 for _ in range(rng.randint(2, 5))]
        prompts.append(Prompt(f"p{number}", user(f"Question {number}")))
        steps = tuple(map(trace, range(len(labels))))
        completions.append(CompletionRecord(f"c{number}", f"p{number}", "a trace", "model", steps=steps))
        rows.append(Item(f"i{number}", f"p{number}", (f"c{number}",)))
    add_items(store, study.id, prompts, completions, rows)
    for name, reliability in RELIABILITY.items():
        rater_id, rater = add_rater(store, study.id, name).id, ReliableRater(name, reliability)
        while (question := next_assignment(store, rater_id)) is not None:
            gold = tuple(map(float, truth[question.item]))
            screen = Screen(1, scale, steps=len(question.steps[0]))
            values = ResponseValues(gold, (3,) * len(gold))
            submit(store, question.id, STEPS.simulate(values, screen, rater, rng, 0))
    return study, truth


def test_votes_on_steps_become_labels_and_reliabilities(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "study.sqlite", Clock())) as store:
        study, truth = voted_study(store, 120, scale=3)
        labelled = label_study(store, study.id, Selection())
        pairs = [
            (probability, label)
            for row in labelled.steps
            for probability, label in zip(row.probabilities, truth[row.question.key], strict=True)
        ]
        assert len(pairs) == sum(map(len, truth.values()))
        right = sum(probability is not None and (probability > 0.5) == (label > 0) for probability, label in pairs)
        assert right > 0.9 * len(pairs)
        for name, reliability in RELIABILITY.items():
            assert labelled.labels.accuracy[name] == pytest.approx(reliability, abs=0.08)  # three raters of 400 steps
        statistics = Keeper(store).compute(study)
        assert statistics.statistics.labelled == len(pairs)
        assert statistics.statistics.left.value is None
        assert statistics.agreements["each step"].value == pytest.approx(statistics.statistics.alpha.value, abs=1e-9)


def test_steps_after_the_first_wrong_one_are_not_labelled_and_an_export_restores_the_rest(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "study.sqlite", Clock())) as store:
        study, _ = voted_study(store, 30)
        labelled = label_study(store, study.id, Selection())
        votes = {vote.item: [] for vote in labelled.votes}  # type: ignore[var-annotated]
        for vote in labelled.votes:
            votes[vote.item].append(vote.content["labels"])
        for row in labelled.steps:
            unrated = [
                all(labels[step] is None for labels in votes[row.question.key]) for step in range(len(row.labels))
            ]
            assert [probability is None for probability in row.probabilities] == unrated
        export_study(store, study.id, tmp_path / "export")
        restored = import_export(store, tmp_path / "export", name="again")
        again = label_study(store, restored.id, Selection())
        assert [row.probabilities for row in again.steps] == [row.probabilities for row in labelled.steps]
        assert [row.question.completions[0].steps for row in again.steps] == [
            row.question.completions[0].steps for row in labelled.steps
        ]


def test_reasons_for_steps_are_redacted_and_erased_like_other_texts(tmp_path: Path) -> None:
    secret = "ann@example.org knows"
    with closing(opened(tmp_path / "study.sqlite", Clock())) as store:
        study, _ = voted_study(store, 1)
        set_overlap(store, study.id, 4, ["i0"])
        rater = add_rater(store, study.id, "ann")
        question = next_assignment(store, rater.id)
        assert question is not None
        steps = len(question.steps[0])
        submit(store, question.id, judged(labels_until(1, steps), {1: secret}))
        export_study(store, study.id, tmp_path / "export", redact=True)
        assert "ann@example.org" not in "".join(file.read_text() for file in (tmp_path / "export").iterdir())
        vote = next(vote for vote in list_votes(store, study.id) if vote.rater == "ann")
        assert vote.content["reasons"] == {"1": secret}
        forget(store, rater.id)
        kept = next(each for each in list_votes(store, study.id) if each.id == vote.id)
        assert kept.content == {"labels": labels_until(1, steps), "reasons": {"1": ""}}
        assert secret not in str(kept.displayed)


def test_votes_of_a_table_say_the_first_wrong_step_of_a_text(tmp_path: Path) -> None:
    text = "Two and two is four.\n\nTwice that is nine.\n\nSo nine."
    rows = [("ann", "2"), ("ben", "0"), ("cat", "4"), ("dan", "late")]
    lines = [{"prompt": "2 + 2, doubled?", "a": text, "rater": name, "first_wrong": said} for name, said in rows]
    table = request_table(lines)
    with closing(opened(tmp_path / "study.sqlite", Clock())) as store:
        study = create_study(store, "texts", kind="steps")
        mapping = VoteMapping(prompt=("prompt",), a="a", b="b", rater="rater", partial=True)
        report = import_votes(store, study.id, table, mapping)
        votes = {vote.rater: vote.content["labels"] for vote in list_votes(store, study.id)}
        assert votes == {"ann": [1, -1, None], "ben": [1, 1, 1]}
        assert sum(dropped.count for dropped in report.dropped) == 2


def test_votes_on_steps_are_counted_the_same_in_bulk(store: Store, folder: Path) -> None:
    """The most frequent first wrong step and all others, also after an exclusion, its end, and a restoration."""
    study = create_study(store, "counts", kind="steps", plan=Plan(overlap=4, gold_rate=0, repeat_rate=0))
    response = CompletionRecord("r", "p", "x", "m", steps=("one", "two", "three"))
    add_items(store, study.id, [Prompt("p", user("q"))], [response], [Item("i", "p", ("r",))])
    for name, number in (("anna", 2), ("bert", 2), ("cora", 0), ("dora", 3)):
        rater = add_rater(store, study.id, name).id
        question = next_assignment(store, rater)
        assert question is not None
        submit(store, question.id, first_wrong(number, 3))

    def sides(study_id: int) -> tuple[int, int]:
        (question,) = list_questions(store, study_id)
        return question.counts["a"], question.counts["b"]

    assert sides(study.id) == (2, 2)
    exclude(store, study.id, "rater", "dora", "left")
    assert sides(study.id) == (2, 1)
    export_study(store, study.id, folder / "export")
    exclude(store, study.id, "rater", "anna", "left too")
    assert sides(study.id) == (1, 1)
    assert sides(import_export(store, folder / "export", name="again").id) == (2, 1)


def test_a_response_without_steps_is_refused(tmp_path: Path) -> None:
    with closing(opened(tmp_path / "study.sqlite", Clock())) as store:
        study = create_study(store, "traces", kind="steps")
        prompt, completion = Prompt("p", user("Question")), CompletionRecord("c", "p", "text", "model")
        with pytest.raises(TutelageError, match="Item 'i'"):
            add_items(store, study.id, [prompt], [completion], [Item("i", "p", ("c",))])
