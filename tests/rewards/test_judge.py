"""Schedules of comparisons: who meets whom, how often, and what a tournament finds out."""

import math
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import pytest
from offenders import for_each
from served import choices, serving

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.data.chat_endpoint import KEY, Endpoint, PaidEndpoint
from tutelage.data.llm_judge import EndpointPairJudge, Opinion
from tutelage.data.records import Messages
from tutelage.rewards.composite import CappedReward, WeightedReward
from tutelage.rewards.factory import make_reward
from tutelage.rewards.judge import (
    JudgeReward,
    PairResult,
    PairwiseJudgeReward,
    Schedule,
    judge_named,
    round_robin,
    swiss,
)
from tutelage.rewards.rules import LengthLimit
from tutelage.rewards.scores import reward_metrics

from .made import completion


def played_by_strength(schedule: Schedule, strength: tuple[int, ...]) -> list[PairResult]:
    """All matches among players of which the stronger one always wins."""
    played: list[PairResult] = []
    while drawn := schedule(len(strength), played):
        assert len({player for pair in drawn for player in pair}) == 2 * len(drawn) or schedule is round_robin
        played += [PairResult(a, b, (strength[a] > strength[b]) + 0.5 * (strength[a] == strength[b])) for a, b in drawn]
    return played


def points(played: list[PairResult], player: int) -> float:
    won = [match.score for match in played if match.first == player]
    return sum(won) + sum(1 - match.score for match in played if match.second == player)


@for_each(range(1, 7))
def test_in_a_round_robin_everybody_meets_everybody_once(players: int) -> None:
    met = [(match.first, match.second) for match in played_by_strength(round_robin, tuple(range(players)))]
    assert met == list(combinations(range(players), 2))


@for_each(range(1, 17))
def test_a_swiss_tournament_is_short_and_repeats_no_match(players: int) -> None:
    played = played_by_strength(swiss, tuple((7 * i) % players for i in range(players)))
    assert len({frozenset((match.first, match.second)) for match in played}) == len(played)
    assert len(played) <= players / 2 * math.ceil(math.log2(players)) if players > 1 else not played
    for player in range(players):
        count = sum(player in (match.first, match.second) for match in played)
        rounds = (players - 1).bit_length()
        assert rounds - 1 - players % 2 <= count <= rounds


def test_the_best_player_wins_every_swiss_tournament_of_up_to_six() -> None:
    """Whatever the order of the players: the best one has won all its matches, the worst one none."""
    for players in (2, 3, 4, 5, 6):
        for strength in permutations(range(players)):
            played = played_by_strength(swiss, strength)
            best, worst = strength.index(players - 1), strength.index(0)
            count = [sum(player in (m.first, m.second) for m in played) for player in (best, worst)]
            assert points(played, best) == count[0] > 0
            assert points(played, worst) == 0 < count[1]


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
    for part in ("Is it kind?", "Kindness first.", "system: Be brief.\n\nuser: Hi\n\nassistant: Hello\n\nuser: Why?"):
        assert part in request
    assert "from 1 (worst) to 10 (best)" in request
    assert served.asked[0]["temperature"] == 0.0


def test_own_columns_fill_the_template_and_texts_cannot_reach_other_parts() -> None:
    template = "{conversation}|{response}|{solution}|{unknown}"
    with serving(lambda body, number: choices("[[1]]")) as served:
        reward = JudgeReward(PaidEndpoint(Endpoint(served.url, "m")), template=template)
        reward([completion("{solution} {question}", messages=(), solution=42, response="a trap")])
        reward([completion("So.", messages=(), solution=["Zoë", True, None])])
    assert said(served.asked[0]) == "|{solution} {question}|42|{unknown}"
    assert said(served.asked[1]) == '|So.|["Zoë", true, null]|{unknown}'


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
    scores = dict(zip(texts, PairwiseJudgeReward(by_length)([completion(t, "p") for t in texts]), strict=True))
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
    with pytest.raises(TutelageError, match="at least two adjacent ones per prompt"):
        PairwiseJudgeReward(lambda *pair: Opinion("first"))([completion("a", name) for name in names])


