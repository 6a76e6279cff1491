"""The ordinal rater model by enumeration, by finite differences, in its limits, and on planted thresholds."""

import math

import numpy as np
import pytest
from offenders import for_each
from scipy.optimize import linprog
from tiers import long_except

from bench.private_thresholds import Case, compare, twin
from bench.rater_designs import OrderedDesign
from tutelage.stats.calibration import label_hits
from tutelage.stats.model_choice import fit_model
from tutelage.stats.ordinal import (
    SHAPES,
    SHAPES_OF_THREE,
    SHAPES_OF_TWO,
    Ordinal,
    Population,
    Shape,
    fit_beliefs,
    fit_population,
    rater_types,
)
from tutelage.stats.ordinal_average import _best_posterior, least_favourable
from tutelage.stats.reliability import majority, posterior
from tutelage.stats.vote_codes import Votes

from .planted import coins, draw

HALF_NORMAL = Shape("fold", math.inf)


def model(votes, shape=HALF_NORMAL, gold=None, weight=None, types=None):
    codes = np.full(len(votes.items), -1) if gold is None else gold
    own = rater_types(8) if types is None else types
    return Ordinal(votes, codes, np.ones(len(votes)) if weight is None else weight, shape, own)


def chain(choices=3):
    """Three raters and two items without a loop: r0 - i0 - r1 - i1 - r2."""
    return Votes.of(
        ["i0", "i0", "i1", "i1"], ["r0", "r1", "r1", "r2"], ["0", "1", "0", "2"], tuple(map(str, range(choices)))
    )


def enumerated(ordinal, at, included):
    """P(the included votes and the states of both items) [J, J], summed over the types of the raters."""
    code, _ = ordinal.states
    prior = at.prevalence[code] / np.bincount(code)[code]
    chance, votes = ordinal.choice(at.theta), ordinal.votes
    total = np.outer(prior, prior)
    for rater in range(3):
        factor = np.ones((len(code), len(code), len(at.share)))
        for n in np.flatnonzero((votes.rater == rater) & included):
            vote = chance[:, :, votes.choice[n]]
            factor = factor * (vote[:, None] if votes.item[n] == 0 else vote[None])
        total = total * (factor @ at.share)
    return total


def test_beliefs_are_exact_on_a_graph_without_loops():
    votes = chain()
    ordinal = model(votes)
    at = ordinal.start()
    found = fit_beliefs(ordinal, at)
    joint = enumerated(ordinal, at, np.ones(4, dtype=bool))
    for item in (0, 1):
        expected = joint.sum(axis=1 - item) / joint.sum()
        np.testing.assert_allclose(found.states[item], expected, atol=1e-5)
        others = enumerated(ordinal, at, votes.item != item)
        assert found.log_item[item] == pytest.approx(np.log(joint.sum() / others.sum()), abs=1e-4)


def opposite(others, items=40):
    """Votes of a good rater, of one who always says the opposite, and of so many good others."""
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 2, items)
    said = np.array([np.where(rng.random(items) < 0.9, truth, 1 - truth) for _ in range(1 + others)])
    table = np.array([said[0], 1 - said[0], *said[1:]])
    rater, item = np.indices(table.shape)
    return Votes.of(*(list(map(str, each.ravel())) for each in (item, rater, table)), choices=("0", "1"))


@for_each([0, 1, 2])
def test_of_two_raters_who_are_always_opposite_one_is_contrary(others):
    """By the sum over the types of all raters: without others, either. Messages would alternate for ever."""
    ordinal = model(opposite(others))
    at = ordinal.start()
    chance, code = ordinal.choice(at.theta), ordinal.states[0]
    logp = 0.0
    for item in range(len(ordinal.votes.items)):
        states = (at.prevalence[code] / np.bincount(code)[code]).reshape(-1, *[1] * (2 + others))
        for n in np.flatnonzero(ordinal.votes.item == item):
            shape = np.ones(3 + others, dtype=int)
            shape[0], shape[1 + ordinal.votes.rater[n]] = chance.shape[:2]
            states = states * chance[:, :, ordinal.votes.choice[n]].reshape(shape)
        logp = logp + np.log(states.sum(axis=0))
    for rater in range(2 + others):
        shape = np.ones(2 + others, dtype=int)
        shape[rater] = len(at.share)
        logp = logp + np.log(at.share).reshape(shape)
    p = np.exp(logp - logp.max())
    p /= p.sum()
    contrary = [p.sum(axis=tuple(set(range(2 + others)) - {rater}))[-1] for rater in range(2 + others)]
    assert contrary[0] + contrary[1] == pytest.approx(1.0, abs=0.02)
    np.testing.assert_allclose(fit_beliefs(ordinal, at).types[:, -1], contrary, atol=0.02)


