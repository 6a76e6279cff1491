"""The reliability of each rater and the probable truth of each item, from the votes alone (Dawid and
Skene 1979).

Every item i has an unknown class z_i, every rater an own error pattern, and given the class votes are
independent:

    P(z, votes) = Π_i p(z_i) Π_votes P(choice | z_item, rater)

- `one_coin`: a rater is right with probability a_r, whatever the class, and errs evenly. The default for
  a-or-b choices, whose order is arbitrary. a_r has a Beta(4, 2) prior, so a newcomer counts as 2/3 and a
  single vote is never trusted blindly.
- `dawid_skene`: a rater has a full confusion matrix θ_r[truth, choice]. For classes that are not
  interchangeable, and with `mirror` for a/tie/b, where swapping the sides must not matter.

Both are fitted by expectation-maximisation in the log domain; the objective log P(votes) + log prior never
falls. Items with a known answer (gold) enter with their class fixed. The first posterior comes from the prior
and the golds alone, that is from the majority weighted by gold accuracy, so classes cannot trade places. What
no such model can see is an error that the raters share: agreement looks like truth.
"""

from dataclasses import dataclass

import numpy as np

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.stats.rater_models import ConfusionMatrices, Fit, Model, OneCoin, Parameters, fit
from tutelage.stats.votes import Floats, Ints, Votes, sum_by


