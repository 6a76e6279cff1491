"""Preferences for training, straight from the study: which votes count, and what each row says."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tutelage.data.records import Preference
from tutelage.people.aggregate import Label, aggregate
from tutelage.people.store.engine import Store
from tutelage.people.store.judgements import Vote, list_votes
from tutelage.people.store.questions import Question, list_questions


@dataclass(frozen=True)
class Selection:
    """Which votes count and how labels become rows.

    kinds: the kinds of rater whose votes count (model judges are asked for by name).
    ties: `drop` them, or `keep` them with p_chosen = 0.5.
    min_votes: votes for a side that a pair needs.
    use_strength: let votes count by what their strength proved worth.
    weights: weight rows by mean strength (1 on average) instead of equally.
    margins: ask for a margin of the mean strength (0 to 3 nats).
    """

    kinds: tuple[str, ...] = ("human", "simulated")
    ties: Literal["drop", "keep"] = "drop"
    min_votes: int = 1
    use_strength: bool = True
    weights: bool = False
    margins: bool = False


def preferences(
    store: Store, study_id: int, selection: Selection | None = None, *, split: str | None = None
) -> tuple[Preference, ...]:
    """The study's preferences as training reads them; only those of one split if it is named."""
    selection = selection or Selection()
    questions = {question.item: question for question in list_questions(store, study_id)}
    votes = [vote for vote in list_votes(store, study_id) if _counts(vote, selection)]
    gold = {key: question.gold for key, question in questions.items() if question.gold is not None}
    labels = aggregate(votes, gold, use_strength=selection.use_strength).labels
    wanted = [
        label
        for label in labels
        if questions[label.item].pool == "production"
        and (split is None or questions[label.item].split == split)
    ]
    return tuple(_rows(wanted, questions, selection))


def _counts(vote: Vote, selection: Selection) -> bool:
    return (
        not (vote.excluded or vote.repeat or vote.pool == "training") and vote.rater_kind in selection.kinds
    )


def _rows(
    labels: Sequence[Label], questions: dict[str, Question], selection: Selection
) -> Iterator[Preference]:
    kept = [label for label in labels if label.kind == "decided" and _sides(label) >= selection.min_votes]
    if selection.ties == "keep":
        kept += [label for label in labels if label.kind == "tie"]
    mean = sum(abs(label.strength) for label in kept) / max(1, len(kept)) or 1.0
    for label in kept:
        texts = questions[label.item].texts
        p_first = label.p_first if label.kind == "decided" else 0.5
        first, second = (label.first, label.second) if p_first >= 0.5 else (label.second, label.first)
        toward = label.strength if p_first >= 0.5 else -label.strength
        yield Preference(
            questions[label.item].messages,
            texts[first],
            texts[second],
            p_chosen=max(p_first, 1 - p_first),
            weight=max(toward, 0.0) / mean if selection.weights else 1.0,
            margin=max(toward, 0.0) if selection.margins else 0.0,
        )


def _sides(label: Label) -> int:
    return label.counts["a"] + label.counts["b"]
