"""Agreement against published worked examples, brute force over pairs of votes, and closed forms."""

from itertools import combinations
from random import Random

import numpy as np
import pytest

from tutelage.people.simulated_raters import SimulatedRater
from tutelage.stats.agreement import krippendorff_alpha, mirrored_alpha, pair_agreement
from tutelage.stats.votes import Votes

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
    choice = np.where(
        generator.random(len(item)) < 0.5, leaning[item], generator.integers(choices, size=len(item))
    )
    names = [str(k) for k in range(choices)]
    return Votes.of([f"i{x}" for x in item], [f"r{x}" for x in rater], [names[k] for k in choice], names)


@pytest.mark.parametrize(
    ("table", "level", "published"),
    [
        (KRIPPENDORFF, "nominal", 0.743),
        (KRIPPENDORFF, "ordinal", 0.815),
        (KRIPPENDORFF, "interval", 0.849),
        (WIKIPEDIA, "nominal", 0.691358),
        (WIKIPEDIA, "interval", 0.810845),
    ],
)
def test_alpha_of_the_published_examples(table, level, published):
    digits = len(str(published)) - 2
    votes = from_table(table)
    values = [float(name) for name in votes.choices]
    assert (
        round(krippendorff_alpha(votes, level, values if level == "interval" else None).value, digits)
        == published
    )


@pytest.mark.parametrize("level", ["nominal", "ordinal", "interval"])
@pytest.mark.parametrize("seed", [0, 1, 2])
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

    observed = sum(2 * squared(c, k) / (len(m) - 1) for m in by_item for c, k in combinations(m, 2)) / len(
        pool
    )
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
    assert krippendorff_alpha(shuffled, "ordinal").value == pytest.approx(
        krippendorff_alpha(votes, "ordinal").value
    )


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
        assert mirrored_alpha(votes, mirror, level).value == pytest.approx(
            mirrored_alpha(flipped, mirror, level).value
        )


def test_what_is_undefined_says_so():
    alone = Votes.of(["x", "y"], ["r", "s"], ["a", "b"])
    assert pair_agreement(alone).value is None
    assert "two or more raters" in pair_agreement(alone).note
    assert "two or more raters" in krippendorff_alpha(alone).note
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
