"""The statistics of a study from its ballots, and a preview of those after an exclusion."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tutelage.base.errors import TutelageError
from tutelage.people import Rater
from tutelage.people.statistics.ballots import GOLD, PRODUCTION, SKIP, A, B, Ballots, Bools, Ints
from tutelage.people.statistics.rater_statistics import RaterStatistics, describe_raters
from tutelage.people.store.engine import DAY_MS
from tutelage.people.store.raters import crowd_kinds
from tutelage.stats.agreement import Alpha, PairAgreement, mirrored_alpha, pair_agreement, strength_scale
from tutelage.stats.intervals import Interval, wilson
from tutelage.stats.reliability import Reliability, one_coin
from tutelage.stats.vote_codes import Votes

SIDES = ("a", "b")
SURE = 0.9
DOUBTFUL = 200
MANY = 50_000
DRAWS, FEW_DRAWS = 1_000, 200
DAYS = 14


@dataclass(frozen=True)
class Statistics:
    """The statistics of a study's votes. `agreement` and `alpha` are about the raters that count: people, and simulated
    raters while no person takes part; `raw` about all of them, the excluded ones included. `effective`
    counts production items whose label is surer than .9; `doubtful` are the items with the least sure labels, by
    number. `by_strength` gives the share of others' votes that agree with one of strength 1, 2, 3. `by_day` counts
    votes of the last two weeks, today last. `left` and `ties` are shares of the decided votes and of all."""

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
    answers = ballots.keep(np.unique(ballots.id, return_index=True)[1])  # one may speak of several pairs
    human = ~np.isin(ballots.rater, beside)
    counted = ballots.keep(human & ~ballots.out & counts(ballots))
    raw = ballots.keep(human & counts(ballots))
    fitted, votes, codes = fit(counted)
    made = (ballots.verdict != SKIP) & human & ~ballots.repeat & ~ballots.adjudicated
    production = ballots.keep(made & ~ballots.out & (ballots.pool[ballots.item] == PRODUCTION))
    decided = ballots.keep(made & ~ballots.out & is_decided(ballots))
    effective, labelled, doubtful = _labels(counted, fitted, codes)
    return Statistics(
        agreement=agreement(counted),
        raw=agreement(raw),
        alpha=mirrored_alpha(to_votes(_production(counted))[0], (1, 0)),
        effective=effective,
        labelled=labelled,
        doubtful=doubtful,
        by_strength=_by_strength(counted),
        left=wilson(int((decided.verdict == decided.left).sum()), len(decided)),
        ties=wilson(len(production) - int(is_decided(production).sum()), len(production)),
        by_day=_by_day(answers.created, now),
        per_day=float(((answers.created > now - DAY_MS) & (answers.verdict != SKIP)).sum()),
        raters=describe_raters(ballots, raters, fitted, votes),
    )


def is_decided(ballots: Ballots) -> Bools:
    """[N]: for one of two sides."""
    return (ballots.verdict == A) | (ballots.verdict == B)


def counts(ballots: Ballots) -> Bools:
    """[N]: answers that speak about the truth of an item: for a side, no repeat, nobody's adjudication, no practice."""
    pool = ballots.pool[ballots.item]
    known = (pool == PRODUCTION) | (pool == GOLD)
    return is_decided(ballots) & ~ballots.repeat & ~ballots.adjudicated & known


def agreement(ballots: Ballots) -> PairAgreement:
    """How often two raters of a production item choose the same side, with an interval over prompts."""
    votes, items = to_votes(_production(ballots))
    draws = DRAWS if len(ballots) < MANY else FEW_DRAWS
    return pair_agreement(votes, ballots.prompt[items], draws=draws)


def to_votes(ballots: Ballots) -> tuple[Votes, Ints]:
    """The ballots for the statistics, and [I] which item column each of their items is. Raters are named by number."""
    items, item = np.unique(ballots.item, return_inverse=True)
    raters, rater = np.unique(ballots.rater, return_inverse=True)
    names = tuple(map(str, items.tolist())), tuple(map(str, raters.tolist()))
    return Votes(item, rater, ballots.verdict, *names, SIDES), items


def fit(ballots: Ballots) -> tuple[Reliability, Votes, Ints]:
    """Rater reliabilities and the posterior of each item, the known answers given."""
    votes, items = to_votes(ballots)
    gold = np.where(ballots.gold[items] <= B, ballots.gold[items], -1)
    return one_coin(votes, gold), votes, items


def _production(ballots: Ballots) -> Ballots:
    return ballots.keep(ballots.pool[ballots.item] == PRODUCTION)


def _labels(ballots: Ballots, fitted: Reliability, codes: Ints) -> tuple[int, int, tuple[int, ...]]:
    """How many production labels are sure, how many there are, and the items of the least sure ones."""
    production = ballots.pool[codes] == PRODUCTION
    sure = fitted.posterior.max(axis=1)[production]
    doubt = np.argsort(sure, kind="stable")[:DOUBTFUL]
    return int((sure > SURE).sum()), len(sure), tuple(ballots.item_id[codes[production][doubt]].tolist())


def _by_strength(ballots: Ballots) -> tuple[float, ...]:
    votes, _ = to_votes(ballots)
    try:
        return tuple(strength_scale(votes, ballots.strength).agreement[1:].tolist())
    except TutelageError:  # no overlap, or no agreement beyond chance: nothing to calibrate with
        return ()


def _by_day(created: Ints, now: int) -> tuple[int, ...]:
    days = now // DAY_MS - created // DAY_MS
    recent = days[(days >= 0) & (days < DAYS)]
    return tuple(np.bincount(recent, minlength=DAYS)[::-1].tolist())


@dataclass(frozen=True)
class ExclusionPreview:
    """`votes` that would leave or come back, `labels` that would change, and the agreement before and after."""

    votes: int
    labels: int
    before: PairAgreement
    after: PairAgreement


def preview(ballots: Ballots, rater_id: int, beside: frozenset[int]) -> ExclusionPreview:
    """The statistics with the exclusion of one rater turned around. `beside` are the raters that do not count."""
    theirs = ballots.rater == rater_id
    back = rater_id in ballots.excluded_raters
    human = ~np.isin(ballots.rater, list(beside))
    now = human & counts(ballots) & ~ballots.out
    then = (now | (human & counts(ballots) & theirs)) if back else (now & ~theirs)
    one, other = ballots.keep(now), ballots.keep(then)
    changed = int((_sides(one) != _sides(other)).sum())
    return ExclusionPreview(int((now != then).sum()), changed, agreement(one), agreement(other))


def _sides(ballots: Ballots) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """[I]: -1 without a vote, else 0, 1 or (undecided) 2, for production items."""
    labels = np.full(len(ballots.item_id), -1, dtype=np.int64)
    fitted, _, codes = fit(ballots)
    first = fitted.posterior[:, 0]
    labels[codes] = np.select([first > 0.5, first < 0.5], [0, 1], 2)
    labels[ballots.pool != PRODUCTION] = -1
    return labels
