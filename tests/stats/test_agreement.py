"""Agreement against published worked examples, brute force over pairs of votes, and closed forms."""

from itertools import combinations, product
from random import Random

import numpy as np
import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.people.simulated_raters import SimulatedRater
from tutelage.stats.agreement import krippendorff_alpha, mirrored_alpha, pair_agreement, strength_scale
from tutelage.stats.reliability import one_coin
from tutelage.stats.vote_codes import Votes

from .planted import logit_normal_votes

# Krippendorff (2011), "Computing Krippendorff's alpha-reliability", data of section C: 4 observers, 12 units.
KRIPPENDORFF = """
1 2 3 3 2 1 4 1 2 . . .
1 2 3 3 2 2 4 1 2 5 . 3
. 3 3 3 2 3 4 2 2 5 1 .
1 2 3 3 2 4 4 1 2 5 1 .
"""
# The example in Wikipedia's article on the coefficient: 3 coders, 15 units.
WIKIPEDIA = """
. . . . . 3 4 1 2 1 1 3 3 . 3
1 . 2 1 3 3 4 3 . . . . . . .
. . 2 1 3 4 4 . 2 1 1 3 3 . 4
"""


def from_table(text):
    cells = [
        (f"unit{unit}", f"rater{rater}", mark)
        for rater, line in enumerate(text.strip().splitlines())
        for unit, mark in enumerate(line.split())
        if mark != "."
    ]
    return Votes.of(*zip(*cells, strict=True))


def random_votes(seed, items=40, raters=7, choices=3, chance_of_a_vote=0.5):
    generator = np.random.default_rng(seed)
    item, rater = np.nonzero(generator.random((items, raters)) < chance_of_a_vote)
    leaning = generator.integers(choices, size=items)
    choice = np.where(generator.random(len(item)) < 0.5, leaning[item], generator.integers(choices, size=len(item)))
    names = [str(k) for k in range(choices)]
    return Votes.of([f"i{x}" for x in item], [f"r{x}" for x in rater], [names[k] for k in choice], names)


@for_each(
    [
        (KRIPPENDORFF, "nominal", 0.743),
        (KRIPPENDORFF, "ordinal", 0.815),
        (KRIPPENDORFF, "interval", 0.849),
        (WIKIPEDIA, "nominal", 0.691358),
        (WIKIPEDIA, "interval", 0.810845),
    ]
)
def test_alpha_of_the_published_examples(table, level, published):
    digits = len(str(published)) - 2
    votes = from_table(table)
    values = [float(name) for name in votes.choices]
    assert round(krippendorff_alpha(votes, level, values if level == "interval" else None).value, digits) == published


@for_each(product(["nominal", "ordinal", "interval"], [0, 1, 2]))
def test_alpha_is_observed_over_expected_disagreement_by_enumeration(level, seed):
    votes = random_votes(seed)
    by_item = [list(votes.choice[votes.item == i]) for i in range(len(votes.items))]
    by_item = [marks for marks in by_item if len(marks) >= 2]
    pool = [mark for marks in by_item for mark in marks]
    n = [pool.count(k) for k in range(3)]

    def squared(c, k):
        c, k = min(c, k), max(c, k)
        if level == "nominal":
            return float(c != k)
        return float(k - c) ** 2 if level == "interval" else (sum(n[c : k + 1]) - (n[c] + n[k]) / 2) ** 2

    observed = sum(2 * squared(c, k) / (len(m) - 1) for m in by_item for c, k in combinations(m, 2)) / len(pool)
    expected = sum(2 * squared(c, k) for c, k in combinations(pool, 2)) / len(pool) / (len(pool) - 1)
    found = krippendorff_alpha(votes, level)
    assert found.value == pytest.approx(1 - observed / expected, rel=1e-12)
    assert (found.items, found.votes) == (len(by_item), len(pool))


def test_pair_agreement_is_the_mean_over_items_of_equal_pairs():
    votes = random_votes(3)
    shares, pairs = [], 0
    for i in range(len(votes.items)):
        marks = votes.choice[votes.item == i]
        equal = [c == k for c, k in combinations(marks, 2)]
        pairs += len(equal)
        if equal:
            shares.append(np.mean(equal))
    found = pair_agreement(votes)
    assert found.value == pytest.approx(np.mean(shares), rel=1e-12)
    assert (found.items, found.pairs) == (len(shares), pairs)
    assert found.low < found.value < found.high


def test_the_order_of_votes_and_the_names_do_not_matter():
    votes = random_votes(4)
    order = np.random.default_rng(0).permutation(len(votes))
    shuffled = Votes.of(
        [f"other {votes.items[i]}" for i in votes.item[order]],
        [f"other {votes.raters[r]}" for r in votes.rater[order]],
        [votes.choices[c] for c in votes.choice[order]],
    )
    assert pair_agreement(shuffled).value == pytest.approx(pair_agreement(votes).value)
    assert krippendorff_alpha(shuffled, "ordinal").value == pytest.approx(krippendorff_alpha(votes, "ordinal").value)


