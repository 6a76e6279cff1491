"""The ordinal rater model: a latent difference for each item, and thresholds of each rater on it.

The K classes are ordered, for example first better, equal, second better, or the points of a scale. The difference of
an item of class z and magnitude m is

    d = c_z m,    c_0 … c_{K-1} evenly spaced from -1 to 1,    m ~ a shape with mean |m| = 1 (`SHAPES`),

so a true tie has the difference 0, whatever its magnitude. A rater has an ability x_1, a width x_2 and a shift x_3, all
standard normal, and chooses by the graded-response model (Samejima 1969) with thresholds of their own,

    P(choice ≤ k | d, x) = σ(κ_k exp(ω x_2) - s exp(τ x_1) d - β x_3),

with the lapse rate of `_LAPSE`. Careless raters choose at random, contrary raters read the scale backwards. With two
classes there is one threshold, κ + β x_3, and ω has no effect; without spread (τ = β = 0, m = 1) all raters have the
accuracy σ(s), and the posterior is that of the one-coin model.

A model of Dawid and Skene's kind has no magnitudes. Its class of ties therefore attracts all items of small difference,
with likelier votes and worse labels (docs/explanation/ties.md).

The integrals over raters and items are sums: T types of raters, a quasi-random sample of x, and J states of items, a
class and one of G equal parts of the shape. Loopy belief propagation with messages

    item → rater:   q_e(j) ∝ p(j) Π_{e' ≠ e of the item} M_e'(j),      U_e(t) = Σ_j q_e(j) P(y_e | j, t)
    rater → item:   u_e(t) ∝ π_t Π_{e' ≠ e of the rater} U_e'(t),      M_e(j) = Σ_t u_e(t) P(y_e | j, t)

gives the posterior p(j) Π_e M_e(j) of each item, exact if the graph of items and raters has no loops. Its normaliser
approximates the probability of the item's votes given those of all other items. θ = (log s, τ, ω, β, κ) is updated by
Fisher scoring on the expected counts n(j, t, y), under normal priors; p and the shares of careless and contrary raters
by their expected counts. The other types have equal shares π. ordinal_average.py averages over the shapes.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from tutelage.stats.vote_codes import Floats, Ints, Singles, Votes, softmax

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_TYPES, _NODES, _LAPSE, _LONGEST_STEP, _HALVINGS, _LEAST_GAP = 48, 8, 0.003, 1.0, 5, 0.02
_GOLDEN = 1.2207440846057596  # the generalised golden ratio of two dimensions (Roberts 2018)
_WIDEST = (0.02, 2.0)  # range of τ, ω, β
_SOLID, _CARELESS, _CONTRARY = 10.0, 0.5, 0.25  # pseudo-raters
_SWEEPS, _ROUNDS, _MOMENTUM, _SETTLED, _STILL, _DAMPING, _ALTERNATION = 6, 80, 0.6, 0.01, 1e-3, 0.5, 0.1


@dataclass(frozen=True)
class Shape:
    """The distribution of the magnitudes m before their division by E|m|, x ~ N(0, 1):

    fold:      |1 + spread x|; without spread all are alike, with infinite spread they are half normal.
    lognormal: exp(spread x).
    mislead:   1 + spread x with its sign, so a share Φ(-1/spread) of the items misleads all raters.

    `odds` is its prior weight. `ties` is the share of the middle class of three if it is no parameter.
    """

    family: Literal["fold", "lognormal", "mislead"]
    spread: float
    odds: float = 1.0
    ties: float | None = None

    def magnitudes(self) -> Floats:
        """The means of equal parts of the distribution [G], in ascending order; [1] if all are alike."""
        from scipy.special import ndtri

        if self.spread == 0:
            return np.ones(1)
        x = ndtri((np.arange(120 * _NODES) + 0.5) / (120 * _NODES))
        if self.family == "lognormal":
            m = np.exp(self.spread * x)
        else:
            m = x if math.isinf(self.spread) else 1 + self.spread * x
            m = np.sort(np.abs(m)) if self.family == "fold" else m
        parts = m.reshape(_NODES, -1).mean(axis=1)
        return np.asarray(parts / np.abs(parts).mean())


_FOLDS = tuple(Shape("fold", spread) for spread in (0.0, 0.3, 0.55, math.inf))
SHAPES = (*_FOLDS, Shape("lognormal", 0.85), Shape("lognormal", 1.0))
"""The shapes for four and more classes."""
SHAPES_OF_THREE = (*SHAPES, *(Shape("fold", x, 0.75, ties) for x in (0, math.inf) for ties in (0.01, 0.1, 0.25, 0.45)))
"""The shapes for three classes: with a free share of ties, and with known ones, which have half of the odds."""
SHAPES_OF_TWO = (*_FOLDS, Shape("lognormal", 0.7), Shape("mislead", 0.65, 2.5), Shape("mislead", 0.75, 2.5))
"""The shapes for two classes."""


@dataclass(frozen=True, eq=False)
class Population:
    """What all raters and items share: `theta` [3 + K], that is log s, τ, ω, β and κ; the `prevalence` of the classes
    [K]; and the `share` of each type of raters [T + 2], the careless and the contrary last."""

    theta: Floats
    prevalence: Floats
    share: Floats

    def distance(self, other: "Population") -> float:
        """The greatest difference in θ, or in a prevalence relative to 1/K."""
        prevalence = len(self.prevalence) * (self.prevalence - other.prevalence)
        return float(np.abs(np.append(self.theta - other.theta, prevalence)).max())

    def beyond(self, before: "Population") -> "Population":
        """This population, moved on by the share `_MOMENTUM` of its way from `before` unless thresholds would meet."""
        theta = self.theta + _MOMENTUM * (self.theta - before.theta)
        theta[1:4] = np.clip(theta[1:4], *_WIDEST) * (self.theta[1:4] > 0)
        if (np.diff(theta[4:]) <= _LEAST_GAP).any():
            return self
        prevalence = self.prevalence * (self.prevalence / before.prevalence) ** _MOMENTUM
        return Population(theta, prevalence / prevalence.sum(), self.share)


@dataclass(frozen=True, eq=False)
class Beliefs:
    """The result of a sweep, with votes in the order of `Ordinal.order`: q, log M [N, J], u [N, T + 2], the `chance` of
    each vote given all others [N], unnormalised log posteriors of `items` [I, J] and `raters` [R, T + 2]."""

    q: Singles
    u: Singles
    log_message: Singles
    chance: Singles
    items: Floats
    raters: Floats


@dataclass(frozen=True, eq=False)
class OrdinalFit:
    """A fit of one shape: the `population`, the posterior of each item's state [I, J], each rater's type [R, T + 2] and
    each vote's item without that vote [N, K]; `log_item` is the log probability of an item's votes given all others."""

    population: Population
    states: Floats
    types: Floats
    others: Floats
    log_item: Floats
    converged: bool


@dataclass(frozen=True, eq=False)
class Ordinal:
    """The ordinal model of one shape for votes with known classes `gold` [I] (-1 unknown) and weights [N]; the codes of
    the choices are in their order. `types` [T, 3] are the x of the types of raters."""

    votes: Votes
    gold: Ints
    weight: Floats
    shape: Shape
    types: Floats = field(default_factory=lambda: rater_types(_TYPES))

    @cached_property
    def classes(self) -> int:
        return len(self.votes.choices)

    @cached_property
    def states(self) -> tuple[Ints, Floats]:
        """The class and the difference d of each state [J]; a tie has one state."""
        m = self.shape.magnitudes()
        place = np.linspace(-1, 1, self.classes)
        parts = [np.zeros(1) if c == 0 else c * m for c in place]
        return np.repeat(np.arange(self.classes), [len(part) for part in parts]), np.concatenate(parts)

    @cached_property
    def one_hot(self) -> Floats:
        """[J, K]: 1 for the class of each state."""
        return (self.states[0][:, None] == np.arange(self.classes)).astype(float)

    @cached_property
    def order(self) -> Ints:
        """The votes sorted by choice, so that the votes of a choice are one product of matrices."""
        return np.argsort(self.votes.choice, kind="stable")

    @cached_property
    def _cells(self) -> tuple[Ints, Ints, Singles, list[slice]]:
        """Item, rater and weight of each vote in `order`, and the slice of each choice."""
        cut = np.searchsorted(self.votes.choice[self.order], np.arange(self.classes + 1))
        slices = [slice(low, high) for low, high in pairwise(cut)]
        weight = self.weight[self.order, None].astype(np.float32)
        return self.votes.item[self.order], self.votes.rater[self.order], weight, slices

    @cached_property
    def _sums(self) -> tuple["csr_matrix", "csr_matrix"]:
        """[I, N] and [R, N]: sums over the votes of each item and of each rater."""
        from scipy.sparse import csr_matrix  # lazy: the web application starts without scipy

        item, rater, _, _ = self._cells
        one, column = np.ones(len(item), np.float32), np.arange(len(item))
        by_item = csr_matrix((one, (item, column)), shape=(len(self.votes.items), len(item)))
        return by_item, csr_matrix((one, (rater, column)), shape=(len(self.votes.raters), len(item)))

    @cached_property
    def _prior(self) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Mean and standard deviation of θ, and which of its elements are estimated."""
        between = self.classes - 1
        wide = max(1.0, between / 2)
        cuts = np.linspace(-1, 1, between) * (wide if between > 2 else 1) if between > 1 else np.zeros(1)
        mean = np.concatenate([[math.log(1.5 * wide), 0.4, 0.4, 0.4], cuts])
        shared = 0.3 if between == 1 else wide  # of two classes one may be preferred by all, about as by single raters
        spread = np.concatenate([[1.0, 0.3, 0.3, 0.3], np.full(between, shared)])
        free = np.ones(len(mean), dtype=bool)
        free[2] = between > 1
        return mean, spread, free

    @cached_property
    def _pseudo_items(self) -> Floats:
        """Pseudo-items of each class [K]: the share of ties and the shape are hardly identified together."""
        return {2: np.full(2, 5.0), 3: np.array([3.0, 1.0, 3.0])}.get(self.classes, np.full(self.classes, 10.0))

    def start(self) -> Population:
        """The mode of the prior."""
        mean, _, free = self._prior
        own = np.full(len(self.types), 0.94 / len(self.types))
        return Population(mean * free, self._prevalence(np.ones(self.classes)), np.append(own, [0.05, 0.01]))

    def _prevalence(self, number: Floats) -> Floats:
        """The prevalence of the classes [K] for these expected numbers of items."""
        if (ties := self.shape.ties) is not None:
            number = np.array([number[0], (number[0] + number[2]) * ties / (1 - ties), number[2]])
        return number / number.sum()

    def choice(self, theta: Floats) -> Floats:
        """P(choice | state, type) [J, T + 2, K]."""
        contrary = self._careful(theta, np.zeros((1, 3)))[:, :, ::-1]
        careless = np.full(contrary.shape, 1 / self.classes)
        return np.concatenate([self._careful(theta), careless, contrary], axis=1)

    def _careful(self, theta: Floats, types: Floats | None = None) -> Floats:
        """P(choice | state, type) of raters who are neither careless nor contrary [J, T, K]."""
        below = self._below(theta, self.types if types is None else types)[0]
        return (1 - _LAPSE) * _parts(below, 1.0) + _LAPSE / self.classes

    def _below(self, theta: Floats, types: Floats) -> tuple[Floats, Floats, Floats]:
        """P(choice ≤ k | state, type) [J, T, K - 1], the view s exp(τ x_1) d [J, T], and the width exp(ω x_2) [T]."""
        view = self.states[1][:, None] * (math.exp(theta[0]) * np.exp(theta[1] * types[:, 0]))
        width = np.exp(theta[2] * types[:, 1])
        logit = width[None, :, None] * theta[4:] - (view + theta[3] * types[:, 2])[:, :, None]
        return 1 / (1 + np.exp(-np.clip(logit, -40, 40))), view, width

    def _slopes(self, theta: Floats) -> Floats:
        """The derivatives of `choice` by θ [J, T, K, 3 + K], without careless and contrary raters."""
        below, view, width = self._below(theta, self.types)
        slope = below * (1 - below) * (1 - _LAPSE)
        x = self.types
        by = [-view[:, :, None], -(view * x[:, 0])[:, :, None], (width * x[:, 1])[None, :, None] * theta[4:]]
        by.append(-x[None, :, 2, None])
        cuts = [width[None, :, None] * (np.arange(self.classes - 1) == k) for k in range(self.classes - 1)]
        return np.stack([_parts(slope * each, 0.0) for each in (*by, *cuts)], axis=-1)

    def _log_state(self, prevalence: Floats) -> Floats:
        """log p(state) of each item [I, J], or [J] without known classes."""
        code = self.states[0]
        flat = np.log(prevalence)[code] - np.log(np.bincount(code)[code])
        if not (self.gold >= 0).any():
            return np.asarray(flat)
        excluded = (self.gold[:, None] >= 0) & (self.gold[:, None] != code)
        return np.where(excluded, -np.inf, flat)

    def _messages(self, u: Singles, choice: Singles) -> tuple[Singles, Singles]:
        """M and weight · log M [N, J] of the votes."""
        _, _, weight, slices = self._cells
        message = np.empty((len(weight), choice.shape[0]), np.float32)
        for k, part in enumerate(slices):
            np.matmul(u[part], choice[:, :, k].T, out=message[part])
        return message, np.log(message) * weight

    def first_message(self, at: Population) -> Singles:
        """log M [N, J] if nothing is known about the raters."""
        u = np.broadcast_to(at.share.astype(np.float32), (len(self.votes), len(at.share)))
        return self._messages(u, self.choice(at.theta).astype(np.float32))[1]

    def sweep(self, at: Population, log_message: Singles, damping: float = 0.0) -> Beliefs:
        """Update all messages once, those to raters first; the share `damping` of log M is as it was."""
        choice = self.choice(at.theta).astype(np.float32)
        item, rater, weight, slices = self._cells
        by_item, by_rater = self._sums
        prior = self._log_state(at.prevalence)
        q = softmax((by_item @ log_message + prior).astype(np.float32)[item] - log_message)
        to_rater = np.empty((len(item), choice.shape[1]), np.float32)
        for k, part in enumerate(slices):
            np.matmul(q[part], choice[:, :, k], out=to_rater[part])
        np.log(to_rater, out=to_rater)
        to_rater *= weight
        raters = (by_rater @ to_rater + np.log(at.share)).astype(np.float32)
        u = softmax(raters[rater] - to_rater)
        before, (message, log_message) = log_message, self._messages(u, choice)
        if damping:
            log_message = np.float32(damping) * before + np.float32(1 - damping) * log_message
        chance = np.einsum("nj,nj->n", q, message)
        return Beliefs(q, u, log_message, chance, by_item @ log_message + prior, raters.astype(float))

    def maximise(self, at: Population, now: Beliefs) -> Population:
        """The population after one step of Fisher scoring in θ, and by expected counts for the rest."""
        _, _, weight, slices = self._cells
        choice = self.choice(at.theta)
        joint = now.q * (weight / now.chance[:, None])
        counts = np.stack(
            [(joint[part].T @ now.u[part]) * choice[:, :, k] for k, part in enumerate(slices)], axis=2
        ).astype(float)
        odd = softmax(now.raters).sum(axis=0)[-2:] + np.array([_CARELESS, _CONTRARY])
        odd /= len(now.raters) + _SOLID + _CARELESS + _CONTRARY
        share = np.append(np.full(len(self.types), (1 - odd.sum()) / len(self.types)), odd)
        voted = self.votes.per_item() > 0
        number = softmax(now.items[voted]).sum(axis=0) @ self.one_hot + self._pseudo_items
        return Population(self._step(at.theta, counts[:, :-2]), self._prevalence(number), share)

    def _step(self, theta: Floats, counts: Floats) -> Floats:
        """A step of Fisher scoring for expected counts [J, T, K] that does not decrease the log posterior."""
        mean, spread, free = self._prior
        precision = 1 / spread**2

        def value(theta: Floats, choice: Floats) -> float:
            return float(np.vdot(counts, np.log(choice)) - ((theta - mean) ** 2 * precision)[free].sum() / 2)

        choice, slopes = self._careful(theta), self._slopes(theta)[..., free]
        width = slopes.shape[-1]
        gradient = (counts / choice).ravel() @ slopes.reshape(-1, width) - (precision * (theta - mean))[free]
        rooted = (np.sqrt(counts.sum(axis=2, keepdims=True) / choice)[..., None] * slopes).reshape(-1, width)
        step = np.zeros(len(theta))
        step[free] = np.linalg.solve(rooted.T @ rooted + np.diag(precision[free]), gradient)
        step *= min(1.0, _LONGEST_STEP / max(1e-9, float(np.abs(step).max())))
        before = value(theta, choice)
        for _ in range(_HALVINGS):
            moved = theta + step
            moved[1:4] = np.clip(moved[1:4], *_WIDEST) * free[1:4]
            if (np.diff(moved[4:]) > _LEAST_GAP).all() and value(moved, self._careful(moved)) >= before:
                return moved
            step = step / 2
        return theta

    def result(self, at: Population, now: Beliefs, *, converged: bool) -> OrdinalFit:
        """The fit at the end of the sweeps."""
        others = np.empty((len(self.votes), self.classes))
        others[self.order] = now.q @ self.one_hot
        log_item = np.logaddexp.reduce(now.items, axis=1)
        return OrdinalFit(at, softmax(now.items), softmax(now.raters), others, log_item, converged)


