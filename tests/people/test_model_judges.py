"""Model judges and reward models as raters."""

import json
from dataclasses import replace

import pytest
from offenders import for_each
from served import choices, serving

from tutelage.base.errors import TutelageError
from tutelage.data.chat_endpoint import Endpoint, PaidEndpoint
from tutelage.data.llm_judge import EndpointPairJudge, EndpointRubricJudge, Opinion
from tutelage.data.records import CompletionRecord, Messages, Prompt, user
from tutelage.data.rubrics import Criterion
from tutelage.people import (
    Assignment,
    Item,
    Selection,
    Store,
    Study,
    add_items,
    add_rater,
    create_study,
    label_study,
    list_raters,
    list_votes,
)
from tutelage.people.answers import judged
from tutelage.people.model_judges import ScoreJudge, criterion_agreements, judge_study

from .worlds import QUIET, raters_of, study_of, work

GOOD_FIRST = Opinion("first", 2, "kinder")


def honest(messages: Messages, first: str, second: str) -> Opinion:
    return Opinion("first" if first.startswith("good") else "second", 2, "kinder")


def test_a_judge_that_looks_at_the_texts_is_heard_and_one_that_looks_at_the_order_is_not(store: Store) -> None:
    study = study_of(store, 4)
    judge_study(store, study.id, "honest", honest)
    judge_study(store, study.id, "biased", lambda messages, first, second: GOOD_FIRST)
    judge_study(store, study.id, "torn", lambda *_: Opinion("tie", 0))
    said = {name: [v for v in list_votes(store, study.id) if v.rater == name] for name in ("honest", "biased", "torn")}
    assert [(vote.verdict, vote.strength) for vote in said["honest"]] == [("b", 2)] * 4
    assert [vote.reason for vote in said["honest"]] == ["kinder"] * 4
    assert [vote.verdict for vote in said["biased"] + said["torn"]] == ["tie"] * 8


def test_judges_are_counted_apart(store: Store) -> None:
    study = study_of(store, 3)
    judge_study(store, study.id, "honest", honest)
    work(store, raters_of(store, study, 2))
    assert label_study(store, study.id, Selection()).fates == {"used": 6, "other_kind": 3}
    both = label_study(store, study.id, Selection(kinds=("human", "llm")))
    assert both.fates == {"used": 9}
    assert set(both.labels.accuracy) == {"honest", "rater 0", "rater 1"}


def test_an_interrupted_judge_goes_on_where_it_stopped(store: Store) -> None:
    study = study_of(store, 5)
    calls = []

    def fails_once(messages: Messages, first: str, second: str) -> Opinion:
        calls.append(first)
        if len(calls) == 6:
            raise TutelageError("The judge is tired.")
        return honest(messages, first, second)

    with pytest.raises(TutelageError, match="tired"):
        judge_study(store, study.id, "judge", fails_once)
    assert len(list_votes(store, study.id)) == 2
    assert judge_study(store, study.id, "judge", fails_once) == 3
    assert len({vote.item for vote in list_votes(store, study.id)}) == 5
    assert judge_study(store, study.id, "judge", fails_once) == 0


def test_a_judges_name_means_one_judge(lite: Store) -> None:
    study = study_of(lite, 1)
    judge_study(lite, study.id, "judge", honest, detail={"model": "m", "prompt_sha256": "1"})
    with pytest.raises(TutelageError, match="taken"):
        judge_study(lite, study.id, "judge", honest, detail={"model": "m", "prompt_sha256": "2"})
    add_rater(lite, study.id, "anna")
    with pytest.raises(TutelageError, match="taken"):
        judge_study(lite, study.id, "anna", honest)


def test_rankings_are_not_for_judges(lite: Store) -> None:
    study = create_study(lite, "ranks", kind="ranking")
    with pytest.raises(TutelageError, match="pairs"):
        judge_study(lite, study.id, "judge", honest)


@for_each(
    [
        ((1.0, 0.0), Opinion("first", 2)),
        ((0.0, 0.5), Opinion("second", 1)),
        ((0.0, 9.0), Opinion("second", 3)),
        ((0.1, 0.0), Opinion("tie", 0)),
    ]
)
def test_a_reward_model_prefers_by_score(scores: tuple[float, float], expected: Opinion) -> None:
    judge = ScoreJudge(lambda prompts, completions: list(scores), tie=0.1, step=0.5)
    assert judge(user("?"), "x", "y") == expected


