"""The worked case of docs/explanation/ties.md: raters with private thresholds, and models fitted to unlimited items.

    python -m bench.private_thresholds

A share `ties` of the items has the difference d = 0, the others d = ± spread |x|, x ~ N(0, 1). A rater sees d with
logistic noise and votes "equal" within the threshold, so with F = σ

    P(equal | d) = F(t - d) - F(-t - d),        P(a | d) = F(-t - d),        t = threshold · exp(N(0, private²)),

averaged over raters: votes on an item are independent given d. The models see all possible counts of n votes with their
exact probabilities, and are fitted by expectation-maximisation: no sampling error, so a difference is one of models.

The second table has, for worlds without true ties, those with many of them whose votes are most alike (`twin`).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linprog, minimize
from scipy.special import expit, gammaln, ndtri

from tutelage.stats.vote_codes import Floats, Ints

NODES = 400
RATERS = 41
ROUNDS = 4_000
MIRROR = [2, 1, 0]
TOLD = math.log(20)  # log-likelihood ratio by which votes tell one world from another


@dataclass(frozen=True)
class Case:
    """The items and the raters of the worked case, d = ± spread |x|^power."""

    ties: float
    threshold: float
    private: float = 0.5
    spread: float = 2.5
    power: float = 1.0

    def differences(self) -> tuple[Floats, Floats]:
        """d ≥ 0 of each state of an item and its probability, the tie first; d < 0 follows by symmetry."""
        d = self.spread * ndtri(0.5 + (np.arange(NODES) + 0.5) / (2 * NODES)) ** self.power
        return np.append(0.0, d), np.append(self.ties, np.full(NODES, (1 - self.ties) / NODES))

    def votes(self, d: Floats) -> Floats:
        """P(vote for a, equal, b) where b is better by d [D, 3]."""
        t = self.threshold * np.exp(self.private * ndtri((np.arange(RATERS) + 0.5) / RATERS))
        a, b = expit(-t - d[:, None]).mean(axis=1), expit(d[:, None] - t).mean(axis=1)
        return np.stack([a, 1 - a - b, b], axis=1)

    def joint(self, votes: int) -> Floats:
        """P(counts of n votes, class) [C, 3], in the order of `compositions`."""
        counts, coefficient = compositions(votes)
        d, weight = self.differences()
        chance = self.votes(d)
        b = np.exp(counts @ np.log(chance).T + coefficient[:, None]) * weight  # [C, D]: b is better or equal
        a = np.exp(counts @ np.log(chance[:, MIRROR]).T + coefficient[:, None]) * weight
        return np.stack([a[:, 1:].sum(axis=1) / 2, b[:, 0], b[:, 1:].sum(axis=1) / 2], axis=1)


@dataclass(frozen=True)
class Twin:
    """The `case` with another share of ties whose votes are most like those of the first; the number of `items` whose
    votes tell the two apart, by a likelihood ratio of 20 on average; the accuracy in both of the labels that are best
    in the first world, and of the `majority`; and `cautious`, the best accuracy in the first world of labels that are
    not worse than the majority's in the twin."""

    case: Case
    items: float
    accuracy: tuple[float, float]
    majority: tuple[float, float]
    cautious: float


def twin(case: Case, ties: float, votes: int) -> Twin:
    """Minimise KL(votes in `case`, votes in the twin) over the twin's threshold, spread and power."""
    first = case.joint(votes)
    votes_alone = first.sum(axis=1)

    def other(logs: Floats) -> Case:
        threshold, spread, power = map(float, np.exp(logs))
        return replace(case, ties=ties, threshold=threshold, spread=spread, power=power)

    def distance(logs: Floats) -> float:
        return float(votes_alone @ np.log(votes_alone / other(logs).joint(votes).sum(axis=1)))

    best = minimize(
        distance, np.log([case.threshold, case.spread, case.power]), method="Nelder-Mead", options={"fatol": 1e-10}
    )
    second = other(best.x).joint(votes)
    counts, _ = compositions(votes)
    leading = counts == counts.max(axis=1, keepdims=True)
    labels = np.eye(3)[first.argmax(axis=1)], leading / leading.sum(axis=1, keepdims=True)
    (own, its), majority = ([float((p * label).sum()) for p in (first, second)] for label in labels)
    return Twin(
        other(best.x),
        TOLD / max(float(best.fun), 1e-12),
        (own, its),
        (majority[0], majority[1]),
        best_accuracy(first, second, majority[1]),
    )


def best_accuracy(first: Floats, second: Floats, least: float) -> float:
    """The best accuracy under the joint distribution `first` of votes and classes [C, 3] of labels, random ones
    included, whose accuracy under `second` is `least` or more: a linear programme in P(label | votes)."""
    patterns, classes = first.shape
    solution = linprog(
        -first.ravel(),
        A_ub=-second.reshape(1, -1),
        b_ub=[-least],
        A_eq=np.kron(np.eye(patterns), np.ones(classes)),
        b_eq=np.ones(patterns),
    )
    return -float(solution.fun)


