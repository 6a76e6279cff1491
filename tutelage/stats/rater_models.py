"""The rater models behind reliability.py, and the loop that fits them.

A model says how votes follow from classes and parameters (`log_choice`, `log_prevalence`) and which
parameters are best for given class weights (`maximise`). Expectation-maximisation does the rest, in the log
domain:

    E: q_i(j) ∝ p(j) Π_votes P(choice | j, rater)^weight        M: parameters = maximise(q)
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from tutelage.stats.votes import Floats, Ints, Votes

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_CEILING = 0.98  # no rater is taken for infallible, nor for infallibly wrong
_ROUNDS = 500
_TOLERANCE = 1e-5

Parameters = TypeVar("Parameters")


@dataclass(frozen=True, eq=False)
class Model(Generic[Parameters]):
    """A rater model, as the fitting loop needs it: the votes, the class of each item where it is known (`gold` [I],
    else -1), and the weight of each vote [N]."""

    votes: Votes
    gold: Ints
    weight: Floats

    def informative(self) -> Floats:
        """1 for every item that says something about the raters, 0 for the others [I]."""
        return np.ones(len(self.votes.items))

    def maximise(self, posterior: Floats, start: Parameters | None) -> Parameters:
        """Best parameters for class weights [I, K]; rows of zeros are items that do not count. A model without a closed
        form improves those at `start`."""
        raise NotImplementedError

    def log_choice(self, parameters: Parameters) -> Floats:
        """log P(choice | truth, rater) [R, K, K]."""
        raise NotImplementedError

    def log_prevalence(self, parameters: Parameters) -> Floats:
        """log p(z) [K]."""
        raise NotImplementedError

    def log_prior(self, parameters: Parameters) -> float:
        """log density of the parameters, up to a constant."""
        raise NotImplementedError

    def prior_votes(self, parameters: Parameters, accuracy: Floats) -> Floats:
        """How many votes of known truth the prior is worth to each rater of this accuracy [R]."""
        raise NotImplementedError

    @cached_property
    def _weight_by_cell(self) -> "csr_matrix":
        """[I, R K]: the weight of the votes of rater r for choice k, at column r K + k."""
        from scipy.sparse import csr_matrix  # imported here, because the web application starts without it

        votes, classes = self.votes, len(self.votes.choices)
        shape = len(votes.items), len(votes.raters) * classes
        return csr_matrix((self.weight, (votes.item, votes.rater * classes + votes.choice)), shape=shape)

    def joint(self, parameters: Parameters) -> Floats:
        """log P(z = j, votes of item i) [I, K]; minus infinity for what gold excludes."""
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
class OneCoin(Model[Floats]):
    """The one-coin model. Its parameters are the accuracies of the raters [R]; `prior` holds pseudo-votes for being
    right and wrong."""

    prior: tuple[float, float]

    def informative(self) -> Floats:
        """1 for every item with gold or several raters [I]. An item that one rater alone has judged says nothing: its
        likelihood is 1/K whatever the accuracy. With weights it would seem to say something, a^w + (1 - a)^w, and make
        every rater infallible."""
        together = np.bincount(self.votes.item, minlength=len(self.votes.items)) > 1
        return (together | (self.gold >= 0)).astype(float)

    def maximise(self, posterior: Floats, start: Floats | None) -> Floats:
        counts = self.soft_counts(posterior)
        right = np.trace(counts, axis1=1, axis2=2)
        alpha, beta = self.prior
        return np.clip((right + alpha) / (counts.sum(axis=(1, 2)) + alpha + beta), 1 - _CEILING, _CEILING)

    def log_choice(self, parameters: Floats) -> Floats:
        classes = len(self.votes.choices)
        right, wrong = np.log(parameters), np.log((1 - parameters) / (classes - 1))
        return np.where(np.eye(classes, dtype=bool), right[:, None, None], wrong[:, None, None])

    def log_prevalence(self, parameters: Floats) -> Floats:
        classes = len(self.votes.choices)
        return np.full(classes, -math.log(classes))

    def log_prior(self, parameters: Floats) -> float:
        alpha, beta = self.prior
        return float((alpha * np.log(parameters) + beta * np.log(1 - parameters)).sum())

    def prior_votes(self, parameters: Floats, accuracy: Floats) -> Floats:
        return np.full(len(accuracy), sum(self.prior))


@dataclass(frozen=True, eq=False)
class Matrices:
    """The confusion matrix of each rater [R, K, K], P(choice | truth), and the prevalence of the classes [K]."""

    confusion: Floats
    prevalence: Floats


@dataclass(frozen=True, eq=False)
class ConfusionMatrices(Model[Matrices]):
    """The model of Dawid and Skene. Its parameters are `Matrices`; `prior` holds pseudo-votes for being right and
    wrong; choice k is choice `mirror[k]` with the sides swapped."""

    prior: tuple[float, float]
    mirror: Ints

    def _pseudo_votes(self) -> Floats:
        classes = len(self.votes.choices)
        alpha, beta = self.prior
        return np.where(np.eye(classes, dtype=bool), alpha, beta / (classes - 1))

    def maximise(self, posterior: Floats, start: Matrices | None) -> Matrices:
        counts = self.soft_counts(posterior)
        counts = (counts + counts[:, self.mirror][:, :, self.mirror]) / 2 + self._pseudo_votes()
        present = posterior.sum(axis=0)
        present = (present + present[self.mirror]) / 2 + 1
        return Matrices(counts / counts.sum(axis=2, keepdims=True), present / present.sum())

    def log_choice(self, parameters: Matrices) -> Floats:
        return np.log(parameters.confusion)

    def log_prevalence(self, parameters: Matrices) -> Floats:
        return np.log(parameters.prevalence)

    def log_prior(self, parameters: Matrices) -> float:
        matrices = (self._pseudo_votes() * np.log(parameters.confusion)).sum()
        return float(matrices + np.log(parameters.prevalence).sum())

    def prior_votes(self, parameters: Matrices, accuracy: Floats) -> Floats:
        return np.full(len(accuracy), sum(self.prior))


@dataclass(frozen=True, eq=False)
class Fit(Generic[Parameters]):
    """The result of expectation-maximisation: `posterior` [I, K], and `objective`, the log posterior density at
    the start and after each round."""

    parameters: Parameters
    posterior: Floats
    objective: Floats
    converged: bool


def fit(
    model: Model[Parameters],
    start: Parameters | None = None,
    *,
    rounds: int = _ROUNDS,
    tolerance: float = _TOLERANCE,
) -> Fit[Parameters]:
    """The fit of a model by expectation-maximisation until no class probability moves by more than `tolerance`, for
    `rounds` at most; from `start`, or from the golds alone."""
    known = (model.gold[:, None] == np.arange(len(model.votes.choices))).astype(float)
    informative = model.informative()
    parameters = model.maximise(known, None) if start is None else start
    posterior, objective = _posterior(model, parameters, informative)
    course, converged = [objective], False
    while not converged and len(course) <= rounds:
        parameters = model.maximise(posterior * informative[:, None], parameters)
        previous, (posterior, objective) = posterior, _posterior(model, parameters, informative)
        converged = bool(np.abs(posterior - previous).max(initial=0.0) < tolerance)
        course.append(objective)
    return Fit(parameters, posterior, np.array(course), converged)


def _posterior(model: Model[Parameters], parameters: Parameters, informative: Floats) -> tuple[Floats, float]:
    """q [I, K], and the objective (over the informative items) at the parameters that gave it."""
    joint = model.joint(parameters)
    top = np.maximum.reduce(list(joint.T))[:, None]  # faster than along so short an axis
    mass = np.exp(joint - top)
    total = mass @ np.ones((joint.shape[1], 1))
    likelihood = float((informative[:, None] * (np.log(total) + top)).sum())
    return mass / total, likelihood + model.log_prior(parameters)
