"""Evaluation of a reward model or a judge: against human votes, and by the best of several completions and ties as in
RewardBench 2 (Malik et al. 2025, arXiv 2506.01937)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tutelage.base.errors import TutelageError
from tutelage.stats.agreement import agreement_of_counts
from tutelage.stats.calibration import calibration
from tutelage.stats.intervals import Interval, ratio_interval
from tutelage.stats.vote_codes import Floats

BINS = 10


def reward_quality(differences: Sequence[float], p_chosen: Sequence[float], prompts: Sequence[str]) -> dict[str, Any]:
    """Accuracy with a prompt-clustered interval, and calibration, from score differences chosen − rejected [N].

    A pair counts as right if the likelier side has the higher score, and as half if the scores are equal; pairs
    labelled exactly one half are excluded from the accuracy. For the calibration every second pair is swapped, so that
    the event has both outcomes. Keys: n, accuracy, accuracy_interval, ece, brier, calibration (one entry per
    bin that is not empty).
    """
    difference, p = np.asarray(differences, float), np.asarray(p_chosen, float)
    turned = np.arange(len(difference)) % 2 == 1
    return {
        "n": int((p != 0.5).sum()),
        **_entries("accuracy", _accuracy(difference, p, prompts)),
        **_calibration_entries(np.where(turned, -difference, difference), np.where(turned, 1 - p, p)),
    }


def length_baseline(
    lengths: Sequence[float],
    p_chosen: Sequence[float],
    prompts: Sequence[str],
    trained: Sequence[float],
    p_trained: Sequence[float],
) -> dict[str, Any]:
    """Accuracy of a predictor that uses only the lengths of the completions, on the pairs of `reward_quality`.

    It prefers the longer or the shorter completion of every pair, whichever is right more often on the reward model's
    training pairs. `lengths` [N] and `trained` [M] are differences chosen − rejected; completions of equal length count
    half. Keys: prefers (longer or shorter), accuracy, accuracy_interval. Length explains much of many preference data
    sets (Singhal et al. 2023, arXiv 2310.03716).
    """
    side = np.sign(np.asarray(trained, float)) * np.sign(np.asarray(p_trained, float) - 0.5)
    way = -1.0 if side.sum() < 0 else 1.0
    share = _accuracy(way * np.asarray(lengths, float), np.asarray(p_chosen, float), prompts)
    return {"prefers": "shorter" if way < 0 else "longer", **_entries("accuracy", share)}


def _entries(name: str, share: Interval) -> dict[str, Any]:
    """The entries of a share and its interval in a file."""
    return {name: share.value, f"{name}_interval": [share.low, share.high]}


def _calibration_entries(log_odds: Floats, p: Floats) -> dict[str, Any]:
    """The entries of the calibration of predictions with these log-odds."""
    diagram = calibration(1 / (1 + np.exp(-log_odds)), p, BINS)
    return {"ece": diagram.ece, "brier": diagram.brier, "calibration": diagram.rows()}


def _accuracy(difference: Floats, p: Floats, prompts: ArrayLike) -> Interval:
    """The share of pairs whose sign matches the likelier side, with an interval over prompts; 0 counts half."""
    decided = p != 0.5
    right = (np.sign(difference) * np.sign(p - 0.5) + 1) / 2
    return ratio_interval(right * decided, decided.astype(float), prompts)


def step_quality(
    scores: Sequence[Sequence[float]], labels: Sequence[Sequence[float | None]], prompts: Sequence[str]
) -> dict[str, Any]:
    """Quality of scores (log-odds) of the rated steps of N completions, in order; `labels` are of all their steps, None
    where a step is not rated.

    Accuracy and calibration are those of `reward_quality`, with intervals over prompts; `auc` is the
    `area_under_curve`. `first_wrong` is the share of completions whose first step with a negative score is the first
    that the labels call wrong, or which have neither, with its interval: of those completions whose steps up to the
    first wrong one, or all, are decided. Keys: n (decided steps), accuracy, accuracy_interval, ece, brier, calibration,
    auc, first_wrong, first_wrong_interval, first_wrong_n.
    """
    rated = [[label for label in row if label is not None] for row in labels]
    score = np.array([one for row in scores for one in row], float)
    p = np.array([label for row in rated for label in row], float)
    cluster = [prompt for prompt, row in zip(prompts, rated, strict=True) for _ in row]
    firsts = [_first_wrong(row, own) for row, own in zip(scores, labels, strict=True)]
    known = [(same, prompt) for same, prompt in zip(firsts, prompts, strict=True) if same is not None]
    first = _mean(np.array([same for same, _ in known], float), [prompt for _, prompt in known])
    return {
        "n": int((p != 0.5).sum()),
        **_entries("accuracy", _accuracy(score, p, cluster)),
        **_calibration_entries(score, p),
        "auc": area_under_curve(score, p),
        **_entries("first_wrong", first),
        "first_wrong_n": len(known),
    }


def _first_wrong(scores: Sequence[float], labels: Sequence[float | None]) -> bool | None:
    """Whether scores and labels of a completion have the same first wrong step; None if the labels leave it open."""
    wrong = next((place for place, label in enumerate(labels) if label is None or label <= 0.5), None)
    if wrong is not None and labels[wrong] in (None, 0.5):
        return None
    return next((place for place, score in enumerate(scores) if score < 0), None) == wrong


def area_under_curve(scores: ArrayLike, labels: ArrayLike) -> float | None:
    """Probability that a good step has a higher score than a wrong one (equal scores count half), the area under the
    ROC curve: Σ pᵢ (1 − pⱼ) [sᵢ > sⱼ] / Σ pᵢ (1 − pⱼ) over i ≠ j, with labels p in [0, 1]. None if no pair has a good
    and a wrong step."""
    score, p = np.asarray(scores, float), np.asarray(labels, float)
    values, place = np.unique(score, return_inverse=True)
    good, wrong = (np.bincount(place, weights=x, minlength=len(values)) for x in (p, 1 - p))
    below = np.cumsum(wrong) - wrong
    itself = float((p * (1 - p)).sum())
    total = float(good.sum() * wrong.sum()) - itself
    won = float((good * below).sum() + (good * wrong).sum() / 2) - itself / 2
    return won / total if total > 1e-12 else None


STRENGTHS = ("slightly", "better", "much better")


def by_strength(
    differences: Sequence[float], p_chosen: Sequence[float], strength: Sequence[float], prompts: Sequence[str]
) -> list[dict[str, Any]]:
    """Accuracy by mean strength of the pairs (rounded to 1, 2, 3), as reported for Llama 2 (Touvron et al. 2023, table
    28). One entry for each strength that occurs: name, number of pairs, accuracy, and interval over prompts.

    Pairs labelled exactly one half are excluded; equal scores count half.
    """
    difference, p = np.asarray(differences, float), np.asarray(p_chosen, float)
    rounded = np.clip(np.floor(np.asarray(strength, float) + 0.5).astype(int), 1, 3)
    rows = []
    for level, words in enumerate(STRENGTHS, 1):
        selected = (rounded == level) & (p != 0.5)
        if selected.any():
            share = _accuracy(difference[selected], p[selected], np.asarray(prompts)[selected])
            interval = [share.low, share.high]
            rows.append({"strength": words, "n": int(selected.sum()), "accuracy": share.value, "interval": interval})
    return rows


def against_votes(
    differences: Sequence[float], for_chosen: Sequence[int], for_rejected: Sequence[int], prompts: Sequence[str]
) -> dict[str, Any]:
    """Share of single votes for the side with the higher score (equal scores count half), with its interval over
    prompts; bounded by `stats.calibration.vote_ceiling`."""
    difference = np.asarray(differences, float)
    one, other = np.asarray(for_chosen, float), np.asarray(for_rejected, float)
    ahead = (np.sign(difference) + 1) / 2
    share = ratio_interval(ahead * one + (1 - ahead) * other, one + other, prompts)
    return {"n": int((one + other).sum()), "accuracy": share.value, "interval": [share.low, share.high]}


_RIDGE = 0.01  # weights of standardised differences ~ N(0, 100): finite if the reward is always right


@dataclass(frozen=True)
class JudgedPair:
    """Two responses to one prompt: the reward's difference first − second, the difference in length (characters), and
    the votes for each side."""

    prompt: str
    difference: float
    longer: float
    for_first: int
    for_second: int


@dataclass(frozen=True)
class Trust:
    """A reward against human votes on the same pairs; all intervals resample prompts.

    `agreement` is the probability that a vote goes to the side with the higher score, equal scores count half; `raters`
    that two raters' votes on a pair go to the same side, on pairs with two raters. `length` is the excess frequency
    with which the reward prefers the longer response, compared to people, on pairs of unequal length. `weight` converts
    the score difference to log-odds that people prefer the first response (maximum likelihood).
    """

    pairs: int
    votes: int
    agreement: Interval
    raters: Interval
    length: Interval
    weight: float

    @property
    def falls_short(self) -> bool:
        """Whether the reward agrees significantly less with a rater than another rater does."""
        high, own = self.agreement.high, self.raters.value
        return high is not None and own is not None and high < own


def measure_trust(pairs: Sequence[JudgedPair]) -> Trust:
    """The `Trust` estimated from the votes on these pairs; pairs without votes are ignored."""
    pairs = [pair for pair in pairs if pair.for_first + pair.for_second]
    first = np.array([pair.for_first for pair in pairs], float)
    second = np.array([pair.for_second for pair in pairs], float)
    difference = np.array([pair.difference for pair in pairs], float)
    longer = np.array([pair.longer for pair in pairs], float)
    prompt = np.array([pair.prompt for pair in pairs], str)
    between_raters = agreement_of_counts(np.stack([first, second], axis=1), prompt)
    ahead, share = (np.sign(difference) + 1) / 2, first / (first + second)
    return Trust(
        pairs=len(pairs),
        votes=int((first + second).sum()),
        agreement=_mean(ahead * share + (1 - ahead) * (1 - share), prompt),
        raters=Interval(between_raters.value, between_raters.low, between_raters.high),
        length=_difference(((ahead - share) * np.sign(longer))[longer != 0], prompt[longer != 0]),
        weight=log_odds_weight(difference, first, second),
    )


def agreement_gain(before: Sequence[JudgedPair], after: Sequence[JudgedPair]) -> Interval:
    """Difference in agreement with the votes of two rewards on the same pairs, after − before, paired; the interval
    resamples prompts."""
    gains = _agreeing(after) - _agreeing(before)  # in [-1, 1]
    return _difference(gains, [pair.prompt for pair in before])


def _agreeing(pairs: Sequence[JudgedPair]) -> Floats:
    """Share of the votes on each pair for the side with the higher score; equal scores count half. [N]"""
    first = np.array([pair.for_first for pair in pairs], float)
    second = np.array([pair.for_second for pair in pairs], float)
    ahead = (np.sign([pair.difference for pair in pairs]) + 1) / 2
    return (ahead * first + (1 - ahead) * second) / (first + second)


def _difference(values: Floats, cluster: ArrayLike) -> Interval:
    """Mean of values in [-1, 1] with an interval, which is that of a share of (value + 1)/2."""
    shifted = _mean((values + 1) / 2, cluster)
    value, low, high = (None if x is None else 2 * x - 1 for x in (shifted.value, shifted.low, shifted.high))
    return Interval(value, low, high)


def _mean(values: Floats, cluster: ArrayLike) -> Interval:
    return ratio_interval(values, np.ones(len(values)), cluster)


def log_odds_weight(difference: Floats, first: Floats, second: Floats) -> float:
    """The maximiser w of Σ first · log σ(w Δ) + second · log σ(−w Δ), with a small ridge; 0 if all scores are equal."""
    from scipy.optimize import brentq
    from scipy.special import expit

    spread = float(np.sqrt((difference**2).mean())) if len(difference) else 0.0
    if not spread:
        return 0.0
    feature = difference / spread

    def slope(w: float) -> float:
        odds = expit(w * feature)
        return float((feature * (first * (1 - odds) - second * odds)).sum() - _RIDGE * w)

    widest = (np.abs(feature) * (first + second)).sum() / _RIDGE + 1.0
    return float(brentq(slope, -widest, widest)) / spread


def position_bias(verdicts: Sequence[tuple[str, str]], prompts: Sequence[str]) -> tuple[Interval, float]:
    """Position bias of a pairwise judge, from its verdicts (first, second or tie) in both orders of each pair.

    Returns the probability that it prefers the response shown first (1/2 is unbiased, a tie counts half), and the share
    of pairs whose verdict is inconsistent between the orders.
    """
    score = {"first": 1.0, "second": 0.0, "tie": 0.5}
    first = np.array([(score[one] + score[turned]) / 2 for one, turned in verdicts])
    consistent = {("first", "second"), ("second", "first"), ("tie", "tie")}
    turned = [pair not in consistent for pair in verdicts]
    return _mean(first, prompts), float(np.mean(turned))


# Benchmarks ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScoredRow:
    """Scores of the completions of a prompt, of which the first `correct` are correct. `tie` is set in the subset
    Ties: ref or tied, and the number of the prompt."""

    subset: str
    scores: tuple[float, ...]
    correct: int
    tie: tuple[str, int] | None = None


@dataclass(frozen=True)
class SubsetScore:
    """Score of a subset, with its interval over prompts; the subset Ties has none."""

    subset: str
    score: float
    interval: tuple[float | None, float | None]
    n: int


@dataclass(frozen=True)
class BenchmarkScore:
    """Scores by subset, and their plain mean."""

    overall: float
    subsets: tuple[SubsetScore, ...]

    def summary(self) -> dict[str, Any]:
        """The scores as JSON."""
        return asdict(self)


def benchmark_score(rows: Sequence[ScoredRow]) -> BenchmarkScore:
    """Score each subset: the mean of `best_of_score`, or the `ties_score`; and their mean over subsets.

    Raises TutelageError without rows, and for a subset of ties without a pair of a reference and a tied prompt.
    """
    if not rows:
        raise TutelageError("A benchmark of rewards needs at least one row; there are none.")
    subsets = []
    for name in dict.fromkeys(row.subset for row in rows):
        own = [row for row in rows if row.subset == name]
        scores = np.array([best_of_score(row) for row in own])
        share = _mean(scores, np.arange(len(own))) if own[0].tie is None else Interval(ties_score(own), None, None)
        subsets.append(SubsetScore(name, float(share.value or 0.0), (share.low, share.high), len(own)))
    return BenchmarkScore(float(np.mean([subset.score for subset in subsets])), tuple(subsets))


def best_of_score(row: ScoredRow) -> float:
    """Share of the completions with the highest score that are correct: 1 or 0 without ties; 1/k if the only correct
    one ties with k − 1 others."""
    best = [place for place, score in enumerate(row.scores) if score == max(row.scores)]
    return sum(place < row.correct for place in best) / len(best)


def ties_score(rows: Sequence[ScoredRow]) -> float:
    """Score of the subset Ties, in which a reward should prefer every correct completion to every incorrect one, by
    more than it prefers one correct completion to another:

        .3 (accuracy of the tied prompts) + .3 (accuracy of their references)
        + .2 P(M_tied > S) + .2 P(min(M_ref, M_tied) > S) + .01 mean tanh(min(M_ref, M_tied) / S − 1)

    M is the lowest score of a correct completion minus the highest of an incorrect one, and a prompt is accurate if
    M > 0; S is the highest minus the lowest score of the correct completions of the tied prompt. The last three terms
    are over the prompts with both variants; 0/0 counts 0. A perfect reward without spread reaches 1.01.

    Raises TutelageError without a prompt that has both variants.
    """
    margins: dict[str, dict[int, float]] = {"ref": {}, "tied": {}}
    spread: dict[int, float] = {}
    for row in rows:
        assert row.tie is not None
        kind, prompt = row.tie
        right, wrong = row.scores[: row.correct], row.scores[row.correct :]
        margins[kind][prompt] = min(right) - max(wrong)
        if kind == "tied":
            spread[prompt] = max(right) - min(right)
    both = sorted(set(margins["ref"]) & set(margins["tied"]))
    if not both:
        raise TutelageError("The subset of ties has no prompt with both a row ref:N and a row tied:N.")
    tied, ref, within = (np.array([of[i] for i in both]) for of in (margins["tied"], margins["ref"], spread))
    hard = np.minimum(ref, tied)
    with np.errstate(divide="ignore", invalid="ignore"):
        closeness = np.nan_to_num(np.tanh(hard / within - 1), nan=0.0)
    return float(
        0.3 * _share(margins["tied"]) + 0.3 * _share(margins["ref"])
        + 0.2 * np.mean(tied > within) + 0.2 * np.mean(hard > within) + 0.01 * np.mean(closeness)
    )  # fmt: skip


def _share(margins: dict[int, float]) -> float:
    return float(np.mean(np.array(list(margins.values())) > 0))
