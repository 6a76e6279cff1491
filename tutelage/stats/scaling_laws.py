"""Scaling laws of reward model over-optimisation: gold score as a function of KL distance when a proxy is optimised
(Gao et al. 2022, 2210.10760).

With d = √KL(π‖π_init), scores centred on the initial policy:

    best-of-n   R(d) = d (α − β d),          KL of best-of-n = log n − (n − 1)/n
    RL          R(d) = d (α − β log d)

α is the initial slope, β the rate of over-optimisation. Avoid tiny d in a fit: the slope of the RL form at 0 is
infinite, and both forms have R(0) = 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, lgamma
from typing import Literal

import numpy as np

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.stats.vote_codes import Floats

Form = Literal["best_of_n", "rl"]


def best_of_n(proxy: Floats, value: Floats, n: int) -> Floats:
    """Mean `value` of the best of n completions by `proxy`, from N ≥ n samples per prompt.

    The unbiased estimator of Nakano et al. 2021 (2112.09332, appendix I): the mean over all subsets of n samples. In
    ascending order of the proxy, the i-th sample is the best of C(i − 1, n − 1) of the C(N, n) subsets. Equal proxies
    share their weights, like random tie-breaking.

    [P, N], [P, N] -> [P]. Raises TutelageError if n is not between 1 and N.
    """
    samples = proxy.shape[1]
    if not 1 <= n <= samples:
        raise TutelageError(f"The best of {n} cannot be estimated from {counted(samples, 'sample')} per prompt.")
    weight = _chances(samples, n)
    return np.array([_shared(row, weight) @ values for row, values in zip(proxy, value, strict=True)])


def _chances(samples: int, n: int) -> Floats:
    """C(i − 1, n − 1) / C(N, n) for i = 1 … N, computed in logarithms to avoid overflow."""

    def choose(a: int, b: int) -> float:
        return lgamma(a + 1) - lgamma(b + 1) - lgamma(a - b + 1)

    whole = choose(samples, n)
    return np.array([exp(choose(i, n - 1) - whole) if i >= n - 1 else 0.0 for i in range(samples)])


def _shared(proxy: Floats, weight: Floats) -> Floats:
    """The weight of each sample, averaged over equal proxies. [N], [N] -> [N]"""
    order = np.argsort(proxy, kind="stable")
    _, code, count = np.unique(proxy, return_inverse=True, return_counts=True)
    total = np.bincount(code[order], weights=weight)
    return np.asarray((total / count)[code])


@dataclass(frozen=True)
class ScalingLaw:
    """A fitted curve R(d); `r2` is the coefficient of determination."""

    form: Form
    alpha: float
    beta: float
    r2: float

    def __call__(self, distance: float) -> float:
        """R at d > 0."""
        first, second = _terms(self.form, np.array([distance]))
        return float(self.alpha * first[0] - self.beta * second[0])

    @property
    def peak(self) -> float | None:
        """The d that maximises R: α/2β for best-of-n, exp(α/β − 1) for RL; None without a maximum."""
        if self.beta <= 0 or (self.form == "best_of_n" and self.alpha <= 0):
            return None
        try:
            return self.alpha / (2 * self.beta) if self.form == "best_of_n" else exp(self.alpha / self.beta - 1)
        except OverflowError:
            return None


def fit_law(form: Form, distance: Sequence[float], gain: Sequence[float]) -> ScalingLaw | None:
    """Linear least squares for α and β. Points at d ≤ 0 are ignored; None with fewer than three others."""
    d, r = np.asarray(distance, float), np.asarray(gain, float)
    d, r = d[d > 0], r[d > 0]
    if len(d) < 3:
        return None
    first, second = _terms(form, d)
    design = np.stack([first, -second], axis=1)
    (alpha, beta), *_ = np.linalg.lstsq(design, r, rcond=None)
    left, spread = float(((design @ (alpha, beta) - r) ** 2).sum()), float(((r - r.mean()) ** 2).sum())
    return ScalingLaw(form, float(alpha), float(beta), 1 - left / spread if spread > 0 else float("nan"))


def _terms(form: Form, d: Floats) -> tuple[Floats, Floats]:
    return d, d * (d if form == "best_of_n" else np.log(d))
