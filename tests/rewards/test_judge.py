"""A judge behind an endpoint: what it is asked, and what becomes of its replies."""

from typing import Any

import pytest
from served import choices, serving

from tutelage.base.errors import TutelageError
from tutelage.data.chat_endpoint import Endpoint, PaidEndpoint, Usage
from tutelage.data.llm_judge import EndpointPairJudge, Opinion
from tutelage.data.records import Messages
from tutelage.rewards.judge import JudgeReward, PairwiseJudgeReward
from tutelage.rewards.matches import swiss
from tutelage.rewards.metrics import reward_metrics
from tutelage.rewards.rules import LengthLimit
from tutelage.rewards.weighted import CappedReward, WeightedReward

from .made import completion


def said(body: dict[str, Any]) -> str:
    text: str = body["messages"][0]["content"]
    return text


def rated_by_length(body: dict[str, Any], number: int) -> dict[str, Any]:
    answer = said(body).partition("[Response]\n")[2].partition("\n[End of response]")[0]
    return choices(f"Not [[9]] but [[{len(answer)}]]")


def test_the_last_rating_is_the_score_and_equal_requests_are_sent_once() -> None:
    with serving(rated_by_length) as served:
        reward = JudgeReward(PaidEndpoint(Endpoint(served.url, "m")), "Is it kind?", "Kindness first.")
        answers = [completion("ab"), completion("abcd"), completion("ab")]
        assert reward(answers) == [2.0, 4.0, 2.0]
    assert len(served.asked) == 2
    request = said(served.asked[0])
    for part in (
        "Is it kind?",
        "Kindness first.",
        "system: Be brief.\n\nuser: Hi\n\nassistant: Hello\n\nuser: Why?",
    ):
        assert part in request
    assert "from 1 (worst) to 10 (best)" in request
    assert served.asked[0]["temperature"] == 0.0


def test_own_columns_fill_the_template_and_texts_cannot_reach_other_parts() -> None:
    template = "{conversation}|{response}|{solution}|{unknown}"
    with serving(lambda body, number: choices("[[1]]")) as served:
        reward = JudgeReward(PaidEndpoint(Endpoint(served.url, "m")), template=template)
        reward([completion("{solution} {question}", messages=(), solution=42, response="a trap")])
    assert said(served.asked[0]) == "|{solution} {question}|42|{unknown}"


def test_a_reply_without_a_rating_is_asked_for_once_more_and_then_refused() -> None:
    with serving(lambda body, number: choices("[[7]]" if number else "Good.")) as served:
        assert JudgeReward(PaidEndpoint(Endpoint(served.url, "m")))([completion("a")]) == [7.0]
    for reply in ("Good.", "[[11]]", "[[0]]"):
        with (
            serving(lambda body, number, reply=reply: choices(reply)) as served,
            pytest.raises(TutelageError, match=r"The judge m gave no rating from 1 to 10"),
        ):
            JudgeReward(PaidEndpoint(Endpoint(served.url, "m")))([completion("a")])
        assert len(served.asked) == 2


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"template": "{conversation}"}, "lacks {response}"),
        ({"lowest": 5.0, "highest": 5.0}, "from 5 to 5 says nothing"),
    ],
)
def test_judges_that_could_say_nothing(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(TutelageError, match=told):
        JudgeReward(PaidEndpoint(Endpoint("http://localhost:1/v1", "m")), **settings)


def test_a_judge_of_pairs_counts_only_where_it_prefers_the_same_answer_in_both_orders() -> None:
    asked: list[tuple[str, str]] = []

    def compare(messages: Messages, first: str, second: str) -> Opinion:
        asked.append((first, second))
        if {first, second} == {"left", "right"}:
            return Opinion("first")  # whichever stands there
        return Opinion("first" if len(first) > len(second) else "second")

    pairs = [("long answer", "short"), ("no", "longer"), ("left", "right"), ("same", "same")]
    answers = [completion(text, f"p{i}") for i, pair in enumerate(pairs) for text in pair]
    assert PairwiseJudgeReward(compare)(answers) == [1.0, 0.0, 0.0, 1.0, 0.5, 0.5, 0.5, 0.5]
    assert len(asked) == 6, "equal answers need no judge"


def by_length(messages: Messages, first: str, second: str) -> Opinion:
    if len(first) == len(second):
        return Opinion("tie", 0)
    return Opinion("first" if len(first) > len(second) else "second")


def test_in_a_group_all_are_compared_with_all_and_equal_answers_share_their_score() -> None:
    texts = ["aaa", "b", "cc", "b", "dd"]
    group = [completion(text, "p") for text in texts]
    other = [completion("x", "q"), completion("yy", "q")]
    shares = {"aaa": 1.0, "b": 0.0, "cc": 0.5, "dd": 0.5}
    assert PairwiseJudgeReward(by_length)(group + other) == [*(shares[text] for text in texts), 0.0, 1.0]
    assert PairwiseJudgeReward(by_length)([completion("same", "p")] * 3) == [0.5] * 3


def test_scores_do_not_depend_on_the_order_of_the_answers() -> None:
    texts = ["a" * n for n in (3, 1, 2, 5, 4)]
    scores = dict(
        zip(texts, PairwiseJudgeReward(by_length)([completion(t, "p") for t in texts]), strict=True)
    )
    turned = PairwiseJudgeReward(by_length)([completion(t, "p") for t in reversed(texts)])
    assert turned == [scores[text] for text in reversed(texts)]
    assert sum(turned) / len(turned) == 0.5


def test_a_tournament_asks_less_and_finds_the_best_and_the_worst() -> None:
    asked: list[tuple[str, str]] = []

    def compare(messages: Messages, first: str, second: str) -> Opinion:
        asked.append((first, second))
        return by_length(messages, first, second)

    texts = ["a" * n for n in (3, 7, 2, 8, 4, 1, 6, 5)]
    scores = PairwiseJudgeReward(compare, swiss)([completion(text, "p") for text in texts])
    assert scores[texts.index("a" * 8)] == max(scores) == 1.0
    assert scores[texts.index("a")] == min(scores) == 0.0
    assert len(asked) == 2 * 12, "twelve pairs in both orders, where all pairs are 28"


@pytest.mark.parametrize("names", [("p", "p", "q"), ("p",)])
def test_an_answer_that_stands_alone_is_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(TutelageError, match="two or more to each prompt"):
        PairwiseJudgeReward(lambda *pair: Opinion("first"))([completion("a", name) for name in names])


def test_the_judge_says_what_it_was_asked() -> None:
    assert PairwiseJudgeReward(by_length).usage == Usage()
    with serving(lambda body, number: choices("[[C]] [[5]]")) as served:
        paid = PaidEndpoint(Endpoint(served.url, "m"))
        for reward in (JudgeReward(paid), PairwiseJudgeReward(EndpointPairJudge(paid))):
            reward([completion("a"), completion("b")])
        assert reward.usage.requests == len(served.asked) == 4
    whole = WeightedReward(((1.0, CappedReward(JudgeReward(paid), highest=8.0)), (1.0, LengthLimit(3))))
    assert reward_metrics(whole)["judge/requests"] == 4.0
    assert reward_metrics(LengthLimit(3)) == {}