def test_mirroring_makes_chance_one_half_however_the_sides_were_named():
    """If the better one is always called "a", ordinary alpha sinks; mirrored it stays 2p - 1."""
    votes = logit_normal_votes(2.3, items=400, overlap=2, seed=0)
    share_of_a = (votes.counts() * [1, 0]).sum(axis=1) / 2
    flip = np.where(share_of_a[votes.item] < 0.5, 1 - votes.choice, votes.choice)
    one_sided = Votes(votes.item, votes.rater, flip, votes.items, votes.raters, votes.choices)
    p, n = pair_agreement(votes).value, 2 * len(votes)
    expected = 1 - 2 * (1 - p) * (n - 1) / n
    assert mirrored_alpha(votes, (1, 0)).value == pytest.approx(expected, rel=1e-12)
    assert mirrored_alpha(one_sided, (1, 0)).value == pytest.approx(expected, rel=1e-12)
    assert krippendorff_alpha(one_sided).value < expected - 0.2


def test_mirrored_ordinal_alpha_ignores_which_answer_was_called_a():
    votes = random_votes(5, choices=5)
    mirror = (4, 3, 2, 1, 0)
    flipped = Votes(votes.item, votes.rater, 4 - votes.choice, votes.items, votes.raters, votes.choices)
    for level in ("ordinal", "interval"):
        assert mirrored_alpha(votes, mirror, level).value == pytest.approx(mirrored_alpha(flipped, mirror, level).value)


def test_what_is_undefined_says_so():
    alone = Votes.of(["x", "y"], ["r", "s"], ["a", "b"])
    assert pair_agreement(alone).value is None
    assert "two raters" in pair_agreement(alone).note
    assert "two raters" in krippendorff_alpha(alone).note
    unanimous = Votes.of(["x", "x", "y", "y"], ["r", "s", "r", "s"], ["a"] * 4, ("a", "b"))
    assert krippendorff_alpha(unanimous).value is None
    assert "same" in krippendorff_alpha(unanimous).note
    assert mirrored_alpha(unanimous, (1, 0)).value == 1.0


def test_votes_at_a_logit_spread_of_2_3_agree_in_72_6_percent_of_pairs():
    """The simulator's acceptance figure: InstructGPT's labellers agree in 72.6 ± 1.5 %."""
    votes = logit_normal_votes(2.3, items=20_000, overlap=2, seed=1)
    found = pair_agreement(votes)
    assert found.value == pytest.approx(0.726, abs=0.01)
    assert found.low < 0.7243 < found.high  # the integral's value


