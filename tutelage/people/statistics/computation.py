"""Statistics of a study from its ballots: agreement, labels, reliability, bias and flags of raters, and previews of
exclusions.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tutelage.base.errors import TutelageError
from tutelage.people import Rater
from tutelage.people.aggregation import SIDES, fit_raters
from tutelage.people.languages import Sentence, Share
from tutelage.people.statistics.ballots import GOLD, PRODUCTION, SKIP, TIE, TRAINING, A, B, Ballots, Bools, Ints
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
from tutelage.stats.rater_checks import GoldTest, RaterFlag, gold_test, rater_flags, side_bias
from tutelage.stats.reliability import Reliability
from tutelage.stats.vote_codes import Votes

BIASED = 0.001
LONGER = 0.8
ENOUGH_FOR_LENGTH = 60
HASTE = 0.25
ENOUGH_FOR_HASTE = 20
CARELESS_REPEATS = 0.55
ENOUGH_REPEATS = 8


@dataclass(frozen=True)
class RaterStatistics:
    """The statistics of a rater. `reliability`, `low`, `high`: P(the next vote is right) and its interval, None without
    `evidence`, the equivalent number of votes with known answers. `left`, `longer`, `repeats`: shares with Wilson
    intervals. `flags`: problems shown to owners."""

    reliability: float | None
    low: float | None
    high: float | None
    evidence: float
    gold: GoldTest
    left: Interval
    left_p: float
    longer: Interval
    repeats: Interval
    median_ms: float | None
    flags: tuple[Sentence, ...]


def describe_raters(
    ballots: Ballots, raters: Sequence[Rater], fitted: Reliability, votes: Votes
) -> Mapping[int, RaterStatistics]:
    """The statistics of each rater, by id."""
    fitted_at = {int(name): place for place, name in enumerate(votes.raters)}
    flags = rater_flags(votes, fitted) if len(votes) else ()
    medians = _medians(ballots)
    usual = float(np.median([time for time, count in medians.values() if count >= ENOUGH_FOR_HASTE] or [0.0]))
    bias = _side_bias(raters)
    golds = _golds(ballots)
    statistics = {}
    for rater in raters:
        place = fitted_at.get(rater.id)
        gold = gold_test(golds.get(rater.id, ()))
        median, timed = medians.get(rater.id, (None, 0))
        model_flags = () if place is None else tuple(_sentence(flag) for flag in flags[place] if flag.kind != "too_few")
        more = _more_flags(rater, gold, bias[rater.id], median, timed, usual)
        tallies = rater.tallies
        statistics[rater.id] = RaterStatistics(
            reliability=None if place is None else float(fitted.accuracy[place]),
            low=None if place is None else float(fitted.low[place]),
            high=None if place is None else float(fitted.high[place]),
            evidence=0.0 if place is None else float(fitted.evidence[place]),
            gold=gold,
            left=wilson(tallies.left_chosen, tallies.left_chosen + tallies.right_chosen),
            left_p=bias[rater.id],
            longer=wilson(tallies.longer_chosen, tallies.longer_chosen + tallies.shorter_chosen),
            repeats=wilson(tallies.repeat_same, tallies.repeat_seen),
            median_ms=median,
            flags=(*model_flags, *more),
        )
    return statistics


def _sentence(flag: RaterFlag) -> Sentence:
    """A flag of the rater model as a sentence for owners."""
    if flag.kind == "biased":
        choice, share, expected = flag.values
        return Sentence(
            "says '%(choice)s' in %(share)s, expected %(expected)s",
            choice=choice,
            share=Share(float(share)),
            expected=Share(float(expected)),
        )
    most, chance = flag.values
    return Sentence(
        "right in at most %(most)s, chance is %(chance)s", most=Share(float(most)), chance=Share(float(chance))
    )


def _more_flags(
    rater: Rater, gold: GoldTest, bias: float, median: float | None, timed: int, usual: float
) -> Iterator[Sentence]:
    tallies = rater.tallies
    sides, lengths = (tallies.left_chosen + tallies.right_chosen, tallies.longer_chosen + tallies.shorter_chosen)
    if gold.standing == "flagged":
        yield Sentence("fails known answers: %(right)s of %(seen)s right", right=gold.right, seen=gold.answered)
    if bias < BIASED:
        yield Sentence("favours one side: left in %(left)s of %(all)s", left=tallies.left_chosen, all=sides)
    if lengths >= ENOUGH_FOR_LENGTH and tallies.longer_chosen > LONGER * lengths:
        yield Sentence("favours length: the longer in %(longer)s of %(all)s", longer=tallies.longer_chosen, all=lengths)
    if median is not None and timed >= ENOUGH_FOR_HASTE and median < HASTE * usual:
        yield Sentence(
            "hasty: %(time)s s each, where %(usual)s s are usual",
            time=round(median / 1000, 1),
            usual=round(usual / 1000),
        )
    if tallies.repeat_seen >= ENOUGH_REPEATS and tallies.repeat_same < CARELESS_REPEATS * tallies.repeat_seen:
        yield Sentence(
            "contradicts itself: %(same)s of %(all)s repeats the same",
            same=tallies.repeat_same,
            all=tallies.repeat_seen,
        )


def _side_bias(raters: Sequence[Rater]) -> Mapping[int, float]:
    left = np.array([rater.tallies.left_chosen for rater in raters], dtype=np.int64)
    right = np.array([rater.tallies.right_chosen for rater in raters], dtype=np.int64)
    values = side_bias(left, left + right) if len(raters) else np.empty(0)
    return {rater.id: float(value) for rater, value in zip(raters, values, strict=True)}


def _golds(ballots: Ballots) -> Mapping[int, list[bool]]:
    """Whether each answer to a gold question was right, by rater, in the order of answering; where steps are judged,
    whether each label of a step with a known answer was, without neutral ones."""
    golds = ballots.keep((ballots.pool[ballots.item] == GOLD) & (ballots.verdict != SKIP) & ~ballots.repeat)
    if ballots.steps:
        golds = golds.keep((golds.gold[golds.item] >= 0) & (golds.verdict != TIE))
    right = golds.verdict == golds.gold[golds.item]
    by_rater: dict[int, list[bool]] = {}
    for rater, answer in zip(golds.rater.tolist(), right.tolist(), strict=True):
        by_rater.setdefault(rater, []).append(answer)
    return by_rater


def _medians(ballots: Ballots) -> Mapping[int, tuple[float, int]]:
    """The median active time in milliseconds and the number of timed answers, by rater."""
    timed = ballots.keep((ballots.active_ms >= 0) & (ballots.pool[ballots.item] != TRAINING))
    order = np.lexsort((timed.active_ms, timed.rater))
    rater, times = timed.rater[order], timed.active_ms[order]
    ids, starts, counts = np.unique(rater, return_index=True, return_counts=True)
    spans = zip(ids.tolist(), starts.tolist(), counts.tolist(), strict=True)
    return {number: (float(np.median(times[begin : begin + count])), count) for number, begin, count in spans}


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
