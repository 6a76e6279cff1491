"""The quality of a reward model: how well it predicts which of two answers people prefer."""

from collections.abc import Sequence
from math import isnan
from typing import Any

import numpy as np

from tutelage.stats.calibration import calibration
from tutelage.stats.intervals import ratio_interval

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
    cluster = np.unique(np.asarray(prompts), return_inverse=True)[1]
    decided = p != 0.5
    right = (np.sign(difference) * np.sign(p - 0.5) + 1) / 2
    found = ratio_interval(right * decided, decided.astype(float), cluster)
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