@for_each([2, 3, 5])
def test_the_slopes_are_finite_differences(classes):
    ordinal = model(chain(max(classes, 3)) if classes > 2 else Votes.of("ab", "rs", "01"))
    theta = ordinal.start().theta + 0.05 * np.arange(3 + ordinal.classes)
    slopes, step = ordinal._slopes(theta), 1e-6
    for n, unit in enumerate(step * np.eye(len(theta))):
        expected = (ordinal.choice(theta + unit) - ordinal.choice(theta - unit))[:, :-2] / (2 * step)
        np.testing.assert_allclose(slopes[..., n], expected, atol=1e-8)


def test_probabilities_sum_to_one_and_contrary_raters_read_the_scale_backwards():
    ordinal = model(chain())
    chance = ordinal.choice(ordinal.start().theta)
    np.testing.assert_allclose(chance.sum(axis=2), 1)
    code, difference = ordinal.states
    best, worst = difference.argmax(), difference.argmin()
    assert chance[best, -1, 0] > 0.5 > chance[best, -1, 2]
    assert chance[worst, -1, 2] > 0.5
    assert (difference[code == 1] == 0).all()


@for_each([*SHAPES, *SHAPES_OF_TWO])
def test_the_magnitudes_have_the_mean_one_and_the_share_that_misleads(shape):
    m = shape.magnitudes()
    assert np.abs(m).mean() == pytest.approx(1)
    assert (np.diff(m) >= 0).all()
    expected = 0.5 * math.erfc(1 / shape.spread / math.sqrt(2)) if shape.family == "mislead" else 0.0
    assert (m < 0).mean() == pytest.approx(expected, abs=1 / 8)


def test_it_is_the_one_coin_model_without_spread_and_magnitudes():
    """Raters of one type and equal items of two classes: the posterior for known accuracies, σ(s) but for lapses."""
    votes, _ = draw(coins([0.8] * 10), [0.5, 0.5], items=200, votes_per_item=4, seed=0)
    ordinal = model(votes, Shape("fold", 0.0), types=np.zeros((1, 3)))
    theta = np.array([math.log(1.3), 0.4, 0.4, 0.4, 0.0])
    found = fit_beliefs(ordinal, Population(theta, np.full(2, 0.5), np.array([1.0, 1e-30, 1e-30])))
    accuracy = 0.997 / (1 + math.exp(-1.3)) + 0.0015
    np.testing.assert_allclose(found.states, posterior(votes, np.full(10, accuracy)), atol=1e-4)


def test_its_labels_are_those_of_one_accuracy_each_where_raters_have_one():
    """Never below the one-coin model, which is true here, by more than three standard errors over 1,600 items."""
    lead = []
    for seed in range(4):
        generator = np.random.default_rng(seed)
        votes, truth = draw(coins(generator.beta(6, 2.5, size=40)), [0.5, 0.5], items=400, votes_per_item=5, seed=seed)
        one, other = (fit_model(name, votes).posterior for name in ("ordinal", "coin"))
        lead.append(label_hits(one, truth) - label_hits(other, truth))
    assert np.mean(lead) >= -3 * np.std(lead) / np.sqrt(np.size(lead))


def test_the_reverse_order_of_the_classes_gives_the_reverse():
    design = OrderedDesign(3, 5, 0.2, 0.8, 0.5, "half normal", 0.0, 2.5, 30, 100)
    votes, _ = design.simulate(3)
    back = Votes(votes.item, votes.rater, 2 - votes.choice, votes.items, votes.raters, votes.choices)
    one, other = (fit_population(model(v)) for v in (votes, back))
    code = model(votes).one_hot
    np.testing.assert_allclose(one.states @ code, (other.states @ code)[:, ::-1], atol=2e-3)


def test_golds_are_fixed_and_weightless_votes_count_nothing():
    votes, truth = OrderedDesign(3, 4, 0.2, 0.8, 0.5, "equal", 0.0, 2.5, 20, 60).simulate(4)
    known = np.where(np.arange(60) < 10, truth, -1)
    ordinal = model(votes, gold=known)
    classes = fit_population(ordinal).states @ ordinal.one_hot
    np.testing.assert_allclose(classes[np.arange(10), truth[:10]], 1)
    assert np.isfinite(classes).all()
    kept = np.random.default_rng(0).random(len(votes)) < 0.7
    at = ordinal.start()
    weighted = fit_beliefs(model(votes, weight=kept.astype(float)), at)
    np.testing.assert_allclose(weighted.states, fit_beliefs(model(votes.keep(kept)), at).states, atol=1e-4)


