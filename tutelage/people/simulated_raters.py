"""Simulated raters, who vote by the gold utility with noise comparable to that of people.

For Δ = gold(left) - gold(right), an attentive rater votes left with probability σ(Δ / τ) (Bradley & Terry 1952), or a
tie if the noisy difference is small. People agree with each other on 72-77 % of pairs (Ouyang et al. 2022; Stiennon et
al. 2020); `calibrated_tau` finds the τ for a given agreement.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from random import Random
from typing import Literal, TypeAlias

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted

RaterKind: TypeAlias = Literal["ordinary", "careless", "adversarial"]
Shown: TypeAlias = Literal["left", "right", "tie", "both_bad"]

TIE_WIDTH = 0.12  # noisy differences below this (in units of τ) are ties
BOTH_BAD_BELOW = 0.0  # a tie between two responses of gold below this is "both bad"
STRENGTH_STEPS = (1.2, 2.6)  # minimum noisy differences (in units of τ) for strengths 2 and 3
SECONDS_SPREAD = 0.4  # standard deviation of log seconds
WORDS_TYPICAL = 80.0  # words of a pair that takes the rater's mean time
READING_SHARE = 0.6  # share of that time that is proportional to the number of words
DRIFT_PER = 100.0  # judgements after which τ has grown by the factor 1 + drift

TAU = 1.366  # gives 72.5 % agreement on pairs of responses sampled like the demonstrations


@dataclass(frozen=True)
class SimulatedVote:
    """A vote of a simulated rater, as displayed; strength 1 (slightly) to 3 (much better), 0 if neither is better."""

    verdict: Shown
    strength: int
    seconds: float


@dataclass(frozen=True)
class SimulatedRater:
    """The parameters of a simulated rater.

    `tau` is the noise in units of gold, `lapse` the probability of a random vote. `side_bias` favours the left side,
    `length_bias` the longer response, per ten additional words (both in log-odds). `drift` is the relative increase of
    τ per hundred judgements (fatigue). Careless raters always vote at random, adversarial raters for the worse side.
    """

    name: str
    tau: float = TAU
    lapse: float = 0.0
    side_bias: float = 0.0
    kind: RaterKind = "ordinary"
    length_bias: float = 0.0
    mean_seconds: float = 25.0
    drift: float = 0.0

    def probabilities(
        self, gold_left: float, gold_right: float, words_left: int, words_right: int, answered: int = 0
    ) -> tuple[float, float, float]:
        """The probabilities of left, no difference and right in closed form: σ(d - w), the remainder, and σ(-d - w),
        mixed with the lapses, for the biased difference d in units of τ and the tie width w."""
        attentive = _three_ways(self._difference(gold_left, gold_right, words_left, words_right, answered))
        thoughtless = _three_ways(self.side_bias)
        lapse = self._lapse()
        left, none, right = (
            (1 - lapse) * p + lapse * p_lapse for p, p_lapse in zip(attentive, thoughtless, strict=True)
        )
        return left, none, right

    def judge(
        self, gold_left: float, gold_right: float, words_left: int, words_right: int, rng: Random, answered: int = 0
    ) -> SimulatedVote:
        """Sample a vote. `answered` is the number of previous votes of this rater (for the drift)."""
        difference = self.side_bias
        if rng.random() >= self._lapse():
            difference = self._difference(gold_left, gold_right, words_left, words_right, answered)
        noisy = difference + _logit(rng.random())
        seconds = self._seconds(words_left + words_right, rng)
        if abs(noisy) < TIE_WIDTH:
            both_bad = max(gold_left, gold_right) < BOTH_BAD_BELOW
            return SimulatedVote("both_bad" if both_bad else "tie", 0, seconds)
        strength = 1 + sum(abs(noisy) >= step for step in STRENGTH_STEPS)
        return SimulatedVote("left" if noisy > 0 else "right", strength, seconds)

    def _difference(
        self, gold_left: float, gold_right: float, words_left: int, words_right: int, answered: int
    ) -> float:
        tau = self.tau * (1 + self.drift * answered / DRIFT_PER)
        sign = -1 if self.kind == "adversarial" else 1
        longer = (words_left - words_right) / 10
        return sign * (gold_left - gold_right) / tau + self.length_bias * longer + self.side_bias

    def _lapse(self) -> float:
        return 1.0 if self.kind == "careless" else self.lapse

    def _seconds(self, words: int, rng: Random) -> float:
        """Sample the time of a vote: log-normal, with mean `mean_seconds` for a pair of typical length."""
        mean = self.mean_seconds * (1 - READING_SHARE + READING_SHARE * words / WORDS_TYPICAL)
        return rng.lognormvariate(log(mean) - SECONDS_SPREAD**2 / 2, SECONDS_SPREAD)


@dataclass(frozen=True)
class ReliableRater:
    """A simulated rater who says which of two gold utilities is greater with the probability `reliability`, whatever
    their difference, and never that they are equal."""

    name: str
    reliability: float
    mean_seconds: float = 25.0
    tau: float = 0.0

    def judge(
        self, gold_left: float, gold_right: float, words_left: int, words_right: int, rng: Random, answered: int = 0
    ) -> SimulatedVote:
        """Sample a vote; one half each for equal utilities."""
        chance = 0.5 if gold_left == gold_right else self.reliability
        greater = gold_left > gold_right
        left = greater if rng.random() < chance else not greater
        seconds = self.mean_seconds * rng.lognormvariate(-(SECONDS_SPREAD**2) / 2, SECONDS_SPREAD)
        return SimulatedVote("left" if left else "right", 2, seconds)


NAMES = ("Amina", "Bruno", "Chen", "Dalia", "Emeka", "Freya", "Gita", "Hugo", "Ines", "Jonas", "Kaya", "Liam")


def panel(seed: int, n: int = 6, tau: float = TAU) -> list[SimulatedRater]:
    """A panel of n - 2 ordinary raters, one careless and one adversarial, in random order. Raises TutelageError if n is
    less than 3 or greater than the number of names."""
    if not 3 <= n <= len(NAMES):
        raise TutelageError(
            f"A panel of {counted(n, 'rater')} is not possible: choose 3 to {len(NAMES)}, as one is careless and one "
            "adversarial."
        )
    rng = Random(f"tutelage/{seed}/panel")
    names = list(NAMES[:n])
    rng.shuffle(names)
    careless = SimulatedRater(
        names[0], tau=tau, kind="careless", side_bias=rng.uniform(-0.4, 0.4), mean_seconds=rng.uniform(2, 4)
    )
    adversarial = SimulatedRater(names[1], tau=tau, kind="adversarial", mean_seconds=rng.uniform(12, 25))
    ordinary = [_ordinary(name, tau, rng) for name in names[2:]]
    return sorted([careless, adversarial, *ordinary], key=lambda rater: rater.name)


def pair_agreement(deltas: Sequence[float], tau: float) -> float:
    """The probability that two attentive raters agree: E[σ² + (1 - σ)²] over the differences, σ = σ(Δ / τ)."""
    chances = [_sigmoid(delta / tau) for delta in _given(deltas)]
    return sum(p * p + (1 - p) * (1 - p) for p in chances) / len(chances)


def calibrated_tau(deltas: Sequence[float], agreement: float = 0.725) -> float:
    """The τ for which `pair_agreement(deltas, τ)` equals `agreement`, by bisection of log τ (agreement decreases with
    τ). Raises TutelageError if `agreement` is not between 0.5 and the share of pairs with unequal gold."""
    size = max(abs(delta) for delta in _given(deltas))
    low, high = log(size * 1e-6) if size else 0.0, log(size * 1e6) if size else 0.0
    if not pair_agreement(deltas, exp(high)) < agreement < pair_agreement(deltas, exp(low)):
        raise TutelageError(
            f"No noise gives an agreement of {agreement:.3f} on these {counted(len(deltas), 'pair')}; choose more than "
            "0.5, and less than the pairs of equal gold allow."
        )
    for _ in range(60):
        middle = (low + high) / 2
        if pair_agreement(deltas, exp(middle)) > agreement:
            low = middle
        else:
            high = middle
    return exp((low + high) / 2)


def _ordinary(name: str, tau: float, rng: Random) -> SimulatedRater:
    return SimulatedRater(
        name,
        tau=tau * rng.uniform(0.85, 1.15),
        lapse=rng.uniform(0.0, 0.03),
        side_bias=rng.gauss(0.0, 0.08),
        length_bias=rng.uniform(0.0, 0.08),
        mean_seconds=rng.uniform(15, 35),
        drift=rng.uniform(0.0, 0.05),
    )


def _given(deltas: Sequence[float]) -> Sequence[float]:
    if not deltas:
        raise TutelageError("There are no gold differences; provide at least one pair.")
    return deltas


def _three_ways(difference: float) -> tuple[float, float, float]:
    left, right = _sigmoid(difference - TIE_WIDTH), _sigmoid(-difference - TIE_WIDTH)
    return left, 1 - left - right, right


def _sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x)) if x >= 0 else 1 - 1 / (1 + exp(x))


def _logit(p: float) -> float:
    p = min(max(p, 1e-12), 1 - 1e-12)
    return log(p / (1 - p))
