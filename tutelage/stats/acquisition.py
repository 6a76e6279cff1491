"""The worth of a vote on a pair, from the predictions of reward models: the priorities of `collect next`.

p[m, n] is the probability that model m gives for the first side of pair n, σ of its difference in score.
"""

import numpy as np

from tutelage.stats.vote_codes import Floats


def closeness(p: Floats) -> Floats:
    """4 p̄ (1 - p̄) of the mean p̄ over models [N]: 1 for a coin. It does not distinguish what is unknown from what
    people disagree about (Lewis and Gale 1994)."""
    mean = p.mean(axis=0)
    return np.asarray(4 * mean * (1 - mean))


def disagreement(p: Floats) -> Floats:
    """The standard deviation of p over models [N] (Christiano et al. 2017)."""
    return np.asarray(p.std(axis=0))


def information(p: Floats) -> Floats:
    """The expected information of a vote about the model, in nats [N]: H(p̄) - mean of H(p_m), with the entropy H of a
    vote (Houlsby et al. 2011). It is little where all models say a coin, whose votes would teach nothing."""
    return np.asarray(_entropy(p.mean(axis=0)) - _entropy(p).mean(axis=0))


def _entropy(p: Floats) -> Floats:
    q = np.clip(p, 1e-12, 1 - 1e-12)
    return np.asarray(-q * np.log(q) - (1 - q) * np.log(1 - q))
