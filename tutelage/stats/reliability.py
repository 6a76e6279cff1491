"""Rater models: each rater's reliability and each item's true class, estimated from votes (Dawid and Skene 1979).

A model defines the likelihood of votes (`log_choice`, `log_prevalence`) and the optimal parameters for given class
weights (`maximise`). Models are fitted by expectation-maximisation in the log domain:

    E: q_i(j) ∝ p(j) Π_votes P(choice | j, rater)^weight        M: parameters = maximise(q)

Every item i has an unknown class z_i, every rater an individual error pattern, and votes are independent given the
class:

    P(z, votes) = Π_i p(z_i) Π_votes P(choice | z_item, rater)

- `one_coin`: a rater is right with probability a_r, whatever the class, and errs evenly. The default for
  a-or-b choices, whose order is arbitrary. a_r has a Beta(4, 2) prior, so a new rater has accuracy 2/3 and a
  single vote is never certain.
- `dawid_skene`: a rater has a full confusion matrix θ_r[truth, choice]. For classes that are not interchangeable.

The objective log P(votes) + log prior never decreases. Items with a known answer (gold) have a fixed class. The initial
posterior uses the prior and the golds alone, i.e. the majority weighted by gold accuracy, so class labels cannot
switch. No such model can detect an error that all raters share: agreement is taken as truth.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.stats.vote_codes import Floats, Ints, Votes, softmax, sum_by

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_CEILING = 0.98  # bounds accuracies away from 0 and 1
_RIGHT, _WRONG = 4.0, 2.0  # pseudo-votes of the prior
_ROUNDS = 500
_TOLERANCE = 1e-5

Parameters = TypeVar("Parameters")


@dataclass(frozen=True, eq=False)
class RaterModel(Generic[Parameters]):
    """A rater model for the fitting loop: the votes, the known class of each item (`gold` [I], -1 if unknown), and the
    weight of each vote [N]."""

    votes: Votes
    gold: Ints
    weight: Floats

    def informative(self) -> Floats:
        """1 for every item with information about the raters, 0 for the others [I]."""
        return np.ones(len(self.votes.items))

    def maximise(self, posterior: Floats, start: Parameters | None) -> Parameters:
        """Optimal parameters for class weights [I, K]; rows of zeros are ignored items. Models without a closed form
        improve the parameters `start`."""
        raise NotImplementedError

    def log_choice(self, parameters: Parameters) -> Floats:
        """log P(choice | truth, rater) [R, K, K]."""
        raise NotImplementedError

    def log_prevalence(self, parameters: Parameters) -> Floats:
        """log p(z) [K]."""
        raise NotImplementedError

    def log_prior(self, parameters: Parameters) -> float:
        """Log density of the parameters, up to a constant."""
        raise NotImplementedError

    def prior_votes(self, parameters: Parameters, accuracy: Floats) -> Floats:
        """The weight of the prior in votes of known truth, for each rater of this accuracy [R]."""
        raise NotImplementedError

    @cached_property
    def _weight_by_cell(self) -> "csr_matrix":
        """[I, R K]: the weights of rater r's votes for choice k, in column r K + k."""
        from scipy.sparse import csr_matrix  # lazy: the web application starts without scipy

        votes, classes = self.votes, len(self.votes.choices)
        shape = len(votes.items), len(votes.raters) * classes
        return csr_matrix((self.weight, (votes.item, votes.rater * classes + votes.choice)), shape=shape)

    def joint(self, parameters: Parameters) -> Floats:
        """log P(z = j, votes of item i) [I, K]; minus infinity for classes excluded by gold."""
        classes = len(self.votes.choices)
        by_truth = self.log_choice(parameters).transpose(0, 2, 1).reshape(-1, classes)
        joint = self._weight_by_cell @ by_truth + self.log_prevalence(parameters)
        excluded = (self.gold[:, None] >= 0) & (self.gold[:, None] != np.arange(classes))
        return np.where(excluded, -np.inf, joint)

    def soft_counts(self, posterior: Floats) -> Floats:
        """[R, K, K]: expected votes by rater, truth and choice."""
        raters, classes = len(self.votes.raters), len(self.votes.choices)
        by_choice = (self._weight_by_cell.T @ posterior).reshape(raters, classes, classes)
        return np.asarray(by_choice.transpose(0, 2, 1))