def test_what_raters_and_items_share_is_recovered():
    """Many raters with private thresholds, a fifth of whom are careless, and true ties: the labels are better than the
    majority's, and right as often as their probabilities say, by three standard errors over the items each."""
    design = OrderedDesign(3, 8, 0.3, 0.8, 0.5, "half normal", 0.2, 2.5, 40, 800)
    votes, truth = design.simulate(5)
    found = fit_model("ordinal", votes)
    hits, sure = label_hits(found.posterior, truth), found.posterior.max(axis=1)
    lead = hits - label_hits(majority(votes), truth)
    assert lead.mean() > 3 * lead.std() / np.sqrt(len(lead))
    assert abs((hits - sure).sum()) < 3 * np.sqrt((sure * (1 - sure)).sum())
    assert ((found.low <= found.accuracy) & (found.accuracy <= found.high)).all()
    chance = found.chance(votes.item[:50], votes.rater[:50])
    np.testing.assert_allclose(chance.sum(axis=1), 1, atol=1e-5)


@for_each([(0.0, 3), (0.0, 12), (0.1, 3), (0.1, 12)])
def test_the_likelier_model_has_worse_labels_where_thresholds_are_narrow(ties, votes):
    """Unlimited items: the free class "equal" predicts votes better and takes the small differences."""
    found = compare(Case(ties, threshold=0.5), votes)
    assert found["matrix"].log_vote > found["one-coin"].log_vote + 0.04
    assert found["matrix"].accuracy < found["majority"].accuracy - 0.05
    assert found["ordinal"].log_vote >= found["matrix"].log_vote
    assert found["ordinal"].accuracy >= found["majority"].accuracy


def test_the_likelier_model_has_better_labels_where_ties_are_common():
    found = compare(Case(ties=0.3, threshold=0.5), 12)
    assert found["matrix"].log_vote > found["one-coin"].log_vote
    assert found["matrix"].accuracy > found["majority"].accuracy


@pytest.mark.parametrize(("weight", "label"), [(0.3, 0), (0.05, 1)])
def test_labels_are_the_mixtures_unless_they_lose_to_the_majority_on_the_worst_quarter(weight, label):
    """All votes are for class 0. One shape says class 1, in .7 of the items and class 0 in .2, the other class 0."""
    votes = Votes.of([f"i{n // 3}" for n in range(30)], list("rst") * 10, ["0"] * 30, ("0", "1", "2"))
    shapes = np.repeat([[[0.2, 0.7, 0.1]], [[0.9, 0.05, 0.05]]], 10, axis=1)
    found = _best_posterior(votes, np.full(10, -1), shapes, np.array([1 - weight, weight]))
    assert (found.argmax(axis=1) == label).all()


def test_the_labels_have_the_best_sum_of_the_mean_gain_and_that_on_the_worst_quarter():
    """Two shapes, 400 items: for every u, twice the mean gain under (w + u)/2 of the best labels for it is a bound on
    the sum, and the labels that are found reach the least bound."""
    generator = np.random.default_rng(0)
    side = generator.uniform(0.3, 0.6, size=(2, 400))
    tie = np.full(400, 0.34)
    shapes = np.stack([[tie, side[0], 0.66 - side[0]], [tie, 0.66 - side[1], side[1]]]).transpose(0, 2, 1)
    votes = Votes.of([f"i{n // 3}" for n in range(1200)], list("rst") * 400, ["0"] * 1200, ("0", "1", "2"))
    weights, simple = np.array([0.7, 0.3]), shapes[:, :, 0].mean(axis=1)
    worst = [np.array([1 - u, u]) for u in np.linspace(0, 1, 201)]  # to min(1, 0.3 / (1/4))

    def gain(label):
        return np.take_along_axis(shapes, label[None, :, None], axis=2)[..., 0].mean(axis=1) - simple

    def score(label):
        return weights @ gain(label) + min(u @ gain(label) for u in (worst[0], worst[-1]))

    def bound(u):
        mixed = (weights + u) / 2
        return 2 * mixed @ gain(np.tensordot(mixed, shapes, 1).argmax(axis=1))

    assert min(u @ gain(np.tensordot(weights, shapes, 1).argmax(axis=1)) for u in worst) < 0
    found = score(_best_posterior(votes, np.full(400, -1), shapes, weights).argmax(axis=1))
    assert found == pytest.approx(min(map(bound, worst)), abs=2e-3)
    assert found >= max(score(shape.argmax(axis=1)) for shape in shapes)