def test_simulated_raters_agree_as_often_at_that_spread():
    """The raters of the product themselves, on responses whose values differ by N(0, 2.3²) units of their noise; what
    they find equal is left to a coin. (Leaving it out would leave out the pairs that are hard to agree on.)"""
    random, rater = Random(4), SimulatedRater("r", tau=1.0)
    sides = ("left", "right")
    differences = [random.gauss(0, 2.3) for _ in range(12_000)]
    choices = []
    for difference in differences:
        for _ in range(2):
            verdict = rater.judge(difference, 0.0, 40, 40, random).verdict
            choices.append(verdict if verdict in sides else random.choice(sides))
    items = [str(n // 2) for n in range(len(choices))]
    votes = Votes.of(items, ["one", "other"] * len(differences), choices, sides)
    assert pair_agreement(votes).value == pytest.approx(0.726, abs=0.01)


def test_the_mode_of_three_agrees_with_a_fourth_vote_in_75_to_78_percent():
    votes = logit_normal_votes(2.3, items=20_000, overlap=4, seed=2).choice.reshape(-1, 4)
    mode = votes[:, :3].sum(axis=1) >= 2
    assert 0.75 < (mode == votes[:, 3]).mean() < 0.78


def test_the_interval_widens_when_items_share_a_prompt():
    """Ten copies of every item, in one cluster each, are no more evidence than the originals."""
    one = logit_normal_votes(2.3, items=100, overlap=2, seed=3)
    copies = 10
    item = np.concatenate([one.item + 100 * c for c in range(copies)])
    many = Votes(
        item,
        np.tile(one.rater, copies),
        np.tile(one.choice, copies),
        tuple(map(str, range(1000))),
        one.raters,
        one.choices,
    )
    single, naive = pair_agreement(one), pair_agreement(many)
    clustered = pair_agreement(many, cluster=np.tile(np.arange(100), copies))
    assert clustered.value == pytest.approx(single.value)
    assert clustered.high - clustered.low == pytest.approx(single.high - single.low, rel=0.1)
    assert naive.high - naive.low < 0.45 * (clustered.high - clustered.low)


def strong_and_weak_votes(accuracy, items, seed):
    """Two votes per item; a vote of strength s is right with probability accuracy[s], independently."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(2, size=(items, 1))
    strength = generator.integers(len(accuracy), size=(items, 2))
    wrong = generator.random((items, 2)) >= np.asarray(accuracy)[strength]
    item, rater = np.indices((items, 2))
    names = tuple(map(str, range(items)))
    votes = Votes(item.ravel(), rater.ravel(), (truth ^ wrong).ravel(), names, ("r", "s"), ("a", "b"))
    return votes, strength.ravel(), truth.ravel()


def test_it_recovers_how_often_votes_of_each_strength_are_right():
    planted = [0.55, 0.7, 0.8, 0.95]
    votes, strength, _ = strong_and_weak_votes(planted, 40_000, seed=0)
    scale = strength_scale(votes, strength)
    np.testing.assert_allclose(scale.accuracy, planted, atol=0.02)
    average = np.mean(planted)
    agreement = [a * average + (1 - a) * (1 - average) for a in planted]
    np.testing.assert_allclose(scale.agreement, agreement, atol=0.012)
    assert scale.pairs.sum() == 80_000


def test_a_scale_that_means_nothing_is_flat():
    votes, strength, _ = strong_and_weak_votes([0.8] * 4, 20_000, seed=1)
    scale = strength_scale(votes, strength)
    assert np.ptp(scale.accuracy) < 0.03
    np.testing.assert_allclose(scale.weights(np.arange(4)), 1.0, atol=0.12)


def test_an_inverted_scale_is_pooled_to_the_average():
    votes, strength, _ = strong_and_weak_votes([0.9, 0.8, 0.7, 0.6], 20_000, seed=2)
    scale = strength_scale(votes, strength)
    np.testing.assert_allclose(scale.agreement, scale.overall, atol=1e-9)


def test_the_scale_never_falls_and_rare_strengths_stay_near_the_average():
    votes, strength, _ = strong_and_weak_votes([0.6, 0.7, 0.8, 0.9], 300, seed=3)
    strength = np.where(strength == 3, 2, strength)
    strength[0] = 3
    scale = strength_scale(votes, strength)
    assert np.all(np.diff(scale.agreement) >= 0)
    assert scale.pairs[3] == 1
    assert abs(scale.agreement[3] - scale.overall) < max(1 / 21, scale.agreement[2] - scale.overall + 1e-9)


@for_each(range(5))
def test_pooling_is_the_largest_of_the_smallest_means(seed):
    """The least-squares fit that never falls, in closed form (Barlow et al. 1972):

    fit_s = max over l ≤ s of min over u ≥ s of the mean share of l … u
    """
    planted = np.random.default_rng(seed).uniform(0.5, 0.95, size=6)
    votes, strength, _ = strong_and_weak_votes(planted, 500, seed)
    found = strength_scale(votes, strength, levels=6, pseudo=20.0)
    agree = (votes.choice.reshape(-1, 2) == votes.choice.reshape(-1, 2)[:, ::-1]).ravel()
    mass = np.array([(strength == s).sum() + 20.0 for s in range(6)])
    total = np.array([agree[strength == s].sum() + 20.0 * agree.mean() for s in range(6)])
    mean = {
        (low, high): total[low : high + 1].sum() / mass[low : high + 1].sum()
        for high in range(6)
        for low in range(high + 1)
    }
    fit = [max(min(mean[low, high] for high in range(s, 6)) for low in range(s + 1)) for s in range(6)]
    assert any(np.diff(fit) == 0), "something has to be pooled"
    np.testing.assert_allclose(found.agreement, fit, atol=1e-12)


def test_weighting_votes_by_their_strength_finds_the_truth_more_often():
    votes, strength, truth = strong_and_weak_votes([0.55, 0.65, 0.8, 0.95], 5000, seed=4)
    scale = strength_scale(votes, strength)
    plain = one_coin(votes).posterior.argmax(axis=1)
    weighted = one_coin(votes, weight=scale.weights(strength)).posterior.argmax(axis=1)
    assert (weighted == truth).mean() > (plain == truth).mean() + 0.05


def test_agreeing_shares_by_hand():
    """Item x: a a b. Each a agrees with one of two others, the b with none."""
    votes = Votes.of(["x"] * 3 + ["y"] * 2, ["r", "s", "t", "r", "s"], ["a", "a", "b", "b", "b"])
    scale = strength_scale(votes, np.array([1, 1, 0, 2, 2]), levels=3, pseudo=0.0)
    assert scale.agreement.tolist() == [0.0, 0.5, 1.0]
    assert scale.pairs.tolist() == [2, 4, 2]
    assert scale.overall == pytest.approx(3 / 5)


def test_what_cannot_be_calibrated_is_refused():
    even = Votes.of("xxyy", "rsrs", "abab")
    with pytest.raises(TutelageError, match="chance"):
        strength_scale(even, np.zeros(4, dtype=int))
    with pytest.raises(TutelageError, match="two or more raters"):
        strength_scale(Votes.of("xy", "rs", "ab"), np.zeros(2, dtype=int))
    with pytest.raises(TutelageError, match="outside 0 to 3"):
        strength_scale(even, np.array([0, 1, 2, 4]))
    with pytest.raises(TutelageError, match="two choices"):
        strength_scale(Votes.of("xxx", "rst", "abc"), np.zeros(3, dtype=int))
