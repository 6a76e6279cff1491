"""Statistics of raters: reliability, evidence, bias and flags."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tutelage.people import Rater
from tutelage.people.languages import Sentence, Share
from tutelage.people.statistics.ballots import GOLD, SKIP, TIE, TRAINING, Ballots
from tutelage.stats.intervals import Interval, wilson
from tutelage.stats.rater_checks import GoldTest, RaterFlag, gold_test, rater_flags, side_bias
from tutelage.stats.reliability import Reliability
from tutelage.stats.vote_codes import Votes

FEW = 12
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