def fit_population(model: Ordinal) -> OrdinalFit:
    """Fit the model of one shape, with the shared parameters, from the mode of the prior: expectation-maximisation with
    momentum (Nesterov 1983), since scale and share of ties move together, slowly."""
    at = latest = model.start()
    now, course, damping = model.sweep(at, model.first_message(at)), list[Floats](), 0.0
    for number in range(_ROUNDS):
        now = model.sweep(at, now.log_message, damping)
        damping = max(damping, _damping(course, now))
        before, latest = latest, model.maximise(at, now)
        at = latest.beyond(before)
        if converged := number >= _SWEEPS and latest.distance(before) < _SETTLED:
            break
    return model.result(latest, model.sweep(latest, now.log_message), converged=converged)


def fit_beliefs(model: Ordinal, at: Population) -> OrdinalFit:
    """The posteriors of items and raters with known shared parameters; without a fixed point those of the last two
    sweeps on average: of two raters who are always opposite, either may be the contrary one."""
    now, course, damping = model.sweep(at, model.first_message(at)), list[Floats](), 0.0
    for number in range(_ROUNDS):
        before, now = now, model.sweep(at, now.log_message, damping)
        damping = max(damping, _damping(course, now))
        moved = np.abs(softmax(now.items) - softmax(before.items)).sum(axis=1).mean()
        if number >= _SWEEPS and moved < _STILL:
            return model.result(at, now, converged=True)
    ends = [vars(model.result(at, beliefs, converged=False)) for beliefs in (before, now)]
    means = {name: (ends[0][name] + ends[1][name]) / 2 for name in ("states", "types", "others", "log_item")}
    return OrdinalFit(at, **means, converged=False)


