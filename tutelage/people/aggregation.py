"""Aggregation of votes into one label per pair, each rater weighted by reliability.

P(a is better) is the posterior of the one-coin model of Dawid and Skene (`stats.reliability`): golds enter with their
answer, a single vote counts as its rater's reliability, and what a stated strength is worth is learnt from the pairs
that two raters judged (`stats.strength`). Ties and both-bad say nothing about which is better; they are counted beside.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from tutelage.base.errors import TutelageError
from tutelage.people.answers import LETTERS
from tutelage.people.kinds import find_kind
from tutelage.people.kinds.kind import Statement
from tutelage.people.store.votes import Vote
from tutelage.stats.agreement import Alpha, strength_scale
from tutelage.stats.reliability import one_coin, posterior
from tutelage.stats.vote_codes import Floats, Votes

SIDES = ("a", "b")


@dataclass(frozen=True, slots=True)
class PairVote:
    """A rater's verdict on the responses `first` and `second` (canonical indices) of an item; `a`: the first is
    better."""

    item: str
    first: int
    second: int
    rater: str
    verdict: str
    strength: int


@dataclass(frozen=True)
class Label:
    """The label of a pair: P(first is better), the votes by verdict, and the mean strength in favour of the first."""

    item: str
    first: int
    second: int
    p_first: float
    counts: dict[str, int]
    strength: float

    @property
    def kind(self) -> str:
        """`decided`, `tie` or `both_bad`: the last two only with more votes than all the others."""
        sides = self.counts["a"] + self.counts["b"]
        if self.counts["both_bad"] > sides + self.counts["tie"]:
            return "both_bad"
        return "tie" if self.counts["tie"] > sides or not sides else "decided"


@dataclass(frozen=True)
class Labels:
    """The labels of all pairs, and how reliable the model found each rater (by name)."""

    labels: tuple[Label, ...]
    accuracy: dict[str, float]
    interval: dict[str, tuple[float, float]]
    strength_agreement: tuple[float, ...]


def pair_votes(votes: Sequence[Vote]) -> Iterator[PairVote]:
    """The votes as statements about pairs of responses, by the rules of their kinds."""
    for vote in votes:
        for first, second, verdict, strength in vote.pairs:
            yield PairVote(vote.item, first, second, vote.rater, verdict, strength)


def agreements(votes: Sequence[Vote]) -> dict[str, Alpha]:
    """The agreement of raters in what pairs do not show, by name (`Kind.agreements`); all votes are of one study."""
    said = [Statement(vote.item, vote.rater, vote.said) for vote in votes if vote.verdict != "skip"]
    return dict(find_kind(votes[0].kind).agreements(said)) if votes else {}


def pairs_of(vote: Vote) -> tuple[tuple[int, int], ...]:
    """The pairs of canonical indices among the responses that were shown."""
    return tuple(combinations(range(len(vote.sides)), 2))


def aggregate(votes: Sequence[Vote], gold: Mapping[str, str], *, use_strength: bool = True) -> Labels:
    """Label every pair that these votes speak about. `gold` gives the known answers by the name of the pair
    (`pair_name`; that of an item with two responses is its key): only a and b are used.

    Without two votes on any pair, or where raters agree no more than chance, strength is left out of account: nothing
    could calibrate it.
    """
    pairs = list(pair_votes(votes))
    decided = [pair for pair in pairs if pair.verdict in SIDES]
    coded = Votes.of(
        [pair_name(p) for p in decided], [p.rater for p in decided], [p.verdict for p in decided], SIDES
    )
    if len(coded) != len(decided):
        raise TutelageError(
            "A rater has two votes in force on one pair; leave repeats out before aggregating."
        )
    known = np.array(
        [SIDES.index(gold[name]) if gold.get(name) in SIDES else -1 for name in coded.items], dtype=int
    )
    weight, agreement = _strength_weights(coded, decided) if use_strength else (None, ())
    fitted = one_coin(coded, known)
    first = posterior(coded, fitted.accuracy, known, weight=weight)[:, 0]
    return Labels(
        tuple(_labels(pairs, dict(zip(coded.items, first.tolist(), strict=True)), gold)),
        dict(zip(coded.raters, fitted.accuracy.tolist(), strict=True)),
        dict(zip(coded.raters, zip(fitted.low.tolist(), fitted.high.tolist(), strict=True), strict=True)),
        agreement,
    )


def pair_name(pair: PairVote | Label) -> str:
    """The pair's name among all pairs of a study."""
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
        counts = {
            verdict: sum(p.verdict == verdict for p in about) for verdict in ("a", "b", "tie", "both_bad")
        }
        signed = sum(p.strength if p.verdict == "a" else -p.strength for p in about if p.verdict in SIDES)
        strength = signed / max(1, counts["a"] + counts["b"])
        yield Label(about[0].item, about[0].first, about[0].second, p_first.get(name, 0.5), counts, strength)
