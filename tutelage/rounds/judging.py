"""Simulated raters at work: they are asked and they answer through the same assignment and submit path as people."""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from tutelage.data.records import Preference
from tutelage.people import (
    Answer,
    Assignment,
    Question,
    Store,
    Vote,
    add_rater,
    find_rater,
    list_votes,
    next_assignment,
    submit,
)
from tutelage.people.aggregate import Labels
from tutelage.simulate import SimulatedRater
from tutelage.stats.agreement import mirrored_alpha, pair_agreement
from tutelage.stats.votes import Votes

SIDES = ("a", "b")

Utility = Callable[[list[str], list[str]], list[float]]


def judge(
    store: Store,
    study_id: int,
    raters: Sequence[SimulatedRater],
    utility: Utility,
    *,
    seed: int,
    done: Callable[[int], None] = lambda count: None,
) -> int:
    """Let the raters take turns until nothing is left to ask. Returns how many judgements this call added.

    What a rater answers to a question depends on the seed, the rater and the question alone, so an interrupted study
    that goes on ends with the same votes.
    """
    ids = {rater.name: _known_rater(store, study_id, rater) for rater in raters}
    answered = {
        rater.name: sum(v.rater == rater.name for v in list_votes(store, study_id)) for rater in raters
    }
    waiting, count = list(raters), 0
    while waiting:
        still = []
        for rater in waiting:
            question = next_assignment(store, ids[rater.name])
            if question is None:
                continue
            rng = Random(f"{seed}/{rater.name}/{question.item}")
            submit(store, question.id, _answer(question, rater, utility, rng, answered[rater.name]))
            answered[rater.name] += 1
            count += 1
            done(count)
            still.append(rater)
        waiting = still
    return count


def _known_rater(store: Store, study_id: int, rater: SimulatedRater) -> int:
    found = find_rater(store, study_id, rater.name)
    return found.id if found else add_rater(store, study_id, rater.name, kind="simulated").id


def _answer(
    question: Assignment, rater: SimulatedRater, utility: Utility, rng: Random, answered: int
) -> Answer:
    prompt = question.messages[-1].content
    left, right = question.texts
    gold_left, gold_right = utility([prompt, prompt], [left, right])
    vote = rater.judge(gold_left, gold_right, len(left.split()), len(right.split()), rng, answered)
    milliseconds = round(vote.seconds * 1000)
    return Answer(vote.verdict, strength=vote.strength, active_ms=milliseconds, wall_ms=milliseconds)


def describe_votes(votes: Sequence[Vote], labels: Labels) -> dict[str, Any]:
    """The figures of a study, as the report shows them (`judgements.json`)."""
    decided = [vote for vote in votes if vote.verdict in SIDES and not vote.repeat]
    table = Votes.of(
        [v.item for v in decided], [v.rater for v in decided], [v.verdict for v in decided], SIDES
    )
    agreement, alpha = pair_agreement(table), mirrored_alpha(table, (1, 0))
    return {
        "items": len({vote.item for vote in votes}),
        "votes": len(votes),
        "ties": sum(vote.verdict in ("tie", "both_bad") for vote in votes),
        "agreement": agreement.value,
        "agreement_interval": [agreement.low, agreement.high],
        "alpha": alpha.value,
        "raters": [_describe_rater(name, votes, labels) for name in sorted({vote.rater for vote in votes})],
    }


def _describe_rater(name: str, votes: Sequence[Vote], labels: Labels) -> dict[str, Any]:
    own = [vote for vote in votes if vote.rater == name and vote.verdict in SIDES]
    shown_left = [(vote.verdict == "a") == (vote.sides[0] == 0) for vote in own]
    low, high = labels.interval[name]
    flags = (
        ["votes against the others"] if high < 0.5 else ["little better than chance"] if low < 0.55 else []
    )
    return {
        "name": name,
        "votes": len(own),
        "reliability": labels.accuracy[name],
        "interval": [low, high],
        "left_rate": sum(shown_left) / max(1, len(shown_left)),
        "flags": flags,
    }


def single_votes(votes: Sequence[Vote], texts: Mapping[str, Question]) -> list[Preference]:
    """Every vote for a side as a preference of its own: what a reward model's accuracy is measured against."""
    found = []
    for vote in votes:
        if vote.verdict in SIDES and not vote.repeat:
            question = texts[vote.item]
            better = SIDES.index(vote.verdict)
            found.append(Preference(question.messages, question.texts[better], question.texts[1 - better]))
    return found
