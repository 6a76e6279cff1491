"""The hierarchical rater model: a shared confusion matrix, and each rater's deviation from it.

The choice of rater r on an item of class j is a multinomial logit,

    P(k | j, r) = softmax_k( M[j, k] + t_r 1[k = j] + c_r[k] ),        t_r ~ N(0, τ²),  c_r[k] ~ N(0, κ²)

with the pooled logits M, the ability t_r and the bias c_r of the rater. M is b on the diagonal plus a pattern of
errors, M[j, k] = b 1[k = j] + e[j, k] with e ~ N(0, σ²). The spreads τ, κ, σ are estimated from the votes:
raters with few votes are shrunk to the typical rater, and if all raters are alike, they have equal weights. Omitted
`Effects` are zero; without any of them the posterior mode is the majority vote.

The modes of t, c, e and b are found by Newton's method within expectation-maximisation; the spreads by the
Laplace approximation of their expectation (Breslow and Clayton 1993),

    τ² = Σ_r (t_r² + Var t_r)/R,        Var t_r from the inverse of the negative Hessian of log P(votes),

which marginalises the classes: treating the posterior as known classes would understate the uncertainty of raters with
few votes on items with few votes. There are four pseudo-raters of spread .5.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from tutelage.stats.reliability import RaterFit, RaterModel, fit
from tutelage.stats.vote_codes import Floats, sum_by

_TYPICAL = 0.7  # prior mean accuracy for b, with a standard deviation of 1.5 logits
_BASE_SPREAD = 1.5
_PSEUDO, _PSEUDO_SPREAD = 4.0, 0.5
_LONGEST_STEP = 1.0
_HALVINGS = 4
_SETTLED = 0.02  # relative change of a spread at convergence
_STEEPEST = 0.9  # maximum slope of a spread's update in the secant step


@dataclass(frozen=True)
class Effects:
    """Effects of a rater model: `ability` and `bias` per rater, and an error `pattern` shared by all. With a pattern
    the prevalences are estimated, otherwise they are uniform."""

    ability: bool = False
    bias: bool = False
    pattern: bool = False


@dataclass(frozen=True)
class Spreads:
    """Standard deviations in logits: of the abilities (τ), the biases (κ) and the pattern of errors (σ)."""

    ability: float = 0.7
    bias: float = 0.5
    pattern: float = 0.5

    def logs(self) -> Floats:
        """The logarithms of the spreads [3]."""
        return np.log([self.ability, self.bias, self.pattern])

    @classmethod
    def of(cls, logs: Floats) -> "Spreads":
        """The spreads with these logarithms [3]."""
        return cls(*np.exp(logs).tolist())


@dataclass(frozen=True, eq=False)
class Deviations:
    """The parameters: `base` b, `pattern` e [K, K], `own` [R, 1 + K] with t_r and c_r, the `prevalence` [K], and the
    `spreads` of the deviations."""

    base: float
    pattern: Floats
    own: Floats
    prevalence: Floats
    spreads: Spreads = Spreads()


@dataclass(frozen=True, eq=False)
class Hierarchical(RaterModel[Deviations]):
    """The hierarchical model. `maximise` leaves the spreads fixed, so that the objective of a fit is comparable across
    rounds; `estimate_spreads` updates them."""

    effects: Effects

    def maximise(self, posterior: Floats, start: Deviations | None) -> Deviations:
        """One Newton step from `start` for the shared parameters and one for each rater; no step decreases the expected
        log posterior."""
        now = start or self._prior_mode()
        counts = self.soft_counts(posterior)
        if self.effects.pattern:
            share = posterior.sum(axis=0) + 1
            now = replace(now, prevalence=share / share.sum())
        now = self._step_together(now, counts)
        return self._step_apart(now, counts)

    def log_choice(self, parameters: Deviations) -> Floats:
        diagonal = np.eye(len(self.votes.choices))
        shared = parameters.base * diagonal + parameters.pattern
        logits = shared + parameters.own[:, :1, None] * diagonal + parameters.own[:, None, 1:]
        # Penalised logits cannot overflow exp; sums over short axes are faster as products.
        return np.asarray(logits - np.log(_sum(np.exp(logits)))[:, :, None])

    def log_prevalence(self, parameters: Deviations) -> Floats:
        return np.log(parameters.prevalence)

    def log_prior(self, parameters: Deviations) -> float:
        shared = (parameters.base - self._typical()) ** 2 / _BASE_SPREAD**2
        pattern = (parameters.pattern**2).sum() / parameters.spreads.pattern**2
        prevalence = np.log(parameters.prevalence).sum() if self.effects.pattern else 0.0
        return float(prevalence - (shared + pattern + _penalty(parameters).sum()) / 2)

    def prior_votes(self, parameters: Deviations, accuracy: Floats) -> Floats:
        """Pseudo-votes of a Beta distribution with the variance of accuracy implied by the spread of abilities."""
        variance = accuracy * (1 - accuracy) * parameters.spreads.ability**2
        return np.asarray(np.maximum(1 / variance - 1, 1.0))

    def estimate_spreads(self, fitted: RaterFit[Deviations]) -> Deviations:
        """The parameters with spreads re-estimated from them and their uncertainty."""
        at, counts = fitted.parameters, self.soft_counts(fitted.posterior)
        choice = np.exp(self.log_choice(at))
        spreads = at.spreads
        if self.effects.ability or self.effects.bias:
            square = at.own**2 + self._own_variance(at, choice, fitted.posterior, counts)
            ability = _spread(square[:, :1]) if self.effects.ability else spreads.ability
            bias = _spread(square[:, 1:]) if self.effects.bias else spreads.bias
            spreads = replace(spreads, ability=ability, bias=bias)
        if self.effects.pattern:
            shared = np.diagonal(np.linalg.inv(self._shared_curvature(at, choice, counts)))[1:]
            spreads = replace(spreads, pattern=_spread(at.pattern.ravel() ** 2 + shared))
        return replace(at, spreads=spreads)

    def _typical(self) -> float:
        return math.log(_TYPICAL * (len(self.votes.choices) - 1) / (1 - _TYPICAL))

    def _prior_mode(self) -> Deviations:
        raters, classes = len(self.votes.raters), len(self.votes.choices)
        nothing = np.zeros((raters, 1 + classes))
        return Deviations(self._typical(), np.zeros((classes, classes)), nothing, np.full(classes, 1 / classes))

    def _step_together(self, at: Deviations, counts: Floats) -> Deviations:
        """A Newton step in b and e."""
        choice = np.exp(self.log_choice(at))
        residual = (counts - _sum(counts)[:, :, None] * choice).sum(axis=0)
        slope = np.append(
            np.trace(residual) - (at.base - self._typical()) / _BASE_SPREAD**2,
            (residual - at.pattern / at.spreads.pattern**2).ravel() * self.effects.pattern,
        )
        step = np.linalg.solve(self._shared_curvature(at, choice, counts), slope)
        step *= min(1.0, _LONGEST_STEP / max(1e-12, float(np.abs(step).max())))

        def value(moved: Deviations) -> float:
            return float(np.vdot(counts, self.log_choice(moved))) + self.log_prior(moved)

        before = value(at)
        for _ in range(_HALVINGS):
            moved = replace(at, base=at.base + float(step[0]), pattern=at.pattern + step[1:].reshape(at.pattern.shape))
            if value(moved) >= before:
                return moved
            step = step / 2
        return at

    def _step_apart(self, at: Deviations, counts: Floats) -> Deviations:
        """A Newton step in the deviations of each rater."""
        if not (self.effects.ability or self.effects.bias):
            return at
        log_choice = self.log_choice(at)
        residual = counts - _sum(counts)[:, :, None] * np.exp(log_choice)
        slope = np.column_stack(
            [
                (np.trace(residual, axis1=1, axis2=2) - at.own[:, 0] / at.spreads.ability**2) * self.effects.ability,
                (residual.sum(axis=1) - at.own[:, 1:] / at.spreads.bias**2) * self.effects.bias,
            ]
        )
        step = np.linalg.solve(self._own_curvature(at, np.exp(log_choice), counts), slope[:, :, None])[:, :, 0]
        step = np.clip(step, -_LONGEST_STEP, _LONGEST_STEP)
        before = np.einsum("rjk,rjk->r", counts, log_choice) - _penalty(at) / 2
        for _ in range(_HALVINGS):
            moved = replace(at, own=at.own + step)
            value = np.einsum("rjk,rjk->r", counts, self.log_choice(moved)) - _penalty(moved) / 2
            worse = value < before
            if not worse.any():
                return moved
            step = np.where(worse[:, None], step / 2, step)
        return replace(at, own=at.own + np.where(worse[:, None], 0.0, step))

    def _own_curvature(self, at: Deviations, choice: Floats, counts: Floats) -> Floats:
        """[R, 1 + K, 1 + K]: the negative Hessian in t_r and c_r; omitted effects stay at zero."""
        raters, classes = choice.shape[:2]
        expected = _sum(counts)[:, :, None] * choice
        hits = np.diagonal(expected, axis1=1, axis2=2)
        curvature = np.zeros((raters, 1 + classes, 1 + classes))
        if self.effects.ability:
            curvature[:, 0, 0] = (hits * (1 - np.diagonal(choice, axis1=1, axis2=2))).sum(axis=1)
        if self.effects.bias:
            curvature[:, 1:, 1:] = -expected.transpose(0, 2, 1) @ choice
            diagonal = np.arange(1, 1 + classes)
            curvature[:, diagonal, diagonal] += expected.sum(axis=1)
        if self.effects.ability and self.effects.bias:
            cross = hits - (hits[:, None] @ choice)[:, 0]
            curvature[:, 0, 1:] = curvature[:, 1:, 0] = cross
        spreads = np.append(at.spreads.ability, np.full(classes, at.spreads.bias))
        return curvature + np.diag(1 / spreads**2)

    def _own_variance(self, at: Deviations, choice: Floats, posterior: Floats, counts: Floats) -> Floats:
        """[R, 1 + K]: the variance of t_r and c_r given the votes, zero for omitted effects.

        Its inverse is the curvature for known classes minus the missing information, Σ_votes Cov_q(s) with the score
        s_j of the vote for class j (Louis 1982); it is at least the prior's in every direction."""
        raters, classes = choice.shape[:2]
        on = np.repeat([self.effects.ability, self.effects.bias], [1, classes])
        score = np.empty((raters, classes, classes, 1 + classes))  # rater, class, choice, effect
        score[..., 0] = np.eye(classes) - np.diagonal(choice, axis1=1, axis2=2)[:, :, None]
        score[..., 1:] = np.eye(classes) - choice[:, :, None, :]
        score = score[..., on]
        missing = np.einsum("rjk,rjks,rjkt->rst", counts, score, score)
        votes = self.votes
        mean = np.einsum("nj,njs->sn", posterior[votes.item], score[votes.rater, :, votes.choice])
        for s, t in np.ndindex(missing.shape[1:]):
            missing[:, s, t] -= sum_by(votes.rater, self.weight * mean[s] * mean[t], raters)
        spread = np.append(at.spreads.ability, np.full(classes, at.spreads.bias))[on]
        curvature = self._own_curvature(at, choice, counts)[:, on][:, :, on] - missing
        value, vector = np.linalg.eigh(curvature * spread[:, None] * spread)  # the prior's is the identity
        variance = np.zeros((raters, 1 + classes))
        variance[:, on] = spread**2 * np.einsum("rse,re->rs", vector**2, 1 / np.maximum(value, 1))
        return variance

    def _shared_curvature(self, at: Deviations, choice: Floats, counts: Floats) -> Floats:
        """[1 + K², 1 + K²]: the negative Hessian in b and e."""
        classes = choice.shape[1]
        expected = _sum(counts)[:, :, None] * choice
        rows = -(expected.transpose(1, 2, 0) @ choice.transpose(1, 0, 2))
        diagonal = np.arange(classes)
        rows[:, diagonal, diagonal] += expected.sum(axis=0)
        curvature = np.zeros((1 + classes**2, 1 + classes**2))
        curvature[0, 0] = rows[diagonal, diagonal, diagonal].sum()
        if self.effects.pattern:
            curvature[0, 1:] = curvature[1:, 0] = rows[diagonal, diagonal].ravel()
            for j in range(classes):
                block = slice(1 + j * classes, 1 + (j + 1) * classes)
                curvature[block, block] = rows[j]
        spreads = np.append(_BASE_SPREAD, np.full(classes**2, at.spreads.pattern))
        return curvature + np.diag(1 / spreads**2)


