"""What an experiment says follows from its numbers: made-up runs with a known story."""

from pathlib import Path

import numpy as np
import pytest

from tutelage.demo.lab import advantages_page, estimators_page, kl, overoptimisation_page
from tutelage.demo.lab.experiment import CellResult
from tutelage.demo.lab.measurements import Measurement

STEPS = 40


def run(
    name: str, title: str, *, score: float, gold: float, distance: float, path: list[float] | None = None
) -> CellResult:
    """A finished run with these figures; gold goes along `path`, the score up."""
    figures = {"score": score, "gold": gold, "kl": distance, "length": 40.0, "ended": 1.0}
    figures |= {f"{key}_error": 0.05 for key in ("score", "gold", "kl", "length")}
    figures |= {"score_std": 1.0, "gold_std": 1.0}
    worth = path or list(np.linspace(1.0, gold, STEPS))
    steps = [
        {
            "step": i + 1, "seconds": float(i + 1), "score/mean": score * i / STEPS, "score/std": 1.0,
            "gold/mean": worth[i], "gold/std": 1.0, "kl/reference": distance * i / STEPS, "kl/std": 1.0,
            "length/mean": 40.0,
        }
        for i in range(STEPS)
    ]  # fmt: skip
    return CellResult(Path(name), title, figures, steps if name != kl.SFT else [], [])


SFT = run(kl.SFT, "SFT", score=0.0, gold=1.0, distance=0.0)
STILL = run("beta-2", "β = 2", score=0.05, gold=1.02, distance=0.1)
GOOD = run("beta-0.1", "β = 0.1", score=1.0, gold=3.0, distance=5.0)


def told(free: CellResult, *others: CellResult) -> str:
    return " ".join(kl.findings(SFT, [free, *others], run(kl.ALONE, "none", score=1.0, gold=1.0, distance=9.0)))


def test_a_score_that_rises_while_gold_is_lost_is_called_hacking_with_its_numbers() -> None:
    fallen = [*np.linspace(1.0, 2.5, 15), *np.linspace(2.5, -2.0, STEPS - 15)]
    said = told(run(kl.FREE, "β = 0", score=2.0, gold=-2.0, distance=300.0, path=fallen), GOOD, STILL)
    assert "Reward hacking: β = 0 moved 300 nats" in said
    assert "worth 5 less gold" in said
    assert "At β = 0 gold peaked near step 1" in said
    assert "Most gold was reached at β = 0.1" in said


def test_a_free_policy_that_is_best_is_not_called_hacking() -> None:
    said = told(run(kl.FREE, "β = 0", score=2.0, gold=4.0, distance=8.0), GOOD, STILL)
    assert "Reward hacking" not in said
    assert "has the most gold of all" in said
    assert "peaked" not in said


def test_a_difference_within_chance_is_not_called_hacking() -> None:
    said = told(run(kl.FREE, "β = 0", score=1.5, gold=2.95, distance=8.0), GOOD, STILL)
    assert "No clear reward hacking" in said


def test_a_policy_that_cannot_move_is_told_from_one_that_can() -> None:
    free = run(kl.FREE, "β = 0", score=2.0, gold=2.0, distance=8.0)
    assert "cannot move" in told(free, GOOD, STILL)
    assert "cannot move" not in told(free, GOOD, run("beta-2", "β = 2", score=0.8, gold=2.0, distance=2.0))