def test_an_endpoint_is_asked_both_ways_and_understood(lite: Store) -> None:
    study = study_of(lite, 1)
    replies = ["A says {first} [[A]], or rather [[B]]", "The first one. [[A]]"]
    with serving(lambda body, number: choices(replies[number])) as served:
        endpoint = PaidEndpoint(Endpoint(served.url, "judge-7b", "secret"))
        judge = EndpointPairJudge(endpoint, "Which is kinder?", "Be kind.")
        assert judge_study(lite, study.id, "judge", judge, detail=judge.detail) == 1
    first, second = served.asked
    assert (first["path"], served.keys[0], first["model"]) == ("/v1/chat/completions", "Bearer secret", "judge-7b")
    one, two = (str(asked["messages"]) for asked in (first, second))
    assert (one.index("good 0") < one.index("bad 0")) != (two.index("good 0") < two.index("bad 0"))
    assert "Which is kinder?" in one
    (vote,) = list_votes(lite, study.id)
    assert vote.displayed["choice"] == "right"
    (rater,) = list_raters(lite, study.id)
    assert "secret" not in json.dumps(dict(rater.detail))
    other = EndpointPairJudge(endpoint, "Which is kinder?", "Be strict.")
    assert other.detail["prompt_sha256"] != judge.detail["prompt_sha256"]


PROMPTS = 12
ROWS = [{"criterion": "right", "points": 3}, {"criterion": "long", "points": -1}]


def study_of_criteria(store: Store) -> Study:
    """Of 12 prompts, whose responses are right or not and long or not."""
    study = create_study(store, "criteria", kind="checklist", plan=replace(QUIET, overlap=2))
    prompts = [Prompt(f"p{i}", user(f"{i}?"), data={"rubric": ROWS}) for i in range(PROMPTS)]
    texts = {f"p{i}": (f"right {i}", f"long {i}") for i in range(PROMPTS)}
    completions = [CompletionRecord(text, key, text, "m") for key, both in texts.items() for text in both]
    add_items(store, study.id, prompts, completions, [Item(key, key, both) for key, both in texts.items()])
    return study


def seen(question: Assignment, criterion: str, text: str) -> str:
    return "met" if criterion in text else "unmet"


def test_a_judge_and_people_decide_about_the_same_criteria(store: Store) -> None:
    study = study_of_criteria(store)
    names = [criterion["criterion"] for criterion in ROWS]
    work(
        store,
        raters_of(store, study, 2),
        lambda question: judged(
            {str(name): [seen(question, str(name), text) for text in question.texts] for name in names}
        ),
    )

    def judge(messages: Messages, response: str, criterion: Criterion) -> bool | None:
        """Right about "right"; about "long" it says no, and about two prompts nothing."""
        number = int(response.split()[1])
        return criterion.text == "right" and "right" in response if number > 1 else None

    assert judge_study(store, study.id, "judge", judge) == PROMPTS
    whole, *each = criterion_agreements(store, study.id, "judge")
    by_name = {row.criterion: row for row in each}
    rows = 2 * 2 * (PROMPTS - 2)  # two people, two responses
    assert [whole.verdicts, by_name["right"].verdicts, by_name["long"].verdicts] == [2 * rows, rows, rows]
    assert (whole.judge.value, by_name["right"].judge.value, by_name["long"].judge.value) == (0.75, 1.0, 0.5)
    assert by_name["long"].judge.low is not None
    assert all(row.people.value == 1.0 for row in (whole, *each))
    assert criterion_agreements(store, study.id, "nobody") == ()


def test_criteria_are_sent_one_by_one_and_kept(lite: Store) -> None:
    study = study_of_criteria(lite)
    with serving(lambda body, number: choices("[[MET]]")) as served:
        judge = EndpointRubricJudge(PaidEndpoint(Endpoint(served.url, "m", "secret")), "Be strict.")
        assert judge_study(lite, study.id, "m", judge, detail=judge.detail, most=3) == 3
    assert len(served.asked) == 3 * len(ROWS) * 2
    assert all(
        vote.content["verdicts"] == {"right": ["met"] * 2, "long": ["met"] * 2} for vote in list_votes(lite, study.id)
    )
    assert "secret" not in json.dumps(judge.detail)