def fit_hierarchical(model: Hierarchical, *, tolerance: float = 1e-3, rounds: int = 200) -> RaterFit[Deviations]:
    """Fit the model with estimated spreads, until no class probability changes by more than `tolerance`."""
    fitted = fit(model, rounds=2, tolerance=tolerance)
    start = model.estimate_spreads(fitted)
    at, image = fitted.parameters.spreads.logs(), start.spreads.logs()
    following = image
    for number in range(rounds // 10):
        if (
            number and np.abs(following - at).max() < _SETTLED
        ):  # the first step has no slope yet, so it may be small far from convergence
            break
        fitted = fit(model, replace(start, spreads=Spreads.of(following)), rounds=3, tolerance=tolerance)
        start = model.estimate_spreads(fitted)
        before, at, previous, image = at, following, image, start.spreads.logs()
        following = _secant(before, at, previous, image)
    return fit(model, replace(start, spreads=Spreads.of(following)), rounds=rounds, tolerance=tolerance)


def _secant(before: Floats, at: Floats, previous: Floats, image: Floats) -> Floats:
    """The next point towards x = f(x), elementwise, where f(before) = previous and f(at) = image.

    Expectation-maximisation is slow for spreads with little information, so its step is divided by 1 - slope."""
    moved = at - before
    slope = np.where(np.abs(moved) > 1e-9, (image - previous) / np.where(moved == 0, 1.0, moved), 0.0)
    step = (image - at) / (1 - np.clip(slope, 0, _STEEPEST))
    return np.asarray(at + np.clip(step, -_LONGEST_STEP, _LONGEST_STEP))


def _penalty(at: Deviations) -> Floats:
    """[R]: Σ (deviation/spread)²."""
    return np.asarray((at.own[:, 0] / at.spreads.ability) ** 2 + (at.own[:, 1:] ** 2).sum(axis=1) / at.spreads.bias**2)


def _spread(square: Floats) -> float:
    return math.sqrt((square.sum() + _PSEUDO * _PSEUDO_SPREAD**2) / (square.size + _PSEUDO))


def _sum(values: Floats) -> Floats:
    """Sum over the last of three axes."""
    return np.asarray(values @ np.ones(values.shape[2]))
