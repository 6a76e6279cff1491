"""The choice of a rater model: planted raters, held-out likelihood by hand, calibration, sparse and few raters."""

from statistics import NormalDist

import numpy as np
import pytest
from offenders import for_each
from scipy.stats import binom
from tiers import long_except

from bench.rater_designs import OVERLAP, Design, OrderedDesign, ordered_grid
from bench.raters import default, log_loss
from tutelage.stats.calibration import label_hits
from tutelage.stats.model_choice import CANDIDATES, choose_model, fit_model
from tutelage.stats.reliability import majority, one_coin
from tutelage.stats.vote_codes import Votes

from .planted import coins, draw, shared_out
from .test_hierarchical import planted_raters

CONFUSED = np.array([[0.85, 0.1, 0.05], [0.05, 0.55, 0.4], [0.02, 0.08, 0.9]])


@for_each(
    [
        ("coin", coins([0.75] * 60, 3), 3),
        ("coin", coins([0.9] * 20 + [0.5] * 20, 3), 3),
        ("biased", planted_raters(40, 3, 0.3, 1.0, 0), 3),
        ("hierarchical", np.array([CONFUSED] * 40), 3),
    ]
)
def test_the_model_that_the_raters_follow_is_chosen(name, raters, classes):
    votes, _ = draw(raters, [1 / classes] * classes, items=1500, votes_per_item=4, seed=2)
    found = choose_model(votes)
    assert found.name == name
    assert found.calibration.ece < 0.03
    assert found.deficit[name] <= 2 * found.error[name]
    assert min(found.deficit.values()) == 0


def test_the_richest_is_chosen_where_raters_have_nothing_in_common():
    """Each confuses another pair of classes, hundreds of votes each."""
    generator = np.random.default_rng(2)
    raters = np.array([np.eye(4)[generator.permutation(4)] * 0.5 + np.eye(4) * 0.5 for _ in range(12)])
    votes, truth = draw(raters * 0.9 + 0.025, [0.25] * 4, items=3000, votes_per_item=5, seed=3)
    found = choose_model(votes)
    assert found.name == "matrix"
    assert label_hits(fit_model("matrix", votes).posterior, truth).mean() > 0.8


@pytest.mark.parametrize("classes", long_except([2], [2, 4]))
def test_guessed_votes_cannot_be_foretold(classes):
    """Whatever the model, the log-likelihood of a vote that was held out is -log K at best."""
    votes, _ = draw(coins([1 / classes] * 20, classes), [1 / classes] * classes, items=800, votes_per_item=5, seed=4)
    found = choose_model(votes)
    assert found.votes >= 4000 / 5
    assert found.predicted["coin"] == pytest.approx(-np.log(classes), abs=0.02)
    assert max(found.predicted.values()) < -np.log(classes) + 0.01


HARDEST = [("differing", 1000, 20, 2), ("hard", 300, 2, 5), ("alike", 20, 100, 5), ("differing", 5, 20, 2)]


@pytest.mark.parametrize(("kind", "raters", "each", "classes"), long_except(HARDEST[1:2], HARDEST))
def test_the_default_is_never_worse_than_the_majority_or_one_coin(kind, raters, each, classes):
    """By more than two standard errors of the difference, in accuracy and log-loss, on designs like the hardest ones of
    the grid of `python -m bench.raters`."""
    votes, truth = Design(kind, raters, each, classes, OVERLAP[classes]).simulate(10_000)
    posterior = default(votes)[0]
    for other in (majority(votes), one_coin(votes).posterior):
        lead = label_hits(posterior, truth) - label_hits(other, truth)
        assert lead.mean() >= -2 * lead.std() / np.sqrt(len(lead)) - 1e-9
        saved = log_loss(other, truth) - log_loss(posterior, truth)
        assert saved.mean() >= -2 * saved.std() / np.sqrt(len(saved))


