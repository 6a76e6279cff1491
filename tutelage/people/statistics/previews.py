"""Previews of excluding a rater or of taking the exclusion back."""

from dataclasses import dataclass

import numpy as np

from tutelage.people.statistics.ballots import PRODUCTION, Ballots
from tutelage.people.statistics.computing import agreement, counts, fit
from tutelage.stats.agreement import PairAgreement


@dataclass(frozen=True)
class Preview:
    """`votes` that would leave (or come back), `labels` that would change sides or be lost (or won), and the agreement
    without and with them."""

    votes: int
    labels: int
    before: PairAgreement
    after: PairAgreement


def preview(ballots: Ballots, rater_id: int, beside: frozenset[int]) -> Preview:
    """The statistics with the exclusion of one rater turned around. `beside` are the raters that do not count."""
    theirs = ballots.rater == rater_id
    back = rater_id in ballots.excluded_raters
    human = ~np.isin(ballots.rater, list(beside))
    now = human & counts(ballots) & ~ballots.out
    then = (now | (human & counts(ballots) & theirs)) if back else (now & ~theirs)
    one, other = ballots.keep(now), ballots.keep(then)
    changed = int((_labels(one) != _labels(other)).sum())
    return Preview(int((now != then).sum()), changed, agreement(one), agreement(other))


def _labels(ballots: Ballots) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """[I]: -1 without a vote, else 0, 1 or (undecided) 2, for production items."""
    labels = np.full(len(ballots.item_id), -1, dtype=np.int64)
    fitted, _, codes = fit(ballots)
    first = fitted.posterior[:, 0]
    labels[codes] = np.select([first > 0.5, first < 0.5], [0, 1], 2)
    labels[ballots.pool != PRODUCTION] = -1
    return labels
