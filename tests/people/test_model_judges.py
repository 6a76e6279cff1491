"""Model judges and reward models as raters."""

import json

import pytest
from served import choices, serving

from tutelage.base.errors import TutelageError
from tutelage.data.chat_endpoint import Endpoint, PaidEndpoint
from tutelage.data.llm_judge import EndpointPairJudge, Opinion
from tutelage.data.records import Messages, user
from tutelage.people import Selection, Store, add_rater, create_study, label_study, list_raters, list_votes
from tutelage.people.model_judges import ScoreJudge, judge_study

from .worlds import raters_of, study_of, work

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


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ((1.0, 0.0), Opinion("first", 2)),
        ((0.0, 0.5), Opinion("second", 1)),
        ((0.0, 9.0), Opinion("second", 3)),
        ((0.1, 0.0), Opinion("tie", 0)),
    ],
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