@dataclass(frozen=True, eq=False)
class OneCoin(RaterModel[Floats]):
    """The one-coin model, whose parameters are the accuracies of the raters [R]."""

    def informative(self) -> Floats:
        """1 for every item with gold or several raters [I]. An item with a single rater has no information: its
        likelihood is 1/K whatever the accuracy. With weights it would become a^w + (1 - a)^w, which favours extreme
        accuracies."""
        return ((self.votes.per_item() > 1) | (self.gold >= 0)).astype(float)

    def maximise(self, posterior: Floats, start: Floats | None) -> Floats:
        counts = self.soft_counts(posterior)
        right = np.trace(counts, axis1=1, axis2=2)
        return np.clip((right + _RIGHT) / (counts.sum(axis=(1, 2)) + _RIGHT + _WRONG), 1 - _CEILING, _CEILING)

    def log_choice(self, parameters: Floats) -> Floats:
        classes = len(self.votes.choices)
        right, wrong = np.log(parameters), np.log((1 - parameters) / (classes - 1))
        return np.where(np.eye(classes, dtype=bool), right[:, None, None], wrong[:, None, None])

    def log_prevalence(self, parameters: Floats) -> Floats:
        classes = len(self.votes.choices)
        return np.full(classes, -math.log(classes))

    def log_prior(self, parameters: Floats) -> float:
        return float((_RIGHT * np.log(parameters) + _WRONG * np.log(1 - parameters)).sum())

    def prior_votes(self, parameters: Floats, accuracy: Floats) -> Floats:
        return np.full(len(accuracy), _RIGHT + _WRONG)


@dataclass(frozen=True, eq=False)
class Matrices:
    """The confusion matrix of each rater [R, K, K], P(choice | truth), and the prevalence of the classes [K]."""

    confusion: Floats
    prevalence: Floats


@dataclass(frozen=True, eq=False)
class ConfusionMatrices(RaterModel[Matrices]):
    """The model of Dawid and Skene, whose parameters are `Matrices`."""

    def _pseudo_votes(self) -> Floats:
        classes = len(self.votes.choices)
        return np.where(np.eye(classes, dtype=bool), _RIGHT, _WRONG / (classes - 1))

    def maximise(self, posterior: Floats, start: Matrices | None) -> Matrices:
        counts = self.soft_counts(posterior) + self._pseudo_votes()
        present = posterior.sum(axis=0) + 1
        return Matrices(counts / counts.sum(axis=2, keepdims=True), present / present.sum())

    def log_choice(self, parameters: Matrices) -> Floats:
        return np.log(parameters.confusion)

    def log_prevalence(self, parameters: Matrices) -> Floats:
        return np.log(parameters.prevalence)

    def log_prior(self, parameters: Matrices) -> float:
        matrices = (self._pseudo_votes() * np.log(parameters.confusion)).sum()
        return float(matrices + np.log(parameters.prevalence).sum())

    def prior_votes(self, parameters: Matrices, accuracy: Floats) -> Floats:
        return np.full(len(accuracy), _RIGHT + _WRONG)


@dataclass(frozen=True, eq=False)
class RaterFit(Generic[Parameters]):
    """The result of expectation-maximisation: `posterior` [I, K], and `objective`, the log posterior density at the
    start and after each round."""

    parameters: Parameters
    posterior: Floats
    objective: Floats
    converged: bool


def fit(
    model: RaterModel[Parameters],
    start: Parameters | None = None,
    *,
    rounds: int = _ROUNDS,
    tolerance: float = _TOLERANCE,
) -> RaterFit[Parameters]:
    """Fit a model by expectation-maximisation until no class probability changes by more than `tolerance`, for at most
    `rounds` rounds; from `start`, or by default from the golds alone."""
    classes = (model.gold[:, None] == np.arange(len(model.votes.choices))).astype(float)
    informative = model.informative()
    parameters = model.maximise(classes, None) if start is None else start
    posterior, objective = _posterior(model, parameters, informative)
    course, converged = [objective], False
    while not converged and len(course) <= rounds:
        parameters = model.maximise(posterior * informative[:, None], parameters)
        previous, (posterior, objective) = posterior, _posterior(model, parameters, informative)
        converged = bool(np.abs(posterior - previous).max(initial=0.0) < tolerance)
        course.append(objective)
    return RaterFit(parameters, posterior, np.array(course), converged)


