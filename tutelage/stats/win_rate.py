"""Win rates of two models by any score, with intervals that resample prompts."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tutelage.stats.intervals import win_rate


def scored_win_rate(
    first: Sequence[float], second: Sequence[float], prompts: Sequence[str]
) -> dict[str, Any]:
    """How often the first model's answer to a prompt scores higher than the second's; ties count half.

    The interval resamples whole prompts. A score looks at one answer at a time, so the order of the two does not
    matter. Keys: win_rate, win_rate_ci, wins, ties, losses, n, prompts.
    """
    a, b = np.asarray(first, float), np.asarray(second, float)
    outcome = np.where(a > b, 1.0, np.where(a < b, 0.0, 0.5))
    found = win_rate(outcome, np.unique(np.asarray(prompts), return_inverse=True)[1])
    return {
        "win_rate": found.value,
        "win_rate_ci": [found.low, found.high],
        "wins": found.wins,
        "ties": found.ties,
        "losses": found.losses,
        "n": len(outcome),
        "prompts": found.prompts,
    }
