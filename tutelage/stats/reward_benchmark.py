"""Benchmark of rewards by the best of several completions, and by ties (RewardBench 2; Malik et al. 2025, arXiv
2506.01937)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tutelage.base.errors import TutelageError
from tutelage.stats.intervals import Interval, ratio_interval


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
        share = Interval(ties_score(own), None, None) if own[0].tie is not None else _best_of(own)
        subsets.append(SubsetScore(name, float(share.value or 0.0), (share.low, share.high), len(own)))
    return BenchmarkScore(float(np.mean([subset.score for subset in subsets])), tuple(subsets))


def _best_of(rows: Sequence[ScoredRow]) -> Interval:
    scores = np.array([best_of_score(row) for row in rows])
    return ratio_interval(scores, np.ones(len(rows)), np.arange(len(rows)))


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
