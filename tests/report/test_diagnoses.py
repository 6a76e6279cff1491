"""Diagnoses name curves that went wrong in a known way, and are silent on healthy noise."""

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from offenders import for_each

from tutelage.report import diagnoses
from tutelage.report.folders import RunContent

STEPS = 120


def run(summary: dict[str, object] | None = None, **columns: Sequence[float | None]) -> RunContent:
    """A run with the given metrics; `held_out__loss` stands for held_out/loss."""
    length = len(next(iter(columns.values()), ()))
    rows = [{name.replace("__", "/"): column[i] for name, column in columns.items()} for i in range(length)]
    return RunContent(metrics=tuple({"step": i + 1} | row for i, row in enumerate(rows)), summary=summary or {})


def noisy(curve: Callable[[float], float], noise: float, seed: int, steps: int = STEPS) -> list[float]:
    dice = random.Random(seed)
    return [curve(i / steps) + dice.gauss(0, noise) for i in range(steps)]


def saturating(t: float) -> float:
    return 2 * (1 - math.exp(-4 * t))


def humped(t: float) -> float:
    return 1.5 - 6 * (t - 0.4) ** 2


@for_each([0.0, 0.05, 0.3])
def test_healthy_noise_raises_no_alarm(noise: float) -> None:
    alarms = 0
    for seed in range(200):
        healthy = run(
            gold__mean=noisy(saturating, noise, seed),
            score__mean=noisy(lambda t: saturating(t) + t, noise, seed + 1000),
        )
        alarms += bool(diagnoses.hacking(healthy))
    assert alarms <= 2


@for_each([0.0, 0.1, 0.3])
def test_gold_that_falls_under_a_rising_score_is_found_at_its_peak(noise: float) -> None:
    for seed in range(50):
        hacked = run(gold__mean=noisy(humped, noise, seed), score__mean=noisy(lambda t: 3 * t, noise, seed + 1000))
        told = diagnoses.hacking(hacked)
        step = re.search(r"near step (\d+)", told)
        assert step, told
        assert abs(int(step[1]) - 0.4 * STEPS) <= 0.2 * STEPS


def test_gold_and_score_that_fall_together_are_not_hacking() -> None:
    assert not diagnoses.hacking(run(gold__mean=noisy(humped, 0.05, 1), score__mean=noisy(humped, 0.05, 2)))


def moving(kl: float, steps: int = 15, planned: int = 15, warmup: int = 0, **more: Sequence[float]) -> RunContent:
    """A run whose KL ends at `kl`, with the settings of its rate and its steps."""
    plain = run(kl__reference_k3=[kl] * steps, **more)
    rows = tuple(row | ({"policy/objective": 0.0} if row["step"] > warmup else {}) for row in plain.metrics)
    return replace(plain, metrics=rows, config={"settings": {"optimiser": {"lr": 3e-6}, "steps": planned}})


def test_a_policy_that_hardly_moves_is_found_and_told_a_rate() -> None:
    told = diagnoses.distance(moving(0.005))
    assert "After 15 steps" in told
    assert "0.005 nats" in told
    assert "--optimiser.lr, for example to 3e-05 (it is 3e-06)" in told
    assert not diagnoses.distance(moving(0.06))
    assert not diagnoses.distance(moving(0.005, planned=100))
    assert not diagnoses.distance(moving(0.0, warmup=10)), "the critic alone was trained"
    assert not diagnoses.distance(moving(0.0, groups__dead=[1.0] * 15)), "for another reason"
    assert not diagnoses.distance(moving(0.0, step__share=[1.0] * 15)), "by a natural step"


@for_each([(10.0, 0.0), (0.01, -5.0), (1.0, 1000.0)])
def test_units_do_not_matter(scale: float, shift: float) -> None:
    for curve in (humped, saturating):
        gold = noisy(curve, 0.1, 3)
        score = noisy(lambda t: 3 * t, 0.1, 4)
        plain = diagnoses.hacking(run(gold__mean=gold, score__mean=score))
        other = diagnoses.hacking(run(gold__mean=[scale * g + shift for g in gold], score__mean=score))
        assert bool(plain) == bool(other)


def test_overfitting_is_found_at_the_lowest_held_out_loss() -> None:
    told = diagnoses.overfitting(run(held_out__loss=[0.69, 0.6, 0.55, 0.57, 0.61]))
    assert "step 3 (0.55)" in told
    assert "0.06" in told
    assert not diagnoses.overfitting(run(held_out__loss=[0.69, 0.6, 0.55, 0.551]))
    assert not diagnoses.overfitting(run(held_out__loss=[0.55, 0.6]))