def test_the_least_favourable_weights_are_the_solution_of_their_linear_programme():
    generator = np.random.default_rng(1)
    for size in (1, 2, 5, 14):
        weights, gain = generator.dirichlet(np.ones(size)), generator.normal(size=size)
        best = linprog(gain, A_eq=np.ones((1, size)), b_eq=[1], bounds=[(0, 4 * w) for w in weights])
        np.testing.assert_allclose(least_favourable(gain, weights), best.x, atol=1e-9)


def test_a_fit_ends_at_its_maximum():
    """30 votes an item on half-normal differences without ties: 60 more steps of expectation-maximisation gain under
    .6 nats in 6,000 votes, and the scale is near the true 2.5."""
    votes, _ = OrderedDesign(3, 30, 0.0, 0.3, 0.5, "half normal", 0.0, 2.5, 10, 200).simulate(2)
    ordinal = model(votes, types=rater_types(48))
    fit = fit_population(ordinal)
    at = fit.population
    now = ordinal.sweep(at, ordinal.first_message(at))
    for _ in range(60):
        now = ordinal.sweep(at, now.log_message)
        at = ordinal.maximise(at, now)
    later = ordinal.result(at, ordinal.sweep(at, now.log_message), converged=True)
    assert later.log_item.sum() == pytest.approx(fit.log_item.sum(), abs=0.6)
    assert math.exp(fit.population.theta[0]) == pytest.approx(2.5, rel=0.25)
    assert fit.population.prevalence[1] < 0.04


@pytest.mark.parametrize("studies", long_except([1], [1, 4]))
def test_labels_are_those_of_one_accuracy_each_where_there_are_many_votes_and_no_ties(studies):
    """30 votes an item, thresholds of .3: small differences are not taken for ties by more than the 95 % interval over
    the items."""
    lead = []
    for seed in range(1, 1 + studies):
        votes, truth = OrderedDesign(3, 30, 0.0, 0.3, 0.5, "half normal", 0.0, 2.5, 10, 200).simulate(seed)
        one, other = (fit_model(name, votes).posterior for name in ("ordinal", "coin"))
        lead.append(label_hits(one, truth) - label_hits(other, truth))
    assert np.mean(lead) >= -1.96 * np.std(lead) / np.sqrt(np.size(lead))


@pytest.mark.parametrize("shape", [shape for shape in SHAPES_OF_THREE if shape.ties], ids=str)
def test_a_known_share_of_ties_is_kept(shape):
    votes, _ = OrderedDesign(3, 5, 0.3, 0.8, 0.5, "equal", 0.0, 2.5, 20, 60).simulate(4)
    found = fit_population(model(votes, shape)).population
    assert found.prevalence[1] == pytest.approx(shape.ties)
    assert found.prevalence.sum() == pytest.approx(1)


def test_two_votes_an_item_cannot_tell_ties_from_small_differences():
    """The same votes to nine digits, without ties and with 30 % of them, and labels that are right in .83 or in .65: no
    probability of the labels is within .03 of both. Twelve votes tell the worlds apart by a hundred items."""
    world = Case(ties=0.0, threshold=0.8)
    found = twin(world, 0.3, 2)
    here, there = (case.joint(2).sum(axis=1) for case in (world, found.case))
    np.testing.assert_allclose(here, there, rtol=1e-4)
    assert found.items > 1e6
    assert found.accuracy[0] - found.accuracy[1] > 0.15
    assert twin(world, 0.3, 12).items < 200


def test_labels_that_gain_without_ties_lose_where_ties_are_common_and_the_votes_are_the_same():
    """The best labels of each world, for a share of the two that is theirs alone, bound those that are better in one
    and not worse than the majority in the other, by Lagrangian duality."""
    found = twin(Case(ties=0.0, threshold=1.5), 0.4, 2)
    first, second = Case(ties=0.0, threshold=1.5).joint(2), found.case.joint(2)
    assert found.accuracy[0] > found.majority[0] + 0.2
    assert found.accuracy[1] < found.majority[1] - 0.1
    prices = np.linspace(0, 4, 401)
    bounds = [(first + price * second).max(axis=1).sum() - price * found.majority[1] for price in prices]
    assert found.cautious == pytest.approx(min(bounds), abs=2e-3)
    assert found.majority[0] < found.cautious < found.accuracy[0] - 0.05
