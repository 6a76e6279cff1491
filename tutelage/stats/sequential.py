"""Sequential inference about two means, valid however often one looks and whenever one stops.

Outcomes lie in [0, 1]; those of one arm are independent with a common mean μ (more generally, each has the mean μ given
those before it). Capital that stakes the share u on every outcome against the hypothesis "μ is at most m",

    K_t(m; u) = Π_i (1 - u + u y_i / m),        K_t(m) = Σ_u π(u) K_t(m; u),

is a non-negative supermartingale under it, so that P(K_t(m) ≥ 1/α for some t) ≤ α (Ville 1939; the betting of
Waudby-Smith and Ramdas 2024). It depends on the outcomes only through their histogram, so neither their order nor the
number of looks matters. For two arms, "μ_B - μ_A is at most δ" means that μ_A ≥ m and μ_B ≤ m + δ for m = μ_A, and

    E_t(δ) = min_m K_t(μ_A ≥ m) K_t(μ_B ≤ m + δ)

is at most the supermartingale at the true m. Its growth, min_m n_A kl(μ_A, m) + n_B kl(μ_B, m + δ), is that of the
likelihood ratio. The set of δ that no E_t rejects, in either direction, is a confidence sequence for μ_B - μ_A.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tutelage.base.errors import TutelageError
from tutelage.stats.intervals import Interval
from tutelage.stats.vote_codes import Floats

_STAKES = np.geomspace(0.002, 0.98, 32)
"""Shares of the capital that are staked, each with the same weight π: a small advantage is found by a small share."""
_CELLS = (32, 32, 64, 128, 256, 512, 1024)
_GAP = 0.005
_BISECTIONS = 13  # to a width of 2 / 2^13


@dataclass(frozen=True, eq=False)
class Arm:
    """Histogram of the outcomes of one arm: distinct `values` [V] in [0, 1] and how often each occurred, `counts`
    [V]."""

    values: Floats
    counts: Floats

    @classmethod
    def of(cls, outcomes: Iterable[float]) -> "Arm":
        """Histogram of outcomes. Raises TutelageError for an outcome outside [0, 1]."""
        seen = Counter(map(float, outcomes))
        for value in seen:
            if not 0 <= value <= 1:
                raise TutelageError(f"The outcome {value:g} is outside [0, 1].")
        return cls(np.array(list(seen)), np.array(list(seen.values()), dtype=np.float64))

    @property
    def n(self) -> int:
        """Number of outcomes."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """Mean outcome; NaN without any."""
        return float(self.values @ self.counts / self.counts.sum()) if len(self.counts) else math.nan

    @property
    def mirrored(self) -> "Arm":
        """The arm whose outcomes are 1 - y."""
        return Arm(1 - self.values, self.counts)


def log_capital(arm: Arm, bounds: Floats) -> Floats:
    """log K [M] against "the mean is at most m", for each m of `bounds` [M]. Decreasing in m."""
    m = np.clip(np.asarray(bounds, dtype=np.float64), 0, None)[:, None]
    total = np.zeros((len(m), len(_STAKES)))
    with np.errstate(divide="ignore", invalid="ignore"):
        for value, count in zip(arm.values, arm.counts, strict=True):
            ratio = np.where(m > 0, value / m, math.inf if value else 0.0)
            total += count * np.log1p(_STAKES * (ratio - 1))
        peak = total.max(axis=1)
        mixed = peak + np.log(np.exp(total - np.where(np.isinf(peak), 0, peak)[:, None]).mean(axis=1))
    return np.where(np.isinf(peak), peak, mixed)


def log_evidence(a: Arm, b: Arm, margin: float = 0.0) -> float:
    """log E against "μ_B - μ_A is at most `margin`": B is better by more than the margin if it is ever at least
    log(1/α), and this happens with probability at most α where B is not.

    The minimum over m is bounded from below, mostly within .005: the factor of A increases in m, that of B decreases,
    so that a cell holds at least the product of its ends; the cells that can hold the minimum are divided again.
    """
    margin = float(np.clip(margin, -1, 1))
    low, high = max(0.0, -margin), min(1.0, 1.0 - margin)
    for count in _CELLS:
        edges = np.linspace(low, high, count + 1)
        of_a, of_b = log_capital(a.mirrored, 1 - edges), log_capital(b, edges + margin)
        cells, most = of_a[:-1] + of_b[1:], (of_a + of_b).min()
        least = float(cells.min())
        if math.isinf(least) or most - least <= _GAP:
            break
        within = np.flatnonzero(cells <= most)
        low, high = edges[within[0]], edges[within[-1] + 1]
    return least


def difference(a: Arm, b: Arm, level: float = 0.95) -> Interval:
    """μ_B - μ_A with an interval that covers it at every look together, with probability `level`. No value, and the
    interval [-1, 1], until both arms have an outcome."""
    if not a.n or not b.n:
        return Interval(None, -1.0, 1.0)
    value, enough = b.mean - a.mean, math.log(2 / (1 - level))
    return Interval(value, _least(a, b, value, enough), -_least(b, a, -value, enough))


def _least(a: Arm, b: Arm, value: float, enough: float) -> float:
    """The largest δ, to the width of the bisection, that the evidence rejects; -1 if it rejects none."""
    low, high = -1.0, value
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if log_evidence(a, b, middle) >= enough:
            low = middle
        else:
            high = middle
    return low


def log_evidence_of_split(assigned_a: int, assigned_b: int, share_b: float) -> float:
    """log of an e-value against "each user is assigned to B with probability `share_b`": an imbalance beyond it means
    that users are lost on the way. Mixture of the likelihood over a Beta(1/2, 1/2) prior against that of the share."""
    from scipy.special import betaln

    return float(
        betaln(assigned_b + 0.5, assigned_a + 0.5)
        - betaln(0.5, 0.5)
        - assigned_b * math.log(share_b)
        - assigned_a * math.log1p(-share_b)
    )


def users_needed(mean_a: float, mean_b: float, share_b: float, level: float = 0.95, margin: float = 0.0) -> int | None:
    """Number of users of both arms after which the expected histogram of outcomes 0 and 1 shows that B is better by
    more than the margin; None if it is not, or if ten million do not suffice."""
    if mean_b - mean_a <= margin:
        return None
    means = mean_a, mean_b

    def suffice(users: int) -> bool:
        n = np.array([users * (1 - share_b), users * share_b])
        a, b = (Arm(np.array([0.0, 1.0]), k * np.array([1 - mean, mean])) for k, mean in zip(n, means, strict=True))
        return log_evidence(a, b, margin) >= math.log(1 / (1 - level))

    high = 1
    while not suffice(high):
        high *= 2
        if high > 10_000_000:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffice(middle) else (middle, high)
    return high