def test_posteriors_are_calibrated_where_raters_are_sparse():
    """3,000 raters of two to ten votes who confuse the middle class: the issue that made the default hierarchical."""
    votes, truth = shared_out("confused", 3000, 6, 3, 5, seed=0)
    choice = choose_model(votes)
    assert choice.name == "hierarchical"
    q = fit_model(choice.name, votes).posterior
    label = q.argmax(axis=1)
    assert q.max(axis=1).mean() == pytest.approx((label == truth).mean(), abs=0.02)
    assert (label == 1).mean() == pytest.approx((truth == 1).mean(), abs=0.05)
    assert label_hits(q, truth).mean() > label_hits(majority(votes), truth).mean() + 0.005
    assert log_loss(q, truth).mean() < log_loss(fit_model("matrix", votes).posterior, truth).mean() - 0.01


def test_the_raters_of_a_majority_are_described_one_by_one():
    votes, _ = draw(coins([0.8, 0.8, 0.8, 0.2]), [0.5, 0.5], items=200, votes_per_item=4, seed=5)
    found = fit_model("majority", votes)
    assert found.accuracy.argmin() == 3
    counts = fit_model("coin", votes)
    np.testing.assert_array_equal(found.accuracy, counts.accuracy)
    assert not np.array_equal(found.posterior, counts.posterior)


def test_two_constant_raters_of_five_do_not_decide():
    """They agree on everything: one accuracy each makes them the truth, a bias of their own does not."""
    constant = [[1.0, 0.0], [1.0, 0.0]]
    votes, truth = draw(np.array([*coins([0.8] * 3).tolist(), constant, constant]), [0.5, 0.5], 400, 5, seed=6)
    assert label_hits(one_coin(votes).posterior, truth).mean() < 0.6
    chosen = choose_model(votes).name
    assert chosen == "biased"
    assert label_hits(fit_model(chosen, votes).posterior, truth).mean() > 0.85


def five_raters(bad, classes, seed):
    """300 items judged by five raters: three are right in 80 %, two are bad in one of several ways."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(classes, size=300)

    def honest(accuracy):
        wrong = (truth + generator.integers(1, classes, size=300)) % classes
        return np.where(generator.random(300) < accuracy, truth, wrong)

    guess = generator.integers(classes, size=(2, 300))
    two = {
        "guess": guess,
        "lie": np.stack([honest(0.1), honest(0.1)]),
        "lie alike": np.stack([honest(0.0)] * 2),
        "say the first": np.zeros((2, 300), dtype=int),
        "guess alike": guess[[0, 0]],
        "mostly guess alike": np.where(generator.random((2, 300)) < 0.9, guess[[0, 0]], guess),
    }[bad]
    choice = np.concatenate([np.stack([honest(0.8) for _ in range(3)]), two])
    rater, item = np.indices(choice.shape)
    names = [tuple(map(str, range(size))) for size in (300, 5, classes)]
    return Votes(item.ravel(), rater.ravel(), choice.ravel(), *names), truth


@pytest.mark.parametrize(
    ("bad", "classes"),
    long_except(
        [("lie", 2), ("lie alike", 3)],
        [
            ("guess", 2),
            ("lie", 2),
            ("lie alike", 2),
            ("lie alike", 3),
            ("say the first", 2),
            ("guess alike", 2),
            ("mostly guess alike", 3),
        ],
    ),
)
def test_two_bad_raters_of_five_do_not_decide(bad, classes):
    """Not below what the three good raters say by themselves, less two standard errors."""
    votes, truth = five_raters(bad, classes, seed=0)
    alone = label_hits(majority(votes.keep(votes.rater < 3)), truth)
    chosen = choose_model(votes)
    auto = label_hits(fit_model(chosen.name, votes, links=chosen.links).posterior, truth)
    assert (auto - alone).mean() >= -2 * (auto - alone).std() / np.sqrt(300)
    if bad.endswith("guess alike"):
        assert [{link.follower, link.leader} for link in chosen.links] == [{3, 4}]
    elif not bad.endswith("alike") and bad != "say the first":
        assert chosen.links == ()


@pytest.mark.parametrize(
    ("bad", "classes", "evident"),
    long_except([("mostly guess alike", 3, 1)], [("guess alike", 2, 0), ("mostly guess alike", 3, 1)]),
)
def test_what_votes_cannot_say_is_no_accusation(bad, classes, evident):
    """Two of five who always agree could be experts, where there are two classes; a third class tells."""
    chosen = choose_model(five_raters(bad, classes, seed=0)[0])
    assert len(chosen.links) == 1
    assert len(chosen.evident) == evident


def test_raters_who_are_all_right_do_not_copy():
    votes, _ = draw(coins([1.0] * 4, 3), [1 / 3] * 3, items=200, votes_per_item=4, seed=0)
    assert choose_model(votes).links == ()


@for_each(CANDIDATES)
def test_one_vote_each_is_no_reason_to_fail(name):
    assert np.isfinite(fit_model(name, Votes.of("xyz", "rst", "aab")).posterior).all()


def test_one_vote_each_selects_the_simplest():
    assert choose_model(Votes.of("xyz", "rst", "aab")).name == "coin"


GRID = {design.name: design for design in ordered_grid()}
DOZEN = [name for name, design in GRID.items() if design.votes <= 1_800][:12]
ALL_AT_ONCE = NormalDist().inv_cdf(1 - 0.05 / (2 * len(GRID)))
"""Standard errors by which, in 95 % of grids, chance puts none of the two comparisons of any design behind."""


def leads(design):
    """By item the default's right labels less those of the majority, and less those of the one-coin model."""
    votes, truth = design.simulate(10_000)
    posterior = default(votes, ordered=True)[0]
    for other in (majority(votes), one_coin(votes).posterior):
        yield label_hits(posterior, truth) - label_hits(other, truth)


