"""Votes with a known truth behind them, for the tests of this folder."""

import numpy as np

from tutelage.stats.votes import Votes


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
