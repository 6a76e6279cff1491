"""The quality of a reward model: how well it predicts which of two answers people prefer."""

from collections.abc import Sequence
from math import isnan
from typing import Any

import numpy as np

from tutelage.stats.calibration import calibration
from tutelage.stats.intervals import Interval, ratio_interval
from tutelage.stats.votes import Floats

BINS = 10


def reward_quality(
    differences: Sequence[float], p_chosen: Sequence[float], prompts: Sequence[str]
) -> dict[str, Any]:
    """Accuracy with a prompt-clustered interval, and calibration, from score differences chosen − rejected [N].

    A pair counts as right when the higher score stands where the label is likelier, half when the scores are equal;
    pairs labelled exactly one half are left out of the accuracy. For the calibration every other pair is turned round,
    so that the event has both outcomes. Keys: n, accuracy, accuracy_interval, ece, brier, calibration (one entry per
    bin that is not empty).
    """
    difference, p = np.asarray(differences, float), np.asarray(p_chosen, float)
    decided = p != 0.5
    found = _accuracy(difference, p, prompts)
    turned = np.arange(len(difference)) % 2 == 1
    side = np.where(turned, -difference, difference)
    diagram = calibration(1 / (1 + np.exp(-side)), np.where(turned, 1 - p, p), BINS)
    bins = zip(
        diagram.edges[:-1], diagram.edges[1:], diagram.predicted, diagram.observed, diagram.count, strict=True
    )
    return {
        "n": int(decided.sum()),
        "accuracy": found.value,
        "accuracy_interval": [found.low, found.high],
        "ece": diagram.ece,
        "brier": diagram.brier,
        "calibration": [
            {"low": float(a), "high": float(b), "predicted": float(x), "observed": float(y), "n": int(n)}
            for a, b, x, y, n in bins
            if not isnan(x)
        ],
    }


def length_baseline(
    lengths: Sequence[float],
    p_chosen: Sequence[float],
    prompts: Sequence[str],
    learnt: Sequence[float],
    p_learnt: Sequence[float],
) -> dict[str, Any]:
    """What a predictor that sees the lengths of the answers alone reaches on the pairs of `reward_quality`.

    It prefers the longer or the shorter answer of every pair, whichever is right more often on the pairs that the
    reward model learnt from. `lengths` [N] and `learnt` [M] are differences chosen − rejected; answers of one length
    count half. Keys: prefers (longer or shorter), accuracy, accuracy_interval. Length explains much of many data sets
    of preferences (Singhal et al. 2023, arXiv 2310.03716).
    """
    side = np.sign(np.asarray(learnt, float)) * np.sign(np.asarray(p_learnt, float) - 0.5)
    way = -1.0 if side.sum() < 0 else 1.0
    found = _accuracy(way * np.asarray(lengths, float), np.asarray(p_chosen, float), prompts)
    return {
        "prefers": "shorter" if way < 0 else "longer",
        "accuracy": found.value,
        "accuracy_interval": [found.low, found.high],
    }


def _accuracy(difference: Floats, p: Floats, prompts: Sequence[str]) -> Interval:
    """The share of pairs whose sign is that of the likelier side, with an interval over prompts; 0 counts half."""
    decided = p != 0.5
    right = (np.sign(difference) * np.sign(p - 0.5) + 1) / 2
    cluster = np.unique(np.asarray(prompts), return_inverse=True)[1]
    return ratio_interval(right * decided, decided.astype(float), cluster)
