"""Agreement with votes, leanings, and the weight of a reward, against closed forms and simulated raters."""

from dataclasses import replace

import numpy as np
import pytest

from tutelage.stats.agreement import pair_agreement
from tutelage.stats.vote_trust import JudgedPair, log_odds_weight, measure_trust, position_bias
from tutelage.stats.votes import Votes


def simulated(
    scale: float, pairs: int, raters: int = 3, noise: float = 0.0, seed: int = 0
) -> list[JudgedPair]:
    """Raters who prefer by log-odds `scale` times the quality; the reward is the quality with noise."""
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=pairs)
    votes = rng.binomial(raters, 1 / (1 + np.exp(-scale * quality)))
    score = quality + noise * rng.normal(size=pairs)
    length = rng.integers(-50, 50, size=pairs)
    rows = zip(score.tolist(), length.tolist(), votes.tolist(), strict=True)
    return [JudgedPair(f"p{i // 2}", d, longer, v, raters - v) for i, (d, longer, v) in enumerate(rows)]


def turned(pairs: list[JudgedPair]) -> list[JudgedPair]:
    return [JudgedPair(p.prompt, -p.difference, -p.longer, p.for_second, p.for_first) for p in pairs]


def test_agreement_is_the_share_of_votes_on_the_side_of_the_reward() -> None:
    pairs = [
        JudgedPair("a", 1.0, 5, 3, 1),  # 3/4
        JudgedPair("b", -0.1, 5, 2, 0),  # 0
        JudgedPair("c", 0.0, 5, 1, 2),  # 1/2
        JudgedPair("d", 2.0, 5, 0, 0),  # no vote
    ]
    found = measure_trust(pairs)
    assert (found.pairs, found.votes) == (3, 9)
    assert found.agreement.value == pytest.approx((0.75 + 0 + 0.5) / 3)


def test_the_raters_agreement_is_that_of_the_statistics() -> None:
    pairs = simulated(1.5, 200, raters=4)
    rows = [(i, side) for i, p in enumerate(pairs) for side in "a" * p.for_first + "b" * p.for_second]
    votes = Votes.of(
        [f"{i}" for i, _ in rows], [f"r{n}" for n in range(len(rows))], [s for _, s in rows], ("a", "b")
    )
    assert measure_trust(pairs).raters.value == pytest.approx(pair_agreement(votes).value)


def test_which_answer_comes_first_changes_nothing() -> None:
    pairs = simulated(1.0, 100, noise=0.5)
    one, other = measure_trust(pairs), measure_trust(turned(pairs))
    assert one.agreement.value == pytest.approx(other.agreement.value)
    assert one.raters.value == pytest.approx(other.raters.value)
    assert one.length.value == pytest.approx(other.length.value)
    assert one.weight == pytest.approx(other.weight)


@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_the_weight_is_the_scale_on_which_raters_decide(scale: float) -> None:
    found = measure_trust(simulated(scale, 4000))
    assert found.weight == pytest.approx(scale, rel=0.1)
    assert not found.falls_short, "no predictor of single votes is better than the quality itself"
    pairs = simulated(scale, 400)
    halved = [replace(pair, difference=pair.difference / 2) for pair in pairs]
    assert measure_trust(halved).weight == pytest.approx(2 * measure_trust(pairs).weight, rel=1e-6)


def test_weights_at_the_edges() -> None:
    ones = np.ones(5)
    assert log_odds_weight(np.zeros(5), ones, ones) == 0.0
    assert 0 < log_odds_weight(ones, 3 * ones, 0 * ones) < 100, "finite where the reward is always right"
    assert log_odds_weight(ones, 0 * ones, 3 * ones) < 0
    assert log_odds_weight(ones, ones, ones) == pytest.approx(0.0, abs=1e-9)
    assert log_odds_weight(2 * ones, 3 * ones, ones) == pytest.approx(np.log(3) / 2, rel=1e-2)


def test_a_reward_that_guesses_falls_short_and_few_pairs_cannot_tell() -> None:
    pairs = simulated(4.0, 300, noise=1000.0)
    assert measure_trust(pairs).falls_short
    assert not measure_trust(pairs[:8]).falls_short
    alone = [JudgedPair(p.prompt, p.difference, p.longer, 1, 0) for p in pairs]
    assert measure_trust(alone).raters.value is None
    assert not measure_trust(alone).falls_short


def test_a_reward_of_length_prefers_the_longer_answer_more_than_people_do() -> None:
    pairs = [JudgedPair(p.prompt, p.longer, p.longer, p.for_first, p.for_second) for p in simulated(1.0, 400)]
    found = measure_trust(pairs).length
    assert found.value == pytest.approx(0.5, abs=0.06), "always, where the raters do half the time"
    fair = measure_trust(simulated(1.0, 400)).length
    assert fair.low is not None
    assert fair.high is not None
    assert fair.low < 0 < fair.high
    equal = [JudgedPair(p.prompt, p.difference, 0, p.for_first, p.for_second) for p in pairs]
    assert measure_trust(equal).length.value is None


def test_a_judge_that_looks_at_the_place_is_told_from_one_that_looks_at_the_text() -> None:
    prompts = [f"p{i}" for i in range(40)]
    honest, _ = position_bias([("first", "second"), ("second", "first")] * 20, prompts)
    assert honest.value == 0.5
    first, share = position_bias([("first", "first")] * 30 + [("first", "second")] * 10, prompts)
    assert (first.value, share) == (pytest.approx((30 + 5) / 40), 0.75)
    torn, none = position_bias([("tie", "tie")] * 40, prompts)
    assert (torn.value, none) == (0.5, 0.0)
