"""Raters vote as their closed forms say, agree as often as people do, and their faults can be measured."""

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import combinations, product
from math import exp
from random import Random

import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.data.worlds import gold
from tutelage.data.worlds.styles import choose_style, compose
from tutelage.data.worlds.topics import topics
from tutelage.people.simulated_raters import TAU, SimulatedRater, SimulatedVote, calibrated_tau, pair_agreement, panel


@cache
def answer_pairs(n: int = 2000) -> list[tuple[float, float, int, int]]:
    """Gold and words of two answers to one prompt, drawn as the demonstrations are."""
    rng = Random(11)
    pairs = []
    for _ in range(n):
        topic = rng.choice(topics())
        left, right = (compose(topic, choose_style(rng), rng) for _ in range(2))
        first, second = gold([topic.name] * 2, [left, right])
        pairs.append((first, second, len(left.split()), len(right.split())))
    return pairs


def deltas() -> list[float]:
    return [left - right for left, right, _, _ in answer_pairs()]


FAIR = SimulatedRater("fair")


def votes(
    rater: SimulatedRater, n: int, left: float, right: float, words: tuple[int, int] = (40, 40)
) -> list[SimulatedVote]:
    rng = Random(5)
    return [rater.judge(left, right, *words, rng) for _ in range(n)]


def share(given: list[SimulatedVote], verdict: str) -> float:
    return sum(vote.verdict == verdict for vote in given) / len(given)


@for_each(
    product(
        [-2.0, 0.0, 0.7, 3.0],
        [
            FAIR,
            replace(FAIR, side_bias=0.5, lapse=0.2),
            replace(FAIR, length_bias=0.3),
            replace(FAIR, kind="careless", side_bias=-0.3),
            replace(FAIR, kind="adversarial"),
        ],
    )
)
def test_votes_come_as_often_as_the_closed_form_says(delta: float, rater: SimulatedRater) -> None:
    given = votes(rater, 4000, delta, 0.0, (50, 30))
    left, none, right = rater.probabilities(delta, 0.0, 50, 30)
    assert left + none + right == pytest.approx(1.0)
    # Four standard errors of a share over 4,000 votes are at most 0.032.
    assert share(given, "left") == pytest.approx(left, abs=0.032)
    assert share(given, "right") == pytest.approx(right, abs=0.032)


def test_with_no_ties_a_vote_is_bernoulli_of_the_logistic() -> None:
    left, _, right = SimulatedRater("fair", tau=0.5).probabilities(0.8, 0.0, 40, 40)
    assert left / (left + right) == pytest.approx(1 / (1 + exp(-1.6)), abs=0.02)


def test_ordinary_raters_agree_as_often_as_people() -> None:
    ordinary = [rater for rater in panel(0, 6) if rater.kind == "ordinary"]
    rng = Random(1)
    alike = []
    for pair in answer_pairs():
        given = [rater.judge(*pair, rng).verdict for rater in ordinary]
        decided = [verdict for verdict in given if verdict in ("left", "right")]
        alike += [one == other for one, other in combinations(decided, 2)]
    measured = sum(alike) / len(alike)
    assert 0.70 <= measured <= 0.75
    # The habits of the panel and its ties move agreement by little from the bare closed form.
    assert measured == pytest.approx(pair_agreement(deltas(), TAU), abs=0.02)


def test_calibration_finds_the_tau_of_an_agreement() -> None:
    for agreement in (0.6, 0.725, 0.9):
        assert pair_agreement(deltas(), calibrated_tau(deltas(), agreement)) == pytest.approx(agreement, abs=1e-6)
    # One difference can be solved by hand: p² + (1 - p)² = 0.68 for p = 0.8, and σ(Δ/τ) = 0.8 for τ = Δ / ln 4.
    assert calibrated_tau([2.0, -2.0], 0.68) == pytest.approx(2.0 / 1.3862943611)
    assert calibrated_tau(deltas()) == pytest.approx(TAU, rel=0.05)


def ceiling(deltas: list[float], tau: float) -> float:
    """The maximum accuracy against single votes: E[max(σ, 1 - σ)], σ = σ(Δ / τ)."""
    return sum(1 / (1 + exp(-abs(delta) / tau)) for delta in deltas) / len(deltas)