@dataclass(frozen=True, eq=False)
class Reliability:
    """The reliability of raters and the probable truth of items. I items, R raters, K choices; all arrays in the
    code order of the votes.

    `posterior` [I, K]: probability of each class. `prevalence` [K]: its share overall. `accuracy` [R]:
    probability that the rater's next vote is right, with the credible interval `low`, `high`. `evidence` [R]:
    how many votes on items of *known* truth the rater's votes are worth; a vote nobody else cast on that item
    is worth none. `confusion` [R, K, K]: P(choice | truth). `objective` [rounds + 1]: log posterior density
    after each round, never falling.
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


def majority(votes: Votes) -> Floats:
    """The majority vote [I, K]: 1 for the most frequent choice of each item, shared evenly among equally frequent
    ones; 1/K without votes."""
    counts = votes.counts()
    leading = (counts == counts.max(axis=1, keepdims=True)).astype(float)
    return leading / leading.sum(axis=1, keepdims=True)


def one_coin(
    votes: Votes,
    gold: Ints | None = None,
    *,
    prior: tuple[float, float] = (4.0, 2.0),
    weight: Floats | None = None,
    level: float = 0.95,
) -> Reliability:
    """The reliability of raters with one accuracy each, classes equally likely beforehand:

        P(choice = k | z, r) = a_r if k = z else (1 - a_r)/(K - 1)
        E: q_i(k) ∝ Π_votes P(choice | k, r)           M: a_r = (Σ_votes q_item(choice) + α)/(n_r + α + β)

    `gold` [I] holds the known class of an item or -1. `weight` [N] lets a vote count as more or less than one
    (see strength.py). `prior` is (α, β): a_r is the mean of Beta(α + right, β + wrong), kept within [.02,
    .98]. Raises TutelageError with fewer than two choices and for a prior or gold that makes no sense.
    """
    codes = gold_codes(votes, gold)
    _check_prior(votes, prior)
    model = OneCoin(votes, codes, _weights(votes, weight), prior)
    return describe(model, fit(model), level)


def dawid_skene(
    votes: Votes,
    gold: Ints | None = None,
    *,
    mirror: tuple[int, ...] | None = None,
    prior: tuple[float, float] = (4.0, 2.0),
    weight: Floats | None = None,
    level: float = 0.95,
) -> Reliability:
    """The reliability of raters with a confusion matrix each, classes with a prevalence:

        P(choice = k | z = j, r) = θ_r[j, k]
        M: θ_r[j, k] ∝ Σ_votes q_item(j) 1[choice = k] + prior[j, k],   p_j = (Σ_i q_i(j) + 1)/(I + K)

    `prior` is (α, β): every row of θ has α pseudo-votes on the diagonal and β spread evenly over the errors.
    With `mirror` (choice k becomes mirror[k] when the sides are swapped; (2, 1, 0) for a/tie/b) θ[j, k] =
    θ[mirror j, mirror k]: the two-coin model with ties, which needs some 50 votes per rater to say more than
    `one_coin` does. `accuracy` is Σ_j p_j θ_r[j, j]; its interval takes the errors as even. Other arguments
    and errors as in `one_coin`.
    """
    symmetric = mirror if mirror is not None else tuple(range(len(votes.choices)))
    codes = gold_codes(votes, gold)
    _check_prior(votes, prior)
    model = ConfusionMatrices(votes, codes, _weights(votes, weight), prior, np.array(symmetric))
    return describe(model, fit(model), level)


def posterior(
    votes: Votes, accuracy: Floats, gold: Ints | None = None, *, weight: Floats | None = None
) -> Floats:
    """Class probabilities [I, K] of items judged by raters of these accuracies [R], `one_coin`'s E-step:

        q_i(k) ∝ Π_votes P(choice | k, r)^weight

    With `weight` relative to an average vote (`StrengthScale.weights`) and accuracies fitted without, a vote of given
    strength by an average rater is right as often as the scale found. Fitting with such weights would count the
    strength twice: the accuracies would be those of strong votes.
    """
    model = OneCoin(votes, gold_codes(votes, gold), _weights(votes, weight), (4.0, 2.0))
    joint = model.joint(accuracy)
    mass = np.exp(joint - joint.max(axis=1, keepdims=True))
    return mass / mass.sum(axis=1, keepdims=True)


def gold_codes(votes: Votes, gold: Ints | None) -> Ints:
    """The known class of each item or -1 [I]. Raises TutelageError for fewer than two choices and for a class that does
    not exist."""
    if len(votes.choices) < 2:
        raise TutelageError("Reliability needs at least two different choices; these votes have fewer.")
    codes = np.full(len(votes.items), -1) if gold is None else np.asarray(gold)
    if codes.shape != (len(votes.items),) or (len(codes) and codes.max() >= len(votes.choices)):
        raise TutelageError(
            f"Gold must hold one class code (or -1) for each of the {counted(len(votes.items), 'item')}, "
            f"below {len(votes.choices)}."
        )
    return codes


def _check_prior(votes: Votes, prior: tuple[float, float]) -> None:
    alpha, beta = prior
    if not alpha > beta / (len(votes.choices) - 1) > 0:
        raise TutelageError(
            f"The prior ({alpha:g}, {beta:g}) does not hold raters to be better than chance, so the classes "
            "could not be told apart. Give being right more pseudo-votes than each error, and some to both."
        )


def _weights(votes: Votes, weight: Floats | None) -> Floats:
    return np.ones(len(votes)) if weight is None else np.asarray(weight, dtype=float)


def describe(model: Model[Parameters], found: Fit[Parameters], level: float = 0.95) -> Reliability:
    """What a fitted rater model says about raters and items, with intervals of this `level`."""
    from scipy.special import betaincinv

    prevalence = np.exp(model.log_prevalence(found.parameters))
    confusion = np.exp(model.log_choice(found.parameters))
    accuracy = np.einsum("j,rjj->r", prevalence, confusion)
    evidence = _evidence(model, found.parameters, accuracy)
    votes = evidence + model.prior_votes(found.parameters, accuracy)
    low, high = (
        betaincinv(accuracy * votes, (1 - accuracy) * votes, p) for p in ((1 - level) / 2, (1 + level) / 2)
    )
    return Reliability(
        found.posterior,
        prevalence,
        accuracy,
        low,
        high,
        evidence,
        confusion,
        found.objective,
        found.converged,
    )


def _evidence(model: Model[Parameters], parameters: Parameters, accuracy: Floats) -> Floats:
    """[R]: how many votes of known truth the rater's votes are worth for the accuracy a.

    Let m be the class probabilities of the item *without* this vote. The vote is k with probability
    P_k = a m_k + (1 - a)(1 - m_k)/(K - 1) and carries the Fisher information Σ_k (dP_k/da)²/P_k about a:
    1/(a(1 - a)) if the truth is known, none if m is even. The sum over votes times a(1 - a) counts votes of
    known truth. (With the rater's own vote in m, someone who works alone would soon look certain; for the same
    reason an item that nobody else judged counts nothing, whatever the prevalence says of it.)
    """
    votes, classes = model.votes, len(model.votes.choices)
    own = np.moveaxis(model.log_choice(parameters), 1, 2)[votes.rater, votes.choice]
    others = model.joint(parameters)[votes.item] - model.weight[:, None] * own
    others = np.exp(others - others.max(axis=1, keepdims=True))
    others /= others.sum(axis=1, keepdims=True)
    a = accuracy[votes.rater][:, None]
    slope = others - (1 - others) / (classes - 1)
    chance = a * others + (1 - a) * (1 - others) / (classes - 1)
    judged_by_others = (np.bincount(votes.item, minlength=len(votes.items)) > 1) | (model.gold >= 0)
    information = model.weight * judged_by_others[votes.item] * (slope**2 / chance).sum(axis=1)
    return accuracy * (1 - accuracy) * sum_by(votes.rater, information, len(votes.raters))
