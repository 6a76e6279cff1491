"""Statistics of a study from its ballots, and previews of exclusions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tutelage.base.errors import TutelageError
from tutelage.people import Rater
from tutelage.people.aggregation import SIDES, fit_raters
from tutelage.people.statistics.ballots import GOLD, PRODUCTION, SKIP, A, B, Ballots, Bools, Ints
from tutelage.people.statistics.rater_statistics import RaterStatistics, describe_raters
from tutelage.people.store.engine import DAY_MS
from tutelage.people.store.raters import crowd_kinds
from tutelage.stats.agreement import (
    Alpha,
    PairAgreement,
    krippendorff_alpha,
    mirrored_alpha,
    pair_agreement,
    strength_scale,
)
from tutelage.stats.intervals import Interval, wilson
from tutelage.stats.reliability import Reliability
from tutelage.stats.vote_codes import Votes

SURE = 0.9
DOUBTFUL = 200
MANY = 50_000
DRAWS, FEW_DRAWS = 1_000, 200
DAYS = 14


@dataclass(frozen=True)
class Statistics:
    """The statistics of a study's votes. `agreement` and `alpha` are for the raters that count: people, or simulated
    raters while no person participates; `raw` includes excluded votes. `effective` is the number of production items
    whose label has a probability above 0.9; `doubtful` are the ids of the items with the least certain labels.
    `by_strength` is the share of other raters' votes that agree with a vote of strength 1, 2, 3. `by_day` are the
    numbers of votes in the last two weeks, today last. `left` is a share of the decided votes, `ties` of all votes.
    Where steps are judged, they are the items, and `left` has no votes."""

    agreement: PairAgreement
    raw: PairAgreement
    alpha: Alpha
    effective: int
    labelled: int
    doubtful: tuple[int, ...]
    by_strength: tuple[float, ...]
    left: Interval
    ties: Interval
    by_day: tuple[int, ...]
    per_day: float
    raters: Mapping[int, RaterStatistics]


def compute(ballots: Ballots, raters: Sequence[Rater], now: int) -> Statistics:
    """Compute all statistics of a study."""
    crowd = crowd_kinds(raters)
    beside = [rater.id for rater in raters if rater.kind not in crowd]
    answers = ballots.keep(np.unique(ballots.id, return_index=True)[1])  # an answer may have several pairs
    human = ~np.isin(ballots.rater, beside)
    counted = ballots.keep(human & ~ballots.out & counts(ballots))
    raw = ballots.keep(human & counts(ballots))
    fitted, votes, codes = fit(counted)
    own = (ballots.verdict != SKIP) & human & ~ballots.repeat & ~ballots.adjudicated
    production = ballots.keep(own & ~ballots.out & (ballots.pool[ballots.item] == PRODUCTION))
    decided = ballots.keep(own & ~ballots.out & is_decided(ballots))
    effective, labelled, doubtful = _labels(counted, fitted, codes)
    votes_on, _ = to_votes(_production(counted))
    beside_each_other = decided.keep(np.full(len(decided), not ballots.steps))
    return Statistics(
        agreement=agreement(counted),
        raw=agreement(raw),
        alpha=(krippendorff_alpha(votes_on) if ballots.steps else mirrored_alpha(votes_on, (1, 0))),
        effective=effective,
        labelled=labelled,
        doubtful=doubtful,
        by_strength=_by_strength(counted),
        left=wilson(int((beside_each_other.verdict == beside_each_other.left).sum()), len(beside_each_other)),
        ties=wilson(len(production) - int(is_decided(production).sum()), len(production)),
        by_day=_by_day(answers.created, now),
        per_day=float(((answers.created > now - DAY_MS) & (answers.verdict != SKIP)).sum()),
        raters=describe_raters(ballots, raters, fitted, votes),
    )


def is_decided(ballots: Ballots) -> Bools:
    """[N]: whether the verdict is one of the two sides."""
    return (ballots.verdict == A) | (ballots.verdict == B)


def counts(ballots: Ballots) -> Bools:
    """[N]: whether an answer is evidence for the label of an item: for a side, and no repeat, adjudication or
    practice."""
    pool = ballots.pool[ballots.item]
    labelled = (pool == PRODUCTION) | (pool == GOLD)
    return is_decided(ballots) & ~ballots.repeat & ~ballots.adjudicated & labelled


def agreement(ballots: Ballots) -> PairAgreement:
    """The agreement of two raters on the side of a production item, with an interval over prompts."""
    votes, items = to_votes(_production(ballots))
    draws = DRAWS if len(ballots) < MANY else FEW_DRAWS
    return pair_agreement(votes, ballots.prompt[items], draws=draws)


def to_votes(ballots: Ballots) -> tuple[Votes, Ints]:
    """The ballots as `Votes`, with raters named by number, and [I] the index of each item in the item columns."""
    items, item = np.unique(ballots.item, return_inverse=True)
    raters, rater = np.unique(ballots.rater, return_inverse=True)
    names = tuple(map(str, items.tolist())), tuple(map(str, raters.tolist()))
    return Votes(item, rater, ballots.verdict, *names, SIDES), items


def fit(ballots: Ballots) -> tuple[Reliability, Votes, Ints]:
    """Rater reliabilities and the posterior of each item, conditioned on known answers."""
    votes, items = to_votes(ballots)
    gold = np.where(ballots.gold[items] <= B, ballots.gold[items], -1)
    return fit_raters(votes, gold, interchangeable=not ballots.steps), votes, items


def _production(ballots: Ballots) -> Ballots:
    return ballots.keep(ballots.pool[ballots.item] == PRODUCTION)


def _labels(ballots: Ballots, fitted: Reliability, codes: Ints) -> tuple[int, int, tuple[int, ...]]:
    """The number of certain production labels, the number of all, and the ids of the least certain items."""
    production = ballots.pool[codes] == PRODUCTION
    sure = fitted.posterior.max(axis=1)[production]
    doubt = np.argsort(sure, kind="stable")[:DOUBTFUL]
    return int((sure > SURE).sum()), len(sure), tuple(ballots.item_id[codes[production][doubt]].tolist())


def _by_strength(ballots: Ballots) -> tuple[float, ...]:
    if ballots.steps:
        return ()
    votes, _ = to_votes(ballots)
    try:
        return tuple(strength_scale(votes, ballots.strength).agreement[1:].tolist())
    except TutelageError:  # no overlap, or no agreement beyond chance: cannot be calibrated
        return ()


def _by_day(created: Ints, now: int) -> tuple[int, ...]:
    days = now // DAY_MS - created // DAY_MS
    recent = days[(days >= 0) & (days < DAYS)]
    return tuple(np.bincount(recent, minlength=DAYS)[::-1].tolist())


@dataclass(frozen=True)
class ExclusionPreview:
    """The effect of an exclusion or inclusion: the numbers of affected `votes` and `labels`, and the agreement before
    and after."""

    votes: int
    labels: int
    before: PairAgreement
    after: PairAgreement


def preview(ballots: Ballots, rater_id: int, beside: frozenset[int]) -> ExclusionPreview:
    """The effect of excluding a rater, or of including an excluded one. `beside` are the raters that do not count."""
    theirs = ballots.rater == rater_id
    back = rater_id in ballots.excluded_raters
    human = ~np.isin(ballots.rater, list(beside))
    now = human & counts(ballots) & ~ballots.out
    then = (now | (human & counts(ballots) & theirs)) if back else (now & ~theirs)
    one, other = ballots.keep(now), ballots.keep(then)
    changed = int((_sides(one) != _sides(other)).sum())
    return ExclusionPreview(int((now != then).sum()), changed, agreement(one), agreement(other))


def _sides(ballots: Ballots) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """[I]: the labels of production items: 0, 1, 2 (undecided), or -1 without votes."""
    labels = np.full(len(ballots.item_id), -1, dtype=np.int64)
    fitted, _, codes = fit(ballots)
    first = fitted.posterior[:, 0]
    labels[codes] = np.select([first > 0.5, first < 0.5], [0, 1], 2)
    labels[ballots.pool != PRODUCTION] = -1
    return labels
