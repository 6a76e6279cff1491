"""A reward model against what raters said: by how sure they were, and vote by vote."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tutelage.stats.intervals import ratio_interval

STRENGTHS = ("slightly", "better", "much better")


def by_strength(
    differences: Sequence[float], p_chosen: Sequence[float], strength: Sequence[float], prompts: Sequence[str]
) -> list[dict[str, Any]]:
    """Accuracy within pairs of about the same mean strength (rounded to 1, 2, 3), as Llama 2 reports it (Touvron et
    al. 2023, table 28): of each that occurs its words, number of pairs, accuracy, and interval over prompts.

    Pairs labelled exactly one half have no better side and are left out; equal scores count half.
    """
    difference, p = np.asarray(differences, float), np.asarray(p_chosen, float)
    rounded = np.clip(np.floor(np.asarray(strength, float) + 0.5).astype(int), 1, 3)
    right = (np.sign(difference) * np.sign(p - 0.5) + 1) / 2
    cluster = np.unique(np.asarray(prompts), return_inverse=True)[1]
    found = []
    for level, words in enumerate(STRENGTHS, 1):
        chosen = (rounded == level) & (p != 0.5)
        if chosen.any():
            share = ratio_interval(right[chosen], np.ones(chosen.sum()), cluster[chosen])
            found.append(
                {
                    "strength": words,
                    "n": int(chosen.sum()),
                    "accuracy": share.value,
                    "interval": [share.low, share.high],
                }
            )
    return found


def against_votes(
    differences: Sequence[float],
    for_chosen: Sequence[int],
    for_rejected: Sequence[int],
    prompts: Sequence[str],
) -> dict[str, Any]:
    """The share of single votes that go to the side with the higher score (equal scores count half), with its interval
    over prompts: what `stats.calibration.vote_ceiling` bounds."""
    difference = np.asarray(differences, float)
    one, other = np.asarray(for_chosen, float), np.asarray(for_rejected, float)
    ahead = (np.sign(difference) + 1) / 2
    cluster = np.unique(np.asarray(prompts), return_inverse=True)[1]
    share = ratio_interval(ahead * one + (1 - ahead) * other, one + other, cluster)
    return {"n": int((one + other).sum()), "accuracy": share.value, "interval": [share.low, share.high]}
