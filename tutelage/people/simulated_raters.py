"""Simulated raters: they know the gold utility, and vote on it as noisily as people do.

An attentive rater shown Δ = gold(left) - gold(right) votes left with probability σ(Δ / τ) (Bradley & Terry 1952), a tie
if the noisy difference is next to nothing. People agree with each other on 72-77 % of such pairs (Ouyang et al. 2022;
Stiennon et al. 2020), and `calibrated_tau` finds the τ that gives it.
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

TIE_WIDTH = 0.12  # noisy differences below this (in units of τ) are called a tie
BOTH_BAD_BELOW = 0.0  # a tie between two answers of less gold than this is "both bad"
STRENGTH_STEPS = (1.2, 2.6)  # noisy differences (in units of τ) from which a vote has strength 2 and 3
SECONDS_SPREAD = 0.4  # standard deviation of log seconds
WORDS_TYPICAL = 80.0  # words in a pair that is read in the rater's mean time
READING_SHARE = 0.6  # the part of that time that grows with the words
DRIFT_PER = 100.0  # judgements after which τ has grown by the factor 1 + drift

TAU = 1.366  # gives 72.5 % agreement on pairs of answers drawn like the demonstrations


@dataclass(frozen=True)
class SimulatedVote:
    """What a rater pressed, as displayed; strength 1 (slightly) to 3 (much better), 0 when neither is better."""

    verdict: Shown
    strength: int
    seconds: float


@dataclass(frozen=True)
class SimulatedRater:
    """A rater's habits.

    `tau` is the noise in units of gold and `lapse` the probability of a thoughtless click. `side_bias` pushes toward
    the left and `length_bias`, per ten words more, toward the longer answer (both in log-odds). `drift` is the share
    of τ that being tired adds per hundred judgements. Careless raters always click without thought, adversarial ones
    vote for what they find worse.
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
        """The probabilities of left, no difference, right, in closed form: with d the biased difference in units of τ
        and w the tie width, σ(d - w), the rest, and σ(-d - w), mixed with the lapses."""
        attentive = _three_ways(self._difference(gold_left, gold_right, words_left, words_right, answered))
        thoughtless = _three_ways(self.side_bias)
        lapse = self._lapse()
        left, none, right = (
            (1 - lapse) * seen + lapse * unseen for seen, unseen in zip(attentive, thoughtless, strict=True)
        )
        return left, none, right

    def judge(
        self,
        gold_left: float,
        gold_right: float,
        words_left: int,
        words_right: int,
        rng: Random,
        answered: int = 0,
    ) -> SimulatedVote:
        """One vote. `answered` is how many this rater has given before (for the drift)."""
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
        """Log-normal, with mean `mean_seconds` for a pair of typical length."""
        mean = self.mean_seconds * (1 - READING_SHARE + READING_SHARE * words / WORDS_TYPICAL)
        return rng.lognormvariate(log(mean) - SECONDS_SPREAD**2 / 2, SECONDS_SPREAD)


NAMES = ("Amina", "Bruno", "Chen", "Dalia", "Emeka", "Freya", "Gita", "Hugo", "Ines", "Jonas", "Kaya", "Liam")


def panel(seed: int, n: int = 6, tau: float = TAU) -> list[SimulatedRater]:
    """A mixed panel: n - 2 ordinary raters, one careless, one adversarial, in random order.

    Raises TutelageError when n is below 3 or above the number of names.
    """
    if not 3 <= n <= len(NAMES):
        raise TutelageError(
            f"A panel of {counted(n, 'rater')} was asked for; ask for 3 to {len(NAMES)}, as one is careless and one "
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
    """How often two attentive raters vote alike: E[σ² + (1 - σ)²] over the differences, σ = σ(Δ / τ)."""
    chances = [_sigmoid(delta / tau) for delta in _given(deltas)]
    return sum(p * p + (1 - p) * (1 - p) for p in chances) / len(chances)


def ceiling(deltas: Sequence[float], tau: float) -> float:
    """The best accuracy that anyone can have against single votes: E[max(σ, 1 - σ)], σ = σ(Δ / τ)."""
    chances = [_sigmoid(delta / tau) for delta in _given(deltas)]
    return sum(max(p, 1 - p) for p in chances) / len(chances)


def calibrated_tau(deltas: Sequence[float], agreement: float = 0.725) -> float:
    """The τ at which `pair_agreement(deltas, τ)` equals `agreement`, by bisection of log τ (agreement falls with τ).

    Raises TutelageError when no τ can: agreement must lie between one half and the share that differ at all.
    """
    size = max(abs(delta) for delta in _given(deltas))
    low, high = log(size * 1e-6) if size else 0.0, log(size * 1e6) if size else 0.0
    if not pair_agreement(deltas, exp(high)) < agreement < pair_agreement(deltas, exp(low)):
        raise TutelageError(
            f"No noise makes raters agree on {agreement:.3f} of these {counted(len(deltas), 'pair')}; ask for more "
            "than 0.5, and for less than the pairs of equal gold allow."
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
        raise TutelageError("No gold differences were given; give at least one pair.")
    return deltas


def _three_ways(difference: float) -> tuple[float, float, float]:
    left, right = _sigmoid(difference - TIE_WIDTH), _sigmoid(-difference - TIE_WIDTH)
    return left, 1 - left - right, right


def _sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x)) if x >= 0 else 1 - 1 / (1 + exp(x))


def _logit(p: float) -> float:
    p = min(max(p, 1e-12), 1 - 1e-12)
    return log(p / (1 - p))