def _damping(course: list[Floats], now: Beliefs) -> float:
    """The damping of the next sweep, if beliefs about raters alternate between two states (Murphy, Weiss and Jordan
    1999). `course` are those of the last sweeps, to which these are added."""
    course[:] = [*course, softmax(now.raters)][-_SWEEPS:]
    moved, returned = (np.abs(course[-1] - course[-min(n, len(course))]).sum(axis=1).max() for n in (2, 3))
    return _DAMPING if len(course) == _SWEEPS and moved > max(_ALTERNATION, 2 * returned) else 0.0


def rater_types(number: int) -> Floats:
    """A quasi-random sample of the normal x_1, x_2, x_3 [number, 3]; the second half is the first with opposite x_3."""
    from scipy.special import ndtri

    half = number // 2
    n = np.arange(1, half + 1)
    grid = (n - 0.5) / half, (0.5 + n / _GOLDEN) % 1, 0.5 + ((0.5 + n / _GOLDEN**2) % 1) / 2
    x = ndtri(np.stack(grid, axis=1))
    x = np.concatenate([x, x * [1, 1, -1]])
    x[:, :2] -= x[:, :2].mean(axis=0)
    return np.asarray(x / np.sqrt((x**2).mean(axis=0)))


def _parts(below: Floats, whole: float) -> Floats:
    """P(choice = k) [..., K] from P(choice ≤ k) [..., K - 1], which ends at `whole`."""
    parts = np.empty((*below.shape[:-1], below.shape[-1] + 1))
    parts[..., :-1] = below
    parts[..., -1] = whole
    parts[..., 1:] -= below
    return parts