def _posterior(model: RaterModel[Parameters], parameters: Parameters, informative: Floats) -> tuple[Floats, float]:
    """q [I, K] and the objective (over the informative items) at these parameters."""
    joint = model.joint(parameters)
    top = np.maximum.reduce(list(joint.T))[:, None]  # faster than a reduction over a short axis
    mass = np.exp(joint - top)
    total = mass @ np.ones((joint.shape[1], 1))
    likelihood = float((informative[:, None] * (np.log(total) + top)).sum())
    return mass / total, likelihood + model.log_prior(parameters)


@dataclass(frozen=True, eq=False)
class Reliability:
    """Estimated reliability of raters and true classes of items. I items, R raters, K choices; all arrays in the
    code order of the votes.

    `posterior` [I, K]: probability of each class. `prevalence` [K]: its share overall. `accuracy` [R]:
    probability that the rater's next vote is right, with the credible interval `low`, `high`. `evidence` [R]: the
    rater's votes as an equivalent number of votes on items of *known* truth; the only vote on an item counts 0.
    `confusion` [R, K, K]: P(choice | truth). `objective` [rounds + 1]: log posterior density after each round,
    non-decreasing. Where items differ within a class, `states` [I, J] are the probabilities of finer states, and
    `state_choice` [R, J, K] is P(choice | state).
    """

    posterior: Floats
    prevalence: Floats
    accuracy: Floats
    low: Floats
    high: Floats
    evidence: Floats
    confusion: Floats
    objective: Floats
    converged: bool
    states: Floats | None = None
    state_choice: Floats | None = None

    def chance(self, item: Ints, rater: Ints) -> Floats:
        """P(choice) of these raters on these items [n, K]."""
        states = self.posterior if self.states is None else self.states
        choice = self.confusion if self.state_choice is None else self.state_choice
        return np.asarray(np.einsum("nj,njk->nk", states[item], choice[rater]))


def majority(votes: Votes) -> Floats:
    """The majority vote [I, K]: 1 for the most frequent choice of each item, split evenly between ties; 1/K without
    votes."""
    counts = votes.counts()
    leading = (counts == counts.max(axis=1, keepdims=True)).astype(float)
    return leading / leading.sum(axis=1, keepdims=True)


def one_coin(
    votes: Votes, gold: Ints | None = None, *, weight: Floats | None = None, level: float = 0.95
) -> Reliability:
    """Reliability of raters with one accuracy each, under a uniform prior over classes:

        P(choice = k | z, r) = a_r if k = z else (1 - a_r)/(K - 1)
        E: q_i(k) ∝ Π_votes P(choice | k, r)           M: a_r = (Σ_votes q_item(choice) + 4)/(n_r + 4 + 2)

    `gold` [I] holds the known class of an item or -1. `weight` [N] are the weights of votes, 1 by default
    (see `StrengthScale.weights`). a_r is the mean of Beta(4 + right, 2 + wrong), clipped to [.02, .98]. Raises
    TutelageError for fewer than two choices or an invalid gold.
    """
    model = OneCoin(votes, gold_codes(votes, gold), _weights(votes, weight))
    return describe(model, fit(model), level)


def dawid_skene(
    votes: Votes, gold: Ints | None = None, *, weight: Floats | None = None, level: float = 0.95
) -> Reliability:
    """Reliability of raters with a confusion matrix each, and estimated class prevalences:

        P(choice = k | z = j, r) = θ_r[j, k]
        M: θ_r[j, k] ∝ Σ_votes q_item(j) 1[choice = k] + prior[j, k],   p_j = (Σ_i q_i(j) + 1)/(I + K)

    The prior of every row of θ has 4 pseudo-votes on the diagonal and 2 spread evenly over the errors. `accuracy` is
    Σ_j p_j θ_r[j, j]; its interval assumes even errors. Arguments and errors as in `one_coin`.
    """
    model = ConfusionMatrices(votes, gold_codes(votes, gold), _weights(votes, weight))
    return describe(model, fit(model), level)