def check_leads(name):
    """Raters with private thresholds: the ordered grid of `python -m bench.raters`."""
    for lead in leads(GRID[name]):
        assert lead.mean() >= -ALL_AT_ONCE * lead.std() / np.sqrt(len(lead)) - 1e-9


@for_each(DOZEN[:1])
def test_ordered_labels_are_never_worse_than_the_majority_or_one_coin(name):
    check_leads(name)


@pytest.mark.long
@for_each(DOZEN[1:])
def test_ordered_labels_are_never_worse_in_other_designs(name):
    check_leads(name)


@pytest.mark.long
def test_ordered_labels_are_worse_in_no_more_designs_than_chance_puts_there():
    """All labels of a study may be wrong about what its votes cannot tell (docs/explanation/ties.md), so the law is
    about the grid: ahead on average by three standard errors over designs, and behind by 1.96 over items in no more
    designs than equal labels would be, in 999 of 1,000 grids."""
    every = [list(leads(design)) for design in GRID.values()]
    means = np.array([[lead.mean() for lead in both] for both in every])
    error = np.array([[lead.std() / np.sqrt(len(lead)) for lead in both] for both in every])
    assert (means.mean(axis=0) > 3 * means.std(axis=0) / np.sqrt(len(GRID))).all()
    assert (means < -1.96 * error - 1e-9).sum() <= binom.ppf(0.999, means.size, 0.025)


def test_clusters_are_compared_for_ordered_choices_but_not_selected():
    """No true ties and narrow private thresholds: the cluster of small differences is likelier than one accuracy each,
    and most of its labels "equal" are wrong."""
    design = OrderedDesign(3, 6, 0.0, 0.5, 0.5, "half normal", 0.0, 2.5, 30, 600)
    votes, truth = design.simulate(0)
    choice = choose_model(votes, ordered=True)
    assert choice.name == "ordinal"
    assert choice.predicted["hierarchical"] > choice.predicted["coin"] + 0.02
    assert set(choice.predicted) - set(choice.selectable) == {"hierarchical", "matrix"}
    accuracy = {name: label_hits(fit.posterior, truth).mean() for name, fit in choice.fits.items()}
    assert accuracy["hierarchical"] < accuracy["coin"] - 0.05
    assert accuracy["ordinal"] > accuracy["coin"] - 0.01
    ours, theirs = (choice.fits[name].posterior.argmax(axis=1) for name in ("ordinal", "hierarchical"))
    assert choice.differing("hierarchical") == (ours != theirs).sum() > 60
    assert choice.differing("ordinal") == 0


def test_unordered_choices_have_no_ordinal_model():
    votes, _ = draw(coins([0.8] * 6, 3), [1 / 3] * 3, items=60, votes_per_item=3, seed=0)
    assert "ordinal" not in choose_model(votes).fits
