"""The quality of a reward model: planted accuracies, ties, soft labels, and calibration that knows right from wrong."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.stats.agreement import pair_agreement
from tutelage.stats.reward_quality import (
    JudgedPair,
    ScoredRow,
    against_votes,
    area_under_curve,
    benchmark_score,
    best_of_score,
    by_strength,
    length_baseline,
    log_odds_weight,
    measure_trust,
    position_bias,
    reward_quality,
    step_quality,
    ties_score,
)
from tutelage.stats.vote_codes import Votes


def test_steps_by_hand():
    """The first completion is found wrong at its second step, as it is; the second one step late; the third is right
    throughout; the others leave their first wrong step open, by a step that is not rated, or even."""
    scores = [[1.0, -1.0, 2.0], [1.0, 0.5, -1.0], [3.0, 1.0], [-2.0], [-1.0, 2.0]]
    labels = [[1.0, 0.0, 1.0], [0.9, 0.2, 0.1], [1.0, 0.8], [None, 0.0], [0.5, 1.0]]
    found = step_quality(scores, labels, ["a", "a", "b", "c", "d"])
    assert found["n"] == 10
    assert found["accuracy"] == pytest.approx(9 / 10)
    assert (found["first_wrong"], found["first_wrong_n"]) == (pytest.approx(2 / 3), 3)
    predicted = 1 / (1 + np.exp(-np.array([score for row in scores for score in row])))
    rated = [label for row in labels for label in row if label is not None]
    assert found["brier"] == pytest.approx(float(((predicted - rated) ** 2).mean()))
    open_ = step_quality([[1.0]], [[0.5]], ["a"])
    assert (open_["n"], open_["accuracy"], open_["first_wrong"], open_["auc"]) == (0, None, None, None)


def test_the_area_under_the_curve_is_the_share_of_pairs_in_order():
    scores, labels = [0.3, 0.3, -1.0, 2.0, 0.1], [1.0, 0.0, 0.25, 0.8, 0.0]
    won = total = 0.0
    for i, (score, good) in enumerate(zip(scores, labels, strict=True)):
        for j, (other, wrong) in enumerate(zip(scores, labels, strict=True)):
            weight = good * (1 - wrong) * (i != j)
            total += weight
            won += weight * ((score > other) + (score == other) / 2)
    assert area_under_curve(scores, labels) == pytest.approx(won / total)
    assert area_under_curve([1.0, 2.0, 3.0], [0.0, 1.0, 1.0]) == 1.0
    assert area_under_curve([1.0, 1.0], [0.0, 1.0]) == 0.5
    assert area_under_curve([1.0, 2.0], [1.0, 1.0]) is None


def test_counts_by_hand():
    """Right, wrong, a tie of the scores (half), a label of one half (left out), right about a label below one half."""
    found = reward_quality([1.0, -2.0, 0.0, 3.0, -1.0], [1.0, 1.0, 1.0, 0.5, 0.2], ["a", "b", "c", "d", "e"])
    assert found["n"] == 4
    assert found["accuracy"] == pytest.approx((1 + 0 + 0.5 + 1) / 4)
    low, high = found["accuracy_interval"]
    assert low <= found["accuracy"] <= high


def planted(count, scale=1.0, seed=0):
    """Differences d whose pair is labelled by votes ~ σ(d), as a perfect model would see them times `scale`."""
    generator = np.random.default_rng(seed)
    d = generator.normal(0, 1.5, count)
    chosen_is_first = generator.random(count) < 1 / (1 + np.exp(-d))
    return np.where(chosen_is_first, d, -d) * scale, [str(i) for i in range(count)]


def test_a_model_that_knows_the_votes_is_calibrated_and_one_that_exaggerates_is_not():
    honest, prompts = planted(20_000)
    loud, _ = planted(20_000, scale=3.0)
    ones = np.ones(20_000)
    good, bad = reward_quality(honest, ones, prompts), reward_quality(loud, ones, prompts)
    assert good["ece"] < 0.02
    assert bad["ece"] > 0.1
    assert good["brier"] < bad["brier"]
    assert good["accuracy"] == bad["accuracy"], "the order of the scores is the same"
    for bin in good["calibration"]:
        assert bin["low"] <= bin["predicted"] <= bin["high"]
        if bin["n"] > 500:
            assert bin["observed"] == pytest.approx(bin["predicted"], abs=0.05)
    assert sum(bin["n"] for bin in good["calibration"]) == 20_000


def test_the_accuracy_of_a_perfect_model_is_what_the_votes_allow():
    """E[max(p, 1 − p)] with p = σ(d), by quadrature."""
    differences, prompts = planted(20_000, seed=4)
    grid = np.linspace(-12, 12, 20_001)
    density = np.exp(-((grid / 1.5) ** 2) / 2)
    p = 1 / (1 + np.exp(-grid))
    ceiling = float((density * np.maximum(p, 1 - p)).sum() / density.sum())
    assert reward_quality(differences, np.ones(20_000), prompts)["accuracy"] == pytest.approx(ceiling, abs=0.01)


def test_pairs_of_one_prompt_are_one_piece_of_evidence():
    differences, prompts = planted(200)

    def width(found):
        return found["accuracy_interval"][1] - found["accuracy_interval"][0]

    once = width(reward_quality(differences, np.ones(200), prompts))
    copied = width(reward_quality(np.repeat(differences, 8), np.ones(1600), np.repeat(prompts, 8).tolist()))
    assert copied == pytest.approx(once, rel=0.15)


@pytest.mark.parametrize("taste", [1, -1])
def test_the_lengths_alone_are_as_right_as_the_share_of_pairs_that_follow_them(taste):
    """Four pairs by hand: right, wrong, of one length (half), labelled one half (left out). The pairs that are learnt
    from say which way, whatever the others show."""
    found = length_baseline(
        [3 * taste, -2 * taste, 0, 5],
        [1.0, 1.0, 1.0, 0.5],
        ["a", "b", "c", "d"],
        trained=[4 * taste, taste, -taste],
        p_trained=[1.0, 0.8, 1.0],
    )
    assert found["prefers"] == ("longer" if taste > 0 else "shorter")
    assert found["accuracy"] == pytest.approx((1 + 0 + 0.5) / 3)
    low, high = found["accuracy_interval"]
    assert low <= found["accuracy"] <= high


def test_a_label_below_one_half_turns_a_pair_round():
    found = length_baseline([2, -2], [0.1, 0.1], ["a", "b"], trained=[2, 2, 2], p_trained=[0.2, 0.0, 0.9])
    assert found["prefers"] == "shorter"
    assert found["accuracy"] == pytest.approx(1 / 2)


def test_votes_for_the_higher_score_are_counted() -> None:
    """Right on 3 of 4 votes, wrong on 2 of 3, and a draw of scores that splits 2."""
    found = against_votes([1.0, -0.5, 0.0], [3, 2, 2], [1, 1, 0], ["p", "q", "q"])
    assert found["n"] == 9
    assert found["accuracy"] == pytest.approx((3 + 1 + 1) / 9)
    low, high = found["interval"]
    assert low <= found["accuracy"] <= high


def test_strengths_are_rounded_and_ties_left_out() -> None:
    found = by_strength(
        [1.0, -1.0, 2.0, 0.0, 5.0, 1.0], [0.9, 0.8, 0.9, 0.7, 0.5, 0.2], [0.0, 1.49, 1.5, 2.4, 3.0, 2.5], list("abcdef")
    )
    assert [(each["strength"], each["n"], each["accuracy"]) for each in found] == [
        ("slightly", 2, 0.5),
        ("better", 2, 0.75),
        ("much better", 1, 0.0),
    ]


def test_no_votes_say_nothing() -> None:
    assert against_votes([1.0], [0], [0], ["p"]) == {"n": 0, "accuracy": None, "interval": [None, None]}
    assert by_strength([], [], [], []) == []


def simulated(scale: float, pairs: int, raters: int = 3, noise: float = 0.0, seed: int = 0) -> list[JudgedPair]:
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
    votes = Votes.of([f"{i}" for i, _ in rows], [f"r{n}" for n in range(len(rows))], [s for _, s in rows], ("a", "b"))
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


# Benchmarks: against the reference formula on every small case -------------------------------------------------------


def reference(rows: list[ScoredRow]) -> float:
    """The ties score as `process_single_model` of allenai/reward-bench computes it, one prompt after the other."""
    ref, tied = {}, {}
    for row in rows:
        assert row.tie is not None
        right, wrong = row.scores[: row.correct], row.scores[row.correct :]
        gap = min(right) - max(wrong)
        {"ref": ref, "tied": tied}[row.tie[0]][row.tie[1]] = (gap > 0, max(right) - min(right), gap)
    both = set(ref) & set(tied)
    terms = []
    for prompt in both:
        spread, gap, smaller = tied[prompt][1], tied[prompt][2], min(ref[prompt][2], tied[prompt][2])
        if spread == 0:
            margin = 0.0 if smaller == 0 else math.copysign(1.0, smaller)
        else:
            margin = math.tanh(smaller / spread - 1)
        terms.append(0.2 * (gap > spread) + 0.2 * (smaller > spread) + 0.01 * margin)
    accuracy = [sum(each[0] for each in of.values()) / len(of) for of in (ref, tied)]
    return 0.3 * sum(accuracy) + sum(terms) / len(both)


def test_the_ties_score_is_that_of_the_reference_on_all_small_cases() -> None:
    """Every score 0, 1 or 2 of a reference with one wrong and a tied prompt with two right and one wrong completion."""
    offenders = []
    for values in itertools.product((0.0, 1.0, 2.0), repeat=5):
        rows = [ScoredRow("Ties", values[:2], 1, ("ref", 7)), ScoredRow("Ties", values[2:], 2, ("tied", 7))]
        if not math.isclose(ties_score(rows), reference(rows), abs_tol=1e-12):
            offenders.append(values)
    assert offenders == []


@given(st.lists(st.lists(st.integers(-3, 3), min_size=7, max_size=7), min_size=1, max_size=5), st.randoms())
def test_the_ties_score_of_several_prompts_in_any_order(values: list[list[int]], dice: object) -> None:
    rows = []
    for prompt, own in enumerate(values):
        scores = tuple(map(float, own))
        rows.append(ScoredRow("Ties", scores[:3], 1, ("ref", prompt)))
        rows.append(ScoredRow("Ties", scores[3:], 2, ("tied", prompt)))
    rows.append(ScoredRow("Ties", (1.0, 0.0), 1, ("ref", 99)))  # without a tied prompt: only its accuracy counts
    assert ties_score(rows) == pytest.approx(reference(rows))
    assert ties_score(rows[::-1]) == pytest.approx(ties_score(rows))


def test_a_perfect_reward_and_a_constant_one() -> None:
    perfect = [ScoredRow("Ties", (1.0, 0.0), 1, ("ref", 0)), ScoredRow("Ties", (1.0, 1.0, 0.0), 2, ("tied", 0))]
    constant = [ScoredRow("Ties", (1.0, 1.0), 1, ("ref", 0)), ScoredRow("Ties", (1.0,) * 3, 2, ("tied", 0))]
    assert ties_score(perfect) == pytest.approx(1.01)
    assert ties_score(constant) == 0.0


@for_each([((3.0, 1.0, 2.0, 0.0), 1.0), ((1.0, 1.0, 0.0, 0.0), 0.5), ((1.0,) * 4, 0.25), ((0.0, 1.0, 1.0, 0.0), 0.0)])
def test_the_best_of_four_shares_a_tie(scores: tuple[float, ...], credit: float) -> None:
    assert best_of_score(ScoredRow("Math", scores, 1)) == credit


def test_a_reward_at_random_is_right_in_a_quarter() -> None:
    dice = np.random.default_rng(0)
    rows = [ScoredRow("Math", tuple(dice.normal(size=4)), 1) for _ in range(2000)]
    (subset,) = benchmark_score(rows).subsets
    low, high = subset.interval
    assert low is not None
    assert high is not None
    assert low < 0.25 < high
    assert high - low < 0.05


def test_subsets_count_alike_whatever_their_size() -> None:
    rows = [ScoredRow("Math", (1.0, 0.0), 1)] * 3 + [ScoredRow("Focus", (0.0, 1.0), 1)]
    score = benchmark_score(rows)
    assert [(one.subset, one.score, one.n) for one in score.subsets] == [("Math", 1.0, 3), ("Focus", 0.0, 1)]
    assert score.overall == 0.5


def test_nothing_to_score() -> None:
    with pytest.raises(TutelageError, match="at least one row"):
        benchmark_score([])
    with pytest.raises(TutelageError, match="ref:N"):
        benchmark_score([ScoredRow("Ties", (1.0, 0.0), 1, ("ref", 0))])