@for_each(
    [
        (diagnoses.collapse, "entropy", lambda t: 2 * math.exp(-5 * t), lambda t: 2 - t),
        (diagnoses.drifting_length, "length__mean", lambda t: 40 + 60 * t, lambda t: 40 + 15 * t),
        (diagnoses.drifting_length, "length__mean", lambda t: 40 - 30 * t, lambda t: 40 - 10 * t),
        (diagnoses.unfinished, "ended", lambda t: 1 - 0.5 * t, lambda t: 0.5 + 0.5 * t),
        (diagnoses.clipping, "clip_fraction", lambda t: t, lambda t: 0.2),
        (diagnoses.blind_critic, "value__explained_variance", lambda t: -0.2, lambda t: t - 0.3),
        (diagnoses.diverging_values, "value__loss", lambda t: 0.2 + 4 * t * t, lambda t: 0.2 + 0.3 * t),
        (diagnoses.dead_groups, "groups__dead", lambda t: t, lambda t: 0.4),
    ]
)
def test_each_bad_sign_is_seen_and_only_then(
    look: Callable[[RunContent], str], metric: str, bad: Callable[[float], float], good: Callable[[float], float]
) -> None:
    assert look(run(**{metric: noisy(bad, 0.01, 1)}))
    assert not look(run(**{metric: noisy(good, 0.01, 1)}))
    assert not look(run())
    assert not look(run(**{metric: noisy(bad, 0.01, 1, steps=3)})), "three steps are too few to judge"


def test_scores_without_a_spread_are_constant_whatever_their_size() -> None:
    for size in (0.0, 0.3, 1e4):
        told = run(score__mean=[size] * 20, score__std=[size * 1e-8] * 20)
        assert "constant reward" in diagnoses.constant_score(told)
        assert not diagnoses.constant_score(run(score__mean=[size] * 20, score__std=[0.01 + size / 100] * 20))


def test_a_short_run_in_which_nothing_could_be_learnt_is_told_of() -> None:
    """Three steps are enough where the fault was whole in each of them: there is no trend to guess."""
    for steps, enough in ((5, True), (3, True), (2, False)):
        assert bool(diagnoses.dead_groups(run(groups__dead=[1.0] * steps))) == enough
        flat = run(score__mean=[1.0] * steps, score__std=[0.0] * steps)
        assert bool(diagnoses.constant_score(flat)) == enough
    assert not diagnoses.dead_groups(run(groups__dead=[1.0, 0.9, 1.0, 1.0, 1.0]))
    assert not diagnoses.constant_score(run(score__mean=[1.0] * 5, score__std=[0.0, 0.0, 0.1, 0.0, 0.0]))


def test_a_leap_of_the_kl_is_named_by_its_step() -> None:
    assert "from 4 to 20 nats at step 3" in diagnoses.leaping(run(kl__reference=[1.0, 4.0, 20.0, 21.0]))
    assert not diagnoses.leaping(run(kl__reference=[0.0, 4.0, 8.0, 12.0, 16.0]))


def test_values_that_are_not_finite_are_named_and_left_out() -> None:
    hurt = run(loss=[1.0, None, math.inf, 0.5])
    assert diagnoses.broken(hurt, "loss") == "loss was not a finite number at step 2."
    assert diagnoses.finite(hurt, "loss") == ((1, 4), (1.0, 0.5))
    assert not diagnoses.broken(hurt, "entropy")


def test_accuracy_between_guessing_and_the_ceiling_is_believed() -> None:
    def told(accuracy: float, interval: list[float]) -> str:
        return diagnoses.doubtful_accuracy(run({"accuracy": accuracy, "accuracy_interval": interval, "ceiling": 0.75}))

    assert "above chance" in told(0.53, [0.49, 0.57])
    assert not told(0.7, [0.67, 0.73])
    assert not told(0.77, [0.74, 0.8])
    assert "leaked" in told(0.81, [0.78, 0.84])
    assert not diagnoses.doubtful_accuracy(run())


def test_of_several_tools_the_one_that_fails_most_is_named() -> None:
    calls = {"tools__calls": [30.0] * 5, "tools__far__calls": [20.0] * 5, "tools__near__calls": [10.0] * 5}
    failed = {"tools__far__failed": [0.0, 20.0, 5.0, 5.0, 5.0], "tools__near__failed": [0.0, 0.0, 2.0, 2.0, 2.0]}
    told = diagnoses.failing_tool(run(**calls, **failed))
    assert "tool far" in told
    assert "25%" in told
    assert "60 calls" in told
    assert not diagnoses.failing_tool(run(**calls, tools__far__failed=[1.0] * 5, tools__near__failed=[0.0] * 5))
    assert not diagnoses.failing_tool(run(loss=[1.0] * 5))
