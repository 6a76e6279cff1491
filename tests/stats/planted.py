"""Votes with a known truth behind them, for the tests of this folder."""

import numpy as np

from tutelage.stats.vote_codes import Votes


def coins(accuracy, classes=2):
    """Confusion matrices [R, K, K] of raters who err evenly."""
    accuracy = np.asarray(accuracy)[:, None, None]
    return np.where(np.eye(classes, dtype=bool), accuracy, (1 - accuracy) / (classes - 1))


def draw(confusion, prevalence, items, votes_per_item, seed):
    """Votes of raters with the given confusion matrices [R, K, K], and the truth [I]."""
    generator = np.random.default_rng(seed)
    raters, classes = len(confusion), len(prevalence)
    truth = generator.choice(classes, p=prevalence, size=items)
    rater = np.argsort(generator.random((items, raters)), axis=1)[:, :votes_per_item]
    chance = np.cumsum(confusion[rater, truth[:, None]], axis=2)
    choice = (generator.random((items, votes_per_item, 1)) > chance).sum(axis=2).clip(max=classes - 1)
    item = np.broadcast_to(np.arange(items)[:, None], rater.shape)
    sizes = (("i", items), ("r", raters), ("c", classes))
    names = [tuple(f"{kind}{x}" for x in range(size)) for kind, size in sizes]
    return Votes(item.ravel(), rater.ravel(), choice.ravel(), *names), truth


def logit_normal_votes(spread, items, overlap, seed):
    """`overlap` votes on each item, b with probability σ(d), d ~ N(0, spread²)."""
    generator = np.random.default_rng(seed)
    p = 1 / (1 + np.exp(-spread * generator.normal(size=items)))
    choice = (generator.random((items, overlap)) < p[:, None]).astype(np.int64)
    item, rater = np.indices(choice.shape)
    names = tuple(map(str, range(items))), tuple("rstuv"[:overlap]), ("a", "b")
    return Votes(item.ravel(), rater.ravel(), choice.ravel(), *names)


def shared_out(kind, raters, each, classes, overlap, seed):
    """Votes of raters with about `each` votes, `overlap` an item, and the truth. Raters are `alike`, `differing` in
    accuracy, three in ten `guessers`, `biased` towards a choice each, or `confused` about neighbouring classes."""
    generator = np.random.default_rng(seed)
    unit = np.eye(classes)
    favourite = unit[generator.integers(classes, size=raters)][:, None, :]
    share = generator.beta(1, 2, size=(raters, 1, 1))
    distance = np.abs(np.arange(classes)[:, None] - np.arange(classes))
    near = np.exp(-distance / generator.gamma(4, 0.15, size=(raters, 1, 1))) + 0.01
    confusion = {
        "alike": coins([0.75] * raters, classes),
        "differing": coins(generator.beta(6, 2.5, size=raters), classes),
        "guessers": coins(np.where(generator.random(raters) < 0.3, 1 / classes, 0.85), classes),
        "biased": (1 - share) * coins(generator.beta(12, 4, size=raters), classes) + share * favourite,
        "confused": near / near.sum(axis=2, keepdims=True),
    }[kind]
    number = np.maximum(1, generator.poisson(each, size=raters)) if raters > 10 else np.full(raters, each)
    items = max(2, int(number.sum()) // overlap)
    item = np.concatenate([generator.permutation(items)[:n] for n in number])
    rater = np.repeat(np.arange(raters), np.minimum(number, items))
    truth = generator.integers(classes, size=items)
    chance = np.cumsum(confusion[rater, truth[item]], axis=1)
    choice = (generator.random((len(item), 1)) > chance).sum(axis=1).clip(max=classes - 1)
    names = [tuple(map(str, range(size))) for size in (items, raters, classes)]
    return Votes(item, rater, choice, *names), truth
