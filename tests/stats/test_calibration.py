import numpy as np
import pytest
from offenders import for_each
from scipy.integrate import quad
from scipy.stats import norm

from tutelage.base.errors import TutelageError
from tutelage.stats.calibration import (
    agreement_of_spread,
    calibration,
    ceiling_of_spread,
    label_hits,
    logit_spread,
    vote_ceiling,
)
from tutelage.stats.vote_codes import Votes

from .planted import logit_normal_votes


def test_calibration_by_hand():
    found = calibration(np.array([0.05, 0.15, 0.12, 0.95, 1.0]), np.array([0.0, 1.0, 0.0, 1.0, 1.0]))
    assert found.count.tolist() == [1, 2, 0, 0, 0, 0, 0, 0, 0, 2]
    assert found.predicted[1] == pytest.approx(0.135)
    assert found.observed[[0, 1, 9]].tolist() == [0.0, 0.5, 1.0]
    assert np.isnan(found.observed[2])
    assert found.ece == pytest.approx((0.05 + 2 * 0.365 + 2 * 0.025) / 5)
    assert found.brier == pytest.approx((0.05**2 + 0.85**2 + 0.12**2 + 0.05**2) / 5)


def test_a_label_that_is_shared_by_classes_is_right_by_its_share():
    posterior = np.array([[0.6, 0.4, 0], [0.4, 0.4, 0.2], [1 / 3, 1 / 3, 1 / 3], [0.2, 0.8, 0]])
    np.testing.assert_allclose(label_hits(posterior, np.array([0, 1, 2, 0])), [1, 1 / 2, 1 / 3, 0])


def test_true_probabilities_are_calibrated_and_sharpened_ones_are_not():
    generator = np.random.default_rng(0)
    logit = generator.normal(size=50_000)
    p = 1 / (1 + np.exp(-logit))
    outcome = (generator.random(50_000) < p).astype(float)
    sharpened = 1 / (1 + np.exp(-3 * logit))
    assert calibration(p, outcome).ece < 0.01
    assert calibration(sharpened, outcome).ece > 0.1
    assert calibration(p, outcome).brier == pytest.approx((p * (1 - p)).mean(), abs=0.003)
    assert calibration(p, outcome).brier < calibration(sharpened, outcome).brier


def test_predictions_must_be_probabilities():
    for bad in ([], [1.2], [-0.1]):
        with pytest.raises(TutelageError, match="between 0 and 1"):
            calibration(np.array(bad), np.array(bad))


# research/preferences.md §5: agreement, spread, best accuracy against single votes
TABLE = [
    (0.63, 1.36, 0.719),
    (0.657, 1.60, 0.744),
    (0.72, 2.27, 0.798),
    (0.726, 2.34, 0.802),
    (0.773, 3.05, 0.839),
    (0.81, 3.81, 0.867),
]


@for_each(TABLE)
def test_the_logit_normal_model_gives_the_research_table(agreement, spread, ceiling):
    assert logit_spread(agreement) == pytest.approx(spread, abs=0.012)
    assert ceiling_of_spread(logit_spread(agreement)) == pytest.approx(ceiling, abs=0.002)


@for_each([0.0, 0.5, 2.34, 10.0, 40.0])
def test_the_integrals_are_those_of_adaptive_quadrature(spread):
    def p(d):
        return 1 / (1 + np.exp(-spread * d))

    agreement = 2 * quad(lambda d: norm.pdf(d) * (p(d) ** 2 + (1 - p(d)) ** 2), 0, 9, points=[0.1, 1])[0]
    ceiling = 2 * quad(lambda d: norm.pdf(d) * p(d), 0, 9, points=[0.1, 1])[0]
    assert agreement_of_spread(spread) == pytest.approx(agreement, abs=1e-5)
    assert ceiling_of_spread(spread) == pytest.approx(ceiling, abs=1e-5)


@for_each([0.5, 0.500001, 0.51, 0.63, 0.726, 0.9, 0.98])
def test_the_spread_has_the_agreement_that_it_was_found_from(agreement):
    assert agreement_of_spread(logit_spread(agreement)) == pytest.approx(agreement, abs=1e-12)


def test_no_spread_at_chance_and_the_widest_at_unanimity():
    assert logit_spread(0.5) == logit_spread(0.2) == 0.0
    assert logit_spread(1.0) == 40.0


def test_the_ceiling_is_what_the_best_predictor_reaches():
    """Knowing d itself, the sign of d is the best prediction of a vote."""
    generator = np.random.default_rng(3)
    d = 2.3 * generator.normal(size=100_000)
    reached = ((generator.random(100_000) < 1 / (1 + np.exp(-d))) == (d > 0)).mean()
    votes = logit_normal_votes(2.3, items=8000, overlap=5, seed=4)
    found = vote_ceiling(votes)
    assert found.ceiling.value == pytest.approx(reached, abs=0.01)
    assert found.ceiling.low < reached < found.ceiling.high
    assert found.spread == pytest.approx(2.3, abs=0.15)
    assert found.lowest < found.held_out < found.ceiling.value < found.highest


@pytest.mark.parametrize(
    ("p", "expected"),
    [([0.8] * 4, "highest"), ([0.0, 1.0, 0.5, 0.5], "lowest")],
    ids=["equally hard", "certain or a coin"],
)
def test_the_bounds_are_reached_by_the_extreme_distributions(p, expected):
    generator = np.random.default_rng(5)
    chance = np.tile(p, 5000)
    choice = (generator.random((20_000, 2)) < chance[:, None]).astype(np.int64)
    item, rater = np.indices(choice.shape)
    names = tuple(map(str, range(20_000)))
    found = vote_ceiling(Votes(item.ravel(), rater.ravel(), choice.ravel(), names, ("r", "s"), ("a", "b")), draws=50)
    ceiling = np.maximum(chance, 1 - chance).mean()
    assert getattr(found, expected) == pytest.approx(ceiling, abs=0.01)
    assert found.lowest - 0.01 < ceiling < found.highest + 0.01


def test_held_out_votes_by_hand():
    """Votes a a b: each a sees a draw of the others (½), the b sees two a's (0): ⅓. Unanimous: 1."""
    votes = Votes.of(["x"] * 3 + ["y"] * 2, ["r", "s", "t", "r", "s"], ["a", "a", "b", "b", "b"])
    assert vote_ceiling(votes).held_out == pytest.approx((1 / 3 + 1) / 2)


def test_the_ceiling_needs_two_choices_and_overlap():
    with pytest.raises(TutelageError, match="two choices, not 3"):
        vote_ceiling(Votes.of("xyz", "rrr", "abc"))
    with pytest.raises(TutelageError, match="more raters"):
        vote_ceiling(Votes.of("xy", "rr", "ab"))
