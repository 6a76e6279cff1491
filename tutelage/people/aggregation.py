"""Aggregation of votes into one label per pair, with raters weighted by reliability.

P(a is better) is the posterior of the one-coin model of Dawid and Skene (`stats.reliability`). Known answers are fixed,
a single vote counts as its rater's reliability, and the weight of a stated strength is estimated from pairs with two
raters (`stats.strength`). Ties and both-bad do not affect the posterior; they are counted separately.

A step of a response is a pair whose indices are both the step, and P(a is better) that it is right. Right and wrong are
not interchangeable, so that raters have a confusion matrix each and the classes a prevalence.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tutelage.base.errors import TutelageError
from tutelage.people.answers import LETTERS
from tutelage.people.kinds import find_kind
from tutelage.people.kinds.kind import Kind, RaterAnswer
from tutelage.people.store.votes import Vote
from tutelage.stats.agreement import Alpha, strength_scale
from tutelage.stats.reliability import Reliability, dawid_skene, one_coin, posterior
from tutelage.stats.vote_codes import Floats, Ints, Votes

SIDES = ("a", "b")


@dataclass(frozen=True, slots=True)
class PairVote:
    """A rater's verdict on two responses of an item with canonical indices `first` and `second`, or on a step
    (`PairVerdict`); `a`: the first is better, or the step right."""

    item: str
    first: int
    second: int
    rater: str
    verdict: str
    strength: int


@dataclass(frozen=True)
class Label:
    """The label of a pair or step: P(first is better, or the step right), the votes by verdict, and the mean strength
    in favour of the first."""

    item: str
    first: int
    second: int
    p_first: float
    counts: dict[str, int]
    strength: float

    @property
    def step(self) -> int | None:
        """The step, if it is the label of one."""
        return self.first if self.first == self.second else None

    @property
    def kind(self) -> str:
        """`decided`, `tie` or `both_bad`; the latter two require a majority of the votes."""
        sides = self.counts["a"] + self.counts["b"]
        if self.counts["both_bad"] > sides + self.counts["tie"]:
            return "both_bad"
        return "tie" if self.counts["tie"] > sides or not sides else "decided"


@dataclass(frozen=True)
class Labels:
    """The labels of all pairs, and the estimated reliability of each rater by name."""

    labels: tuple[Label, ...]
    accuracy: dict[str, float]
    interval: dict[str, tuple[float, float]]
    strength_agreement: tuple[float, ...]


def pair_votes(votes: Sequence[Vote]) -> Iterator[PairVote]:
    """The votes as verdicts on pairs of responses, as defined by their kinds."""
    for vote in votes:
        for first, second, verdict, strength in vote.pairs:
            yield PairVote(vote.item, first, second, vote.rater, verdict, strength)


def agreements(votes: Sequence[Vote]) -> dict[str, Alpha]:
    """Agreement of raters beyond pairs, by name (`Kind.agreements`); all votes must be of one study."""
    statements = [RaterAnswer(vote.item, vote.rater, vote.canonical) for vote in votes if vote.verdict != "skip"]
    return dict(find_kind(votes[0].kind).agreements(statements)) if votes else {}


def aggregate(votes: Sequence[Vote], gold: Mapping[str, str], *, use_strength: bool = True) -> Labels:
    """Label every pair in the votes. `gold` holds the known answers by name of the pair (`pair_name`; for an item with
    two responses, its key); only a and b are used.

    Strength is ignored if it cannot be calibrated: if no pair has two votes, or raters agree no more than by chance.
    Raises TutelageError if a rater has two votes in force on one pair."""
    pairs = list(pair_votes(votes))
    decided = [pair for pair in pairs if pair.verdict in SIDES]
    coded = Votes.of([pair_name(p) for p in decided], [p.rater for p in decided], [p.verdict for p in decided], SIDES)
    if len(coded) != len(decided):
        raise TutelageError("A rater has two votes in force on one pair; remove repeats before aggregating.")
    gold_codes = np.array(
        [SIDES.index(gold[name]) if gold.get(name) in SIDES else -1 for name in coded.items], dtype=int
    )
    agreement: tuple[float, ...] = ()
    if votes and find_kind(votes[0].kind).traits.steps:
        fitted = fit_raters(coded, gold_codes, interchangeable=False)
        first = fitted.posterior[:, 0]
    else:
        weight, agreement = _strength_weights(coded, decided) if use_strength else (None, ())
        fitted = fit_raters(coded, gold_codes)
        first = posterior(coded, fitted.accuracy, gold_codes, weight=weight)[:, 0]
    return Labels(
        tuple(_labels(pairs, dict(zip(coded.items, first.tolist(), strict=True)), gold)),
        dict(zip(coded.raters, fitted.accuracy.tolist(), strict=True)),
        dict(zip(coded.raters, zip(fitted.low.tolist(), fitted.high.tolist(), strict=True), strict=True)),
        agreement,
    )


def fit_raters(votes: Votes, gold: Ints, *, interchangeable: bool = True) -> Reliability:
    """The reliability of raters from votes for a and b; `interchangeable`: whether swapping a and b changes nothing, as
    for two responses, but not for right and wrong."""
    return one_coin(votes, gold) if interchangeable else dawid_skene(votes, gold)


def known_answers(gold: Mapping[str, tuple[str, int]], kind: Kind) -> dict[str, str]:
    """Known answers by name of the pair or step, from those of items, each with the number of its steps."""
    return {
        pair_name(PairVote(item, each.first, each.second, "", each.verdict, 0)): each.verdict
        for item, (answer, steps) in gold.items()
        for each in kind.gold_pairs(answer, steps)
    }


def pair_name(pair: PairVote | Label) -> str:
    """The name of a pair or step, unique in its study."""
    if pair.first == pair.second:
        return f"{pair.item}\x1f{pair.first + 1}"
    whole = (pair.first, pair.second) == (0, 1)
    return pair.item if whole else f"{pair.item}\x1f{LETTERS[pair.first]}{LETTERS[pair.second]}"


def _strength_weights(votes: Votes, decided: Sequence[PairVote]) -> tuple[Floats | None, tuple[float, ...]]:
    strength = np.array([pair.strength for pair in decided], dtype=np.int64)
    try:
        scale = strength_scale(votes, strength)
    except TutelageError:
        return None, ()
    return scale.weights(strength), tuple(scale.agreement.tolist())


def _labels(pairs: Sequence[PairVote], p_first: dict[str, float], gold: Mapping[str, str]) -> Iterator[Label]:
    p_first |= {item: float(answer == "a") for item, answer in gold.items() if answer in SIDES}
    grouped: dict[str, list[PairVote]] = {}
    for pair in pairs:
        grouped.setdefault(pair_name(pair), []).append(pair)
    for name, about in grouped.items():
        counts = {verdict: sum(p.verdict == verdict for p in about) for verdict in ("a", "b", "tie", "both_bad")}
        signed = sum(p.strength if p.verdict == "a" else -p.strength for p in about if p.verdict in SIDES)
        strength = signed / max(1, counts["a"] + counts["b"])
        yield Label(about[0].item, about[0].first, about[0].second, p_first.get(name, 0.5), counts, strength)