def test_the_judge_says_what_it_was_asked() -> None:
    assert reward_metrics(PairwiseJudgeReward(by_length))["judge/requests"] == 0
    with serving(lambda body, number: choices("[[C]] [[5]]")) as served:
        paid = PaidEndpoint(Endpoint(served.url, "m"))
        for reward in (JudgeReward(paid), PairwiseJudgeReward(EndpointPairJudge(paid))):
            reward([completion("a"), completion("b")])
        assert reward.endpoint.usage.requests == len(served.asked) == 4
    whole = WeightedReward(((1.0, CappedReward(JudgeReward(paid), highest=8.0)), (1.0, LengthLimit(3))))
    assert reward_metrics(whole)["judge/requests"] == 4.0
    assert reward_metrics(LengthLimit(3)) == {}


NOWHERE = config.Model("nowhere", device="cpu")
LEAST = 'url = "http://localhost:1/v1"\nmodel = "m"\nrubric = "Kind and short."\n'


def write(folder: Path, text: str) -> str:
    path = folder / "judge.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_judge_that_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "hush")
    with serving(lambda body, number: choices("Fine. [[4]]")) as served:
        text = LEAST.replace("http://localhost:1/v1", served.url) + 'highest = 5\nreplies = "kept.jsonl"\n'
        reward = make_reward([f"judge:{write(tmp_path, text)}=0.5"], None, NOWHERE)
        scores = reward([completion("a"), completion("a")])
        assert list(scores) == [2.0, 2.0]
    assert served.keys == ["Bearer hush"]
    asked = served.asked[0]["messages"][0]["content"]
    assert "Kind and short." in asked
    assert "from 1 (worst) to 5 (best)" in asked
    assert (tmp_path / "kept.jsonl").is_file(), "paths are relative to the file of settings"


@pytest.mark.parametrize(("by", "schedule"), [("pairs", round_robin), ("tournament", swiss)])
def test_a_judge_that_compares(tmp_path: Path, by: str, schedule: object) -> None:
    reward = judge_named(write(tmp_path, LEAST + f'by = "{by}"\nquestion = "Which is kinder?"\n'))
    assert isinstance(reward, PairwiseJudgeReward)
    assert reward.schedule is schedule
    assert reward.compare.question == "Which is kinder?"  # type: ignore[attr-defined]


def test_a_prompt_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("{guidelines}|{conversation}|{response}")
    reward = judge_named(write(tmp_path, LEAST + 'template = "prompt.txt"\n'))
    assert isinstance(reward, JudgeReward)
    assert reward.template == "{guidelines}|{conversation}|{response}"


@for_each(
    [
        (LEAST.replace("Kind and short.", " "), r"judge.toml: The rubric is empty"),
        (LEAST.replace('rubric = "Kind and short."\n', ""), "The rubric is empty"),
        (LEAST + 'by = "vibes"\n', "by must be"),
        (LEAST + "highest = 1\n", "from 1 to 1 says nothing"),
        (LEAST + 'by = "pairs"\nhighest = 5\n', "by = 'pairs' gives none"),
        (LEAST + "budget = 5\n", "needs the prices"),
        (LEAST + "at_once = 0\n", "at_once has to be 1"),
        (LEAST + 'template = "none.txt"\n', "Cannot read"),
        (LEAST + "temprature = 1\n", "did you mean 'temperature'"),
        (LEAST.replace("http://", ""), "is not an endpoint"),
        ("rubric =", "is not valid TOML"),
    ]
)
def test_files_that_describe_no_judge(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(TutelageError, match=told):
        judge_named(write(tmp_path, text))


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(TutelageError, match=r"Cannot read the settings file nowhere.toml"):
        make_reward(["judge:nowhere.toml"], None, NOWHERE)


def test_a_prompt_without_a_place_for_the_rubric_is_refused(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("{conversation}|{response}")
    with pytest.raises(TutelageError, match=r"lacks \{guidelines\}"):
        judge_named(write(tmp_path, LEAST + 'template = "prompt.txt"\n'))