def test_the_noise_of_known_gradients_is_told() -> None:
    """Gradients of one mean: REINFORCE with nine times the variance of the value baseline, and one that is biased."""
    rng = np.random.default_rng(0)
    true = np.zeros(2000)
    true[0] = 1.0
    noise = rng.normal(size=(30, 2000)) / np.sqrt(2000)
    sketches = {"REINFORCE": true + 3 * noise, "value/trained": true + noise, "GAE 0/trained": 0.5 * true + 0.1 * noise}
    plain, value, trusting = advantages_page.results(sketches, "REINFORCE", "value/trained", answers=64)
    assert plain.noise.value == pytest.approx(1.0)
    assert value.noise.value == pytest.approx(1 / 9, rel=1e-6), "the noise is the same, three times as large"
    assert trusting.noise.value == pytest.approx(0.01 / 9, rel=1e-6)
    assert value.need.value == pytest.approx(64.0, rel=0.1)
    assert value.bias.value == 0.0
    assert advantages_page.share(trusting.bias).value == pytest.approx(0.5, rel=0.1)
    assert trusting.angle.value == pytest.approx(1.0, abs=0.05)
    assert advantages_page.share(Measurement(-0.1, 0.2)).value == 0.0


def test_estimates_are_told_in_units_of_the_exact_one() -> None:
    rng = np.random.default_rng(0)
    exact = rng.uniform(1.0, 3.0, size=4000)
    rows = [
        {"exact": e, "k1": e + n, "k2": 1.5 * e, "k3": e, "abs": 4 * e}
        for e, n in zip(exact, rng.normal(size=4000), strict=True)
    ]
    found = {one.kind: one for one in estimators_page.kl_estimates(CellResult(Path("at-1"), "", {}, rows, []))}
    assert abs(found["k1"].mean.value - 1) < 4 * found["k1"].mean.error
    assert found["k1"].mean.error == pytest.approx(1 / 2.0 / np.sqrt(4000), rel=0.1)
    assert (found["k2"].mean.value, found["k3"].mean.value, found["abs"].mean.value) == pytest.approx((1.5, 1.0, 4.0))
    assert found["k3"].mean.error == pytest.approx(0.0, abs=1e-12)
    assert found["k3"].spread == pytest.approx(np.std(exact) / np.mean(exact), rel=1e-3)


def test_a_gradient_of_half_the_length_and_one_of_no_direction_are_told_apart() -> None:
    rng = np.random.default_rng(1)
    true = np.zeros(500)
    true[0] = 1.0

    def noise(size: float) -> np.ndarray:
        return size * rng.normal(size=(40, 500)) / np.sqrt(500)

    sketches = {"truth": true + noise(0.5), "half": 0.5 * true + noise(0.5), "k1 in the loss": noise(3.0)}
    half, nothing = estimators_page.penalty_gradients(sketches)
    assert abs(half.length.value - 0.5) < 4 * half.length.error
    assert abs(half.angle.value - 1.0) < 4 * half.angle.error + 0.02
    assert abs(nothing.length.value) < 4 * nothing.length.error
    assert nothing.noise.value == pytest.approx(36.0, rel=0.2)
    assert "pulls nowhere" in estimators_page._zero(nothing)


def test_a_way_knows_its_top_its_fall_and_its_curve() -> None:
    distance = tuple(np.linspace(0.0, 4.0, 30))
    gold = tuple(d * (1.0 - 0.2 * d) for d in distance)
    way = overoptimisation_page.GoldPath("w", "best_of_n", distance, distance, gold)
    assert way.top == pytest.approx((2.5, 1.25), abs=0.02)
    assert way.fell == pytest.approx(1.25 - 4.0 * 0.2, abs=0.02)
    found = way.fitted()
    assert found is not None
    assert (found.alpha, found.beta) == pytest.approx((1.0, 0.2))


def test_a_gradient_without_a_mean_direction_is_said_to_be_lost() -> None:
    nowhere = Measurement(float("nan"), float("nan"))
    good = estimators_page.PenaltyGradient(
        "k1 in the reward", Measurement(0.9, 0.01), Measurement(1.0, 0.1), Measurement(1.0, 0.1)
    )
    lost = estimators_page.PenaltyGradient("k1 in the loss", nowhere, Measurement(0.0, 0.1), Measurement(1.0, 0.1))
    said = estimators_page._as_gradients({pull.name: pull for pull in (good, lost)})
    assert "k1 in the reward 0.90 ± 0.02" in said
    assert said.endswith("Lost in their noise: k1 in the loss.")
