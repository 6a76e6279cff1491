"""The reward of rubrics: one request for each criterion, and what it costs beforehand."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
from served import choices, serving

from tutelage.base.errors import TutelageError
from tutelage.data.chat_endpoint import Endpoint, PaidEndpoint
from tutelage.data.llm_judge import EndpointRubricJudge
from tutelage.data.records import Messages, Prompt, user
from tutelage.data.rubrics import Criterion
from tutelage.rewards.composite import CappedReward, Ensemble, MeasuredReward, WeightedReward
from tutelage.rewards.factory import judging_costs
from tutelage.rewards.judge import judge_named
from tutelage.rewards.reward import Completions
from tutelage.rewards.rubric import RubricReward, some_criteria
from tutelage.rewards.rules import LengthLimit
from tutelage.rewards.scores import reward_metrics, scores_of
from tutelage.rewards.single_score import refuse_groups

ROWS = [{"criterion": "good", "points": 3}, {"criterion": "short", "points": 1}, {"criterion": "bad", "points": -2}]


def reply(request: dict[str, Any], number: int) -> dict[str, Any]:
    """A criterion is met by a response that contains its word; about "short" nothing can be said of "odd"."""
    text = request["messages"][0]["content"]
    response = text.partition("[Response]\n")[2].partition("\n[End of response]")[0]
    criterion = text.partition("[Criterion]\n")[2].partition("\n[End of criterion]")[0]
    if "odd" in response and criterion == "short":
        return choices("Who knows")
    return choices("[[MET]]" if criterion in response else "[[UNMET]]")


def test_scores_follow_the_rubric_of_each_row_and_no_question_is_sent_twice() -> None:
    prompts = [Prompt("p", user("?"), data={"rubric": ROWS}), Prompt("q", user("?"), data={"rubrics": ["bad"]})]
    answers = ["good short", "good bad", "good odd", "good odd"]
    with serving(reply) as served:
        reward = RubricReward(EndpointRubricJudge(PaidEndpoint(Endpoint(served.url, "m"))))
        scores = scores_of(reward, Completions([prompts[0]] * 4, answers))
        assert scores.tolist() == pytest.approx([1.0, 0.25, 1.0, 1.0])
        assert len(served.asked) == 3 + 3 + 4
        assert scores_of(reward, Completions([prompts[1]], ["so bad"])).tolist() == [1.0]
        metrics = reward_metrics(reward)
        assert metrics["judge/missing"] == 1
        assert metrics["judge/requests"] == 11


def test_a_completion_without_enough_verdicts_has_no_score() -> None:
    with serving(lambda request, number: choices("?")) as served:
        reward = RubricReward(EndpointRubricJudge(PaidEndpoint(Endpoint(served.url, "m"))))
        assert reward(Completions([Prompt("p", user("?"), data={"rubric": ROWS})], ["good"])) == [None]


def test_a_sum_without_the_score_of_its_rubric_has_none() -> None:
    """A missing score is not a score of 0 in a sum, beside completions of the same prompt that have theirs."""
    met = {"good": True, "bad": False, "none": None}
    rubric = RubricReward(lambda messages, response, criterion: met[response], at_once=1)
    data = {"rubric": ["a", "b"]}
    answers = Completions([Prompt("p", user("?"), data=data)] * 3, ["good", "none", "bad"])
    length = LengthLimit(1, "characters")(answers)
    for part in (rubric, CappedReward(rubric, highest=1.0), Ensemble((rubric, rubric))):
        total = WeightedReward(((2.0, part), (1.0, LengthLimit(1, "characters")))).breakdown(answers).total
        assert total.isnan().tolist() == [False, True, False]
        assert total[0] - total[2] == pytest.approx(2.0 + length[0] - length[2])


def settings(folder: Path, text: str) -> str:
    (folder / "judge.toml").write_text(f'url = "http://localhost:1/v1"\nmodel = "m"\n{text}', encoding="utf-8")
    return str(folder / "judge.toml")


def test_a_file_of_settings_makes_the_reward(tmp_path: Path) -> None:
    reward = judge_named(settings(tmp_path, 'by = "rubric"\nrubric = "Be strict."\n'))
    assert isinstance(reward, RubricReward)
    assert reward.judge.guidelines == "Be strict."
    with pytest.raises(TutelageError, match="question"):
        judge_named(settings(tmp_path, 'by = "rubric"\nquestion = "?"\n'))
    with pytest.raises(TutelageError, match="rubric"):  # a study keeps no columns
        MeasuredReward.of(reward)


def test_costs_are_known_before_anything_is_sent(tmp_path: Path) -> None:
    prompts = [Prompt("p", user("?"), data={"rubric": ROWS}), Prompt("q", user("?"), data={"rubric": ["bad"]})]
    priced = "price_read = 1000000.0\n"
    for by, requests in (("rubric", 8 * 4), ("rating", 8 * 2), ("pairs", 2 * 28 * 2), ("tournament", 2 * 12 * 2)):
        file = settings(tmp_path, f'by = "{by}"\nrubric = "{"x" * 3000}"\n{priced}')
        (line,) = judging_costs([f"judge:{file}", "rule:length(limit=3)"], prompts, 8)
        assert f"{requests} requests" in line
        tokens = int(line.split(" to m: ")[1].split(" token")[0].replace(",", ""))
        assert 1000 * requests < tokens < 2000 * requests
        assert f"{tokens:.2f}" in line
    file = settings(tmp_path, 'by = "rubric"')
    with pytest.raises(TutelageError, match="prompt z"):
        list(judging_costs([f"judge:{file}"], [Prompt("z", user("?"))], 1))


def test_dropout_leaves_the_same_criteria_out_for_all_completions_of_a_prompt_and_repeats_its_draw() -> None:
    """Of criteria that are met as often as not, the score is the share of the kept points, alike for equal answers."""
    names = [f"c{number}" for number in range(8)]
    data = {"rubric": [*names, {"criterion": "fault", "points": -1}]}
    asked: list[tuple[str, str]] = []

    def judge(messages: Messages, response: str, criterion: Criterion) -> bool:
        asked.append((messages[-1].content, criterion.text))
        return criterion.text in response.split()

    reward = RubricReward(judge, at_once=1, dropout=0.5)
    kept_shares = []
    for number in range(60):
        prompts = [Prompt(str(number), user(str(number)), data=data)] * 2
        completions = Completions(prompts, ["c0 c1 c2 c3", "c0 c1 c2 c3 c4 c5 c6 c7"])
        asked.clear()
        first, second = reward(completions)
        kept = {criterion for _, criterion in asked}
        assert len(asked) == 2 * len(kept)
        good = kept - {"fault"}
        assert second == 1.0
        assert first == pytest.approx(len(good & set(names[:4])) / len(good))
        assert reward(completions) == [first, second]
        kept_shares.append(len(kept) / 9)
    assert 0.45 < sum(kept_shares) / 60 < 0.56  # 1/2, and a little more since one criterion always stays
    with pytest.raises(TutelageError, match="dropout"):
        RubricReward(judge, dropout=1.0)


def test_trainers_of_single_completions_take_no_dropout(tmp_path: Path) -> None:
    """Their completions of a prompt would be judged by different criteria."""
    plain = settings(tmp_path, 'by = "rubric"\n')
    refuse_groups([f"judge:{plain}"])
    dropping = settings(tmp_path, 'by = "rubric"\ndropout = 0.5\n')
    with pytest.raises(TutelageError, match="dropout"):
        refuse_groups([f"judge:{dropping}"])


def test_a_rubric_of_one_good_criterion_keeps_it() -> None:
    rubric = (Criterion("good", 1.0), Criterion("bad", -1.0))
    drawn = [some_criteria(rubric, 0.9, Random(seed)) for seed in range(200)]
    assert all(rubric[0] in kept for kept in drawn)
    assert 0.05 < sum(len(kept) == 2 for kept in drawn) / 200 < 0.16
