"""Best-of-n from N scored answers to each prompt: its expected score without bias, and its exact KL, ties included."""

from collections.abc import Sequence
from itertools import groupby
from math import comb, log

import numpy as np


def expected_best(scores: Sequence[float], n: int) -> float:
    """Mean of the best of n, over all subsets of the N scores: Σᵢ C(i−1, n−1) / C(N, n) · the i-th smallest."""
    ranked = sorted(scores)
    total = comb(len(ranked), n)
    return sum(comb(i, n - 1) / total * score for i, score in enumerate(ranked))


def tied_kl(scores: Sequence[float], n: int) -> float:
    """KL(best of n‖π) in nats for one prompt, from the distribution that its N scores show.

    Best-of-n takes an answer with score in (a, b] of the distribution function with probability bⁿ − aⁿ. Where scores
    differ the density is n uⁿ⁻¹, and the KL over all of them is log n − (n − 1)/n. Answers of one score are taken as
    often as they are written, so that an atom from a to b adds (bⁿ − aⁿ) log((bⁿ − aⁿ)/(b − a)), which is less.
    """
    sizes = [len(list(same)) for _, same in groupby(sorted(scores))]
    edges = np.concatenate([[0.0], np.cumsum(sizes) / len(scores)])
    total = 0.0
    for size, a, b in zip(sizes, edges[:-1], edges[1:], strict=True):
        mass = b**n - a**n
        total += mass * log(mass / (b - a)) if size > 1 else _smooth(b, n) - _smooth(a, n)
    return total


def _smooth(u: float, n: int) -> float:
    """∫₀ᵘ n tⁿ⁻¹ log(n tⁿ⁻¹) dt = v log n + (n − 1)/n · (v log v − v) with v = uⁿ."""
    v = u**n
    return v * log(n) + (n - 1) / n * (v * log(v) - v) if v > 0 else 0.0