def posterior(votes: Votes, accuracy: Floats, gold: Ints | None = None, *, weight: Floats | None = None) -> Floats:
    """Class probabilities [I, K] of items judged by raters of these accuracies [R], `one_coin`'s E-step:

        q_i(k) ∝ Π_votes P(choice | k, r)^weight

    With `weight` relative to an average vote (`StrengthScale.weights`) and accuracies fitted without weights, a vote
    of given strength by an average rater has the accuracy of the scale. Fitting with such weights would count strength
    twice, because the accuracies would be those of strong votes.
    """
    model = OneCoin(votes, gold_codes(votes, gold), _weights(votes, weight))
    return softmax(model.joint(accuracy))


def gold_codes(votes: Votes, gold: Ints | None) -> Ints:
    """The known class of each item or -1 [I]. Raises TutelageError for fewer than two choices or an unknown class."""
    if len(votes.choices) < 2:
        raise TutelageError("Reliability needs at least two different choices; these votes have fewer.")
    codes = np.full(len(votes.items), -1) if gold is None else np.asarray(gold)
    if codes.shape != (len(votes.items),) or (len(codes) and codes.max() >= len(votes.choices)):
        raise TutelageError(
            f"Gold must hold one class code (or -1) for each of the {counted(len(votes.items), 'item')}, "
            f"below {len(votes.choices)}."
        )
    return codes


def _weights(votes: Votes, weight: Floats | None) -> Floats:
    return np.ones(len(votes)) if weight is None else np.asarray(weight, dtype=float)


def describe(model: RaterModel[Parameters], fitted: RaterFit[Parameters], level: float = 0.95) -> Reliability:
    """The `Reliability` from a fitted rater model, with intervals of this `level`."""
    prevalence = np.exp(model.log_prevalence(fitted.parameters))
    confusion = np.exp(model.log_choice(fitted.parameters))
    accuracy = np.einsum("j,rjj->r", prevalence, confusion)
    votes = model.votes
    own = np.moveaxis(model.log_choice(fitted.parameters), 1, 2)[votes.rater, votes.choice]
    others = model.joint(fitted.parameters)[votes.item] - model.weight[:, None] * own
    evidence = equivalent_votes(votes, model.gold, model.weight, softmax(others), accuracy)
    low, high = beta_interval(accuracy, evidence + model.prior_votes(fitted.parameters, accuracy), level)
    return Reliability(
        fitted.posterior, prevalence, accuracy, low, high, evidence, confusion, fitted.objective, fitted.converged
    )


def beta_interval(mean: Floats, votes: Floats, level: float = 0.95) -> tuple[Floats, Floats]:
    """Quantiles (1 ± level)/2 of the Beta distributions of these means that are worth these numbers of votes [R]."""
    from scipy.special import betaincinv

    low, high = (betaincinv(mean * votes, (1 - mean) * votes, p) for p in ((1 - level) / 2, (1 + level) / 2))
    return low, high


def equivalent_votes(votes: Votes, gold: Ints, weight: Floats, others: Floats, accuracy: Floats) -> Floats:
    """[R]: the equivalent number of votes of known truth, as information about the accuracy a.

    Let m be the class probabilities of the item *without* this vote, `others` [N, K]. The vote is k with probability
    P_k = a m_k + (1 - a)(1 - m_k)/(K - 1) and carries the Fisher information Σ_k (dP_k/da)²/P_k about a:
    1/(a(1 - a)) if the truth is known, none if m is even. The sum over votes times a(1 - a) counts votes of
    known truth. (Including the rater's own vote in m would make raters without co-raters look certain; for
    the same reason items without other raters count 0, whatever the prevalence.)
    """
    classes = len(votes.choices)
    a = accuracy[votes.rater][:, None]
    slope = others - (1 - others) / (classes - 1)
    chance = a * others + (1 - a) * (1 - others) / (classes - 1)
    judged_by_others = (votes.per_item() > 1) | (gold >= 0)
    information = weight * judged_by_others[votes.item] * (slope**2 / chance).sum(axis=1)
    return accuracy * (1 - accuracy) * sum_by(votes.rater, information, len(votes.raters))