@dataclass(frozen=True)
class Fit:
    """The mean log-probability of one more vote in nats, and the accuracy of the labels."""

    log_vote: float
    accuracy: float


def compositions(votes: int) -> tuple[Ints, Floats]:
    """All counts of three choices [C, 3] and the logarithms of their multinomial coefficients [C]."""
    grid = np.array([(a, e, votes - a - e) for a in range(votes + 1) for e in range(votes + 1 - a)])
    return grid, gammaln(votes + 1) - gammaln(grid + 1).sum(axis=1)


def compare(case: Case, votes: int) -> dict[str, Fit]:
    """The fits of the majority, the one-coin model, the model of Dawid and Skene with equal raters, and the truth."""
    counts, coefficient = compositions(votes)
    d, weight = case.differences()
    chance = case.votes(d)
    by_state = np.exp(counts @ np.log(chance).T + coefficient[:, None])  # [C, D]: b is better or equal
    mirrored = np.exp(counts @ np.log(chance[:, MIRROR]).T + coefficient[:, None])
    tie, b, a = weight[0] * by_state[:, 0], by_state[:, 1:] @ weight[1:] / 2, mirrored[:, 1:] @ weight[1:] / 2
    truth = np.stack([a, tie, b], axis=1)  # P(counts, class)
    future = (by_state @ (chance * weight[:, None]) + mirrored @ (chance[:, MIRROR] * weight[:, None])) / 2

    def judge(posterior: Floats, confusion: Floats) -> Fit:
        leading = posterior >= posterior.max(axis=1, keepdims=True) * (1 - 1e-9)
        label = leading / leading.sum(axis=1, keepdims=True)
        return Fit(float((future * np.log(posterior @ confusion)).sum()), float((truth * label).sum()))

    def mixture(confusion: Floats, prevalence: Floats) -> Floats:
        joint = np.log(prevalence) + counts @ np.log(confusion).T
        q = np.exp(joint - joint.max(axis=1, keepdims=True))
        return q / q.sum(axis=1, keepdims=True)

    def expectation(free: bool) -> tuple[Floats, Floats]:
        confusion, prevalence = np.full((3, 3), 0.15) + 0.55 * np.eye(3), np.full(3, 1 / 3)
        seen = truth.sum(axis=1)
        for _ in range(ROUNDS):
            q = mixture(confusion, prevalence) * seen[:, None]
            expected = q.T @ counts
            if free:
                expected = expected + expected[MIRROR][:, MIRROR]
                prevalence = q.sum(axis=0)
                prevalence = (prevalence + prevalence[MIRROR]) / 2
                moved = expected / expected.sum(axis=1, keepdims=True)
            else:
                right = np.trace(expected) / expected.sum()
                moved = np.where(np.eye(3) > 0, right, (1 - right) / 2)
            settled = np.abs(moved - confusion).max() < 1e-10
            confusion = moved
            if settled:
                break
        return confusion, prevalence

    coin, matrix = expectation(free=False), expectation(free=True)
    exact = truth / truth.sum(axis=1, keepdims=True)
    known = Fit(
        float((future * np.log(future / future.sum(axis=1, keepdims=True))).sum()), judge(exact, matrix[0]).accuracy
    )
    return {
        "majority": judge(np.exp(counts - counts.max(axis=1, keepdims=True)) * 1.0, coin[0]),
        "one-coin": judge(mixture(*coin), coin[0]),
        "matrix": judge(mixture(*matrix), matrix[0]),
        "ordinal": known,
    }


def twins_table() -> Iterator[str]:
    """The rows of the page's table of twins."""
    for threshold, ties in ((0.8, 0.3), (1.5, 0.4)):
        for votes in (2, 3, 6, 12):
            other = twin(Case(0.0, threshold), ties, votes)
            world = f"{other.case.threshold:.2f}, {other.case.spread:.2f}, {other.case.power:.2f}"
            pairs = (f"{own:.3f}, {its:.3f}" for own, its in (other.majority, other.accuracy))
            cells = [f"{threshold}, {ties:.0%}", str(votes), world, *pairs, f"{other.cautious:.3f}"]
            yield f"| {' | '.join(cells)} | {other.items:,.0f} |"


def models_table() -> Iterator[str]:
    """The rows of the page's table of models."""
    for threshold in (0.5, 1.5):
        for ties in (0.0, 0.1, 0.3):
            for votes in (3, 6, 12, 40):
                found = compare(Case(ties, threshold), votes)
                cells = [f"{fit.accuracy:.3f}" for fit in found.values()]
                gain = [f"{found[name].log_vote - found['one-coin'].log_vote:+.3f}" for name in ("matrix", "ordinal")]
                yield f"| {threshold} | {ties:.0%} | {votes} | " + " | ".join([*cells, *gain]) + " |"


if __name__ == "__main__":
    print(*models_table(), "", *twins_table(), sep="\n")
