"""A rubric of the world and judges of known errors; what the experiment says follows from its numbers."""

from random import Random
from statistics import NormalDist

import numpy as np
import pytest

from tutelage.data.records import user
from tutelage.data.rubrics import rubric_score
from tutelage.data.worlds.styles import STYLES, compose
from tutelage.data.worlds.topics import topics
from tutelage.demo.lab.rubrics import RUBRIC, NoisyJudge, TrueJudge, raw_errors, rubric_reward
from tutelage.demo.lab.rubrics_page import WAYS, RubricRun, Way, difference, findings
from tutelage.rewards.reward import Completion
from tutelage.rewards.scores import scores_of

QUESTION = "What is gravity?"


def answers(count: int) -> list[str]:
    """Answers about gravity in all styles."""
    rng, topic = Random(0), next(topic for topic in topics() if topic.name == "gravity")
    return [compose(topic, rng.choice(STYLES), rng) for _ in range(count)]


def completion(text: str) -> Completion:
    return Completion("p", user(QUESTION), text)


def test_the_criteria_are_decided_by_the_words() -> None:
    judge = TrueJudge()
    met = {
        criterion.text: judge(user(QUESTION), "Gravity pulls you down. Gravity pulls you down. Gravity", criterion)
        for criterion in RUBRIC
    }
    assert met["Stays on the topic"]
    assert met["Repeats itself"]
    assert not met["Asks the child one question"]
    assert not met["Has 35 to 60 words"]
    excellent, rng = next(style for style in STYLES if style.name == "excellent"), Random(1)
    topic = next(topic for topic in topics() if topic.name == "gravity")
    scores = scores_of(rubric_reward(judge), [completion(compose(topic, excellent, rng)) for _ in range(30)])
    others = scores_of(rubric_reward(judge), [completion(text) for text in answers(60)])
    assert scores.mean() > others.mean() + 0.3
    verdicts = [judge(user(QUESTION), "Gravity", criterion) for criterion in RUBRIC]
    assert scores_of(rubric_reward(judge), [completion("Gravity")]).item() == pytest.approx(
        rubric_score(RUBRIC, verdicts)
    )


@pytest.mark.parametrize("noise", [0.7, 1.0, 1.5])
def test_a_judge_errs_as_often_as_its_noise_says_and_always_alike(noise: float) -> None:
    """Errors are sums over words, so about normal: the share of wrong verdicts is Φ(−1/noise)."""
    texts, truth = answers(300), TrueJudge()
    wrong = []
    for seed in range(4):
        errors = np.stack([raw_errors(seed, text) for text in texts])
        mean, std = tuple(errors.mean(0).tolist()), tuple(errors.std(0).tolist())
        judge, again = (NoisyJudge(seed, noise, mean, std) for _ in range(2))
        for text in texts:
            for criterion in RUBRIC:
                said = judge(user(QUESTION), text, criterion)
                assert said == again(user(QUESTION), text, criterion)
                wrong.append(said != truth(user(QUESTION), text, criterion))
    assert np.mean(wrong) == pytest.approx(NormalDist().cdf(-1 / noise), abs=0.03)


def test_a_judge_without_noise_says_the_truth_and_judges_differ() -> None:
    texts, zeros, ones = answers(20), (0.0,) * len(RUBRIC), (1.0,) * len(RUBRIC)
    judge, truth = NoisyJudge(0, 0.0, zeros, ones), TrueJudge()
    for text in texts:
        for criterion in RUBRIC:
            assert judge(user(QUESTION), text, criterion) == truth(user(QUESTION), text, criterion)
    first, second = (np.concatenate([raw_errors(seed, text) for text in texts]) for seed in (0, 1))
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.25


STEPS = 60


def run(way: Way, seed: int, gold: float, *, top: float = 0.6) -> RubricRun:
    """A run whose gold rises from 0.4 to `top` in the first half, and ends at `gold`."""
    noise = np.random.default_rng(seed).normal(scale=0.01, size=STEPS)
    path = np.concatenate([np.linspace(0.4, top, STEPS // 2), np.linspace(top, gold, STEPS // 2)]) + noise
    rising = tuple(np.linspace(0.4, 0.9, STEPS).tolist())
    return RubricRun(
        way, seed, rising, tuple(path.tolist()), rising, {"gold": gold, "proxy": 0.9, "kl": 9.0, "length": 40.0}
    )


def test_a_fall_of_gold_and_what_the_remedies_change_are_told_with_their_numbers() -> None:
    ends: dict[Way, float] = {"judge": 0.2, "dropout": 0.21, "ensemble": 0.55, "gold": 0.9}
    runs = [run(way, seed, ends[way] + 0.01 * seed, top=max(0.6, ends[way])) for seed in range(3) for way in WAYS]
    curve, dropout, ensemble, true = findings(runs)
    assert "rose from 0.40 to 0.60" in curve or "rose from 0.40 to 0.59" in curve
    assert "beyond chance in 3 of 3 seeds" in curve
    assert "more than one judge (+0.35" in ensemble
    assert "+0.01" in dropout
    assert "0.91" in true
    gain = difference(
        [each for each in runs if each.way == "ensemble"], [each for each in runs if each.way == "judge"], "gold"
    )
    assert gain.value == pytest.approx(0.35)


def test_gold_that_does_not_fall_is_not_called_over_optimised() -> None:
    runs = [run(way, seed, 0.6) for seed in range(3) for way in WAYS]
    assert "beyond chance in no seed" in " ".join(findings(runs)[0].split())
    mixed = [run(way, seed, (0.5, 0.6, 0.7)[seed] if way == "dropout" else 0.6) for seed in range(3) for way in WAYS]
    assert "cannot be told from one judge" in findings(mixed)[1]