def test_the_ceiling_is_what_an_oracle_scores_against_single_votes() -> None:
    rng = Random(2)
    rater = SimulatedRater("fair")
    hits, decided = 0, 0
    for left, right, *_ in answer_pairs():
        verdict = rater.judge(left, right, 40, 40, rng).verdict
        if verdict in ("left", "right"):
            decided += 1
            hits += (verdict == "left") == (left > right)
    assert hits / decided == pytest.approx(ceiling(deltas(), TAU), abs=0.03)
    assert 0.77 < ceiling(deltas(), TAU) < 0.83
    assert ceiling([0.0], 1.0) == 0.5
    assert ceiling([2.0], 1.0) == pytest.approx(1 / (1 + exp(-2)))


def test_side_bias_shows_between_equal_answers() -> None:
    given = votes(replace(FAIR, side_bias=0.6), 4000, 1.0, 1.0)
    assert share(given, "left") - share(given, "right") > 0.2
    fair = votes(FAIR, 4000, 1.0, 1.0)
    assert abs(share(fair, "left") - share(fair, "right")) < 0.06


def test_length_bias_favours_the_longer_answer_on_either_side() -> None:
    biased = replace(FAIR, length_bias=0.4)
    assert share(votes(biased, 2000, 1.0, 1.0, (60, 30)), "left") > 0.7
    assert share(votes(biased, 2000, 1.0, 1.0, (30, 60)), "right") > 0.7


def test_adversarial_raters_vote_for_the_worse_and_careless_ones_for_either() -> None:
    rng = Random(4)
    accuracy: dict[str, float] = {}
    for rater in panel(0, 6):
        right = [
            (verdict == "left") == (pair[0] > pair[1])
            for pair in answer_pairs()
            if (verdict := rater.judge(*pair, rng).verdict) in ("left", "right")
        ]
        accuracy[rater.kind] = sum(right) / len(right)
    assert accuracy["adversarial"] < 0.3
    assert 0.45 < accuracy["careless"] < 0.55
    assert accuracy["ordinary"] > 0.75


def test_strength_grows_with_the_difference() -> None:
    means = []
    for delta in (0.2, 1.0, 3.0, 6.0):
        decided = [vote.strength for vote in votes(FAIR, 1500, delta, 0.0) if vote.verdict == "left"]
        assert set(decided) <= {1, 2, 3}
        means.append(sum(decided) / len(decided))
    assert means == sorted(means)
    assert means[-1] > 2.8


def test_equal_answers_are_sometimes_tied_and_bad_ones_both_bad() -> None:
    kinds = Counter(vote.verdict for vote in votes(FAIR, 3000, 2.0, 2.0))
    assert 0.02 < kinds["tie"] / 3000 < 0.12
    assert kinds["both_bad"] == 0
    bad = votes(FAIR, 3000, -2.0, -2.0)
    assert share(bad, "both_bad") == kinds["tie"] / 3000
    assert {vote.strength for vote in bad if vote.verdict == "both_bad"} == {0}


def test_time_is_positive_has_the_stated_mean_and_grows_with_words() -> None:
    rater = replace(FAIR, mean_seconds=20.0)
    seconds = [vote.seconds for vote in votes(rater, 4000, 1.0, 0.0, (40, 40))]
    assert min(seconds) > 0
    assert sum(seconds) / len(seconds) == pytest.approx(20.0, rel=0.04)
    longer = [vote.seconds for vote in votes(rater, 4000, 1.0, 0.0, (80, 80))]
    assert sum(longer) > 1.4 * sum(seconds)


def test_tired_raters_are_noisier() -> None:
    rater = replace(FAIR, drift=0.5)
    fresh, tired = (rater.probabilities(2.0, 0.0, 40, 40, answered)[0] for answered in (0, 200))
    assert 0.5 < tired < fresh
    assert tired == pytest.approx(replace(FAIR, tau=2 * TAU).probabilities(2.0, 0.0, 40, 40)[0])


@for_each(range(5))
def test_a_panel_is_mixed_and_the_same_for_its_seed(seed: int) -> None:
    raters = panel(seed, 7)
    assert raters == panel(seed, 7)
    assert Counter(rater.kind for rater in raters) == {"ordinary": 5, "careless": 1, "adversarial": 1}
    assert len({rater.name for rater in raters}) == 7
    careless = next(rater for rater in raters if rater.kind == "careless")
    assert careless.mean_seconds < min(rater.mean_seconds for rater in raters if rater.kind != "careless") / 2


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(TutelageError, match="2 raters"):
        panel(0, 2)
    with pytest.raises(TutelageError, match=r"noise.*0\.4"):
        calibrated_tau(deltas(), 0.4)
    with pytest.raises(TutelageError, match="noise"):
        calibrated_tau([0.0, 0.0])
    with pytest.raises(TutelageError, match="pair"):
        pair_agreement([], 1.0)
