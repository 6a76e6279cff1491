"""Corrections as training data: demonstrations with a weight, and pairs of each correction over its original.

For a rater of reliability a (the probability that the rater's vote is right, by the model that the labels come from),
with n corrections of the question in use, and m originals:

    demonstration   weight a / n
    pair            p_chosen a, weight 1 / (n m)

so that a question counts at most once, however many raters correct it. The original is the response that was edited; a
text that was written anew stands in place of all responses of the question. Whoever owns the study has reliability 1.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tutelage.data.records import Demonstration, Preference
from tutelage.people.answers import Correction
from tutelage.people.store.item_catalogue import Question
from tutelage.people.store.votes import Vote

PRIOR = 4 / 6
"""The reliability of a rater without a vote for a side: the mean of the model's prior, Beta(4, 2)."""
IN_USE = ("counts", "adjudication", "gold", "repeat")
"""The fates of votes whose corrections are used."""
UNRELIABLE = "unreliable"
"""What becomes of a correction by a rater who is wrong more often than right."""


@dataclass(frozen=True)
class CorrectedAnswer:
    """A correction in use: its vote and question, the rater's reliability, and how many corrections of the question are
    used."""

    vote: Vote
    correction: Correction
    question: Question
    reliability: float
    count: int

    @property
    def demonstration(self) -> Demonstration:
        """The correction to imitate."""
        weight = self.reliability / self.count
        return Demonstration(self.question.messages, self.correction.text, weight)

    @property
    def originals(self) -> tuple[int, ...]:
        """The canonical indices of the responses that it corrects; empty ones are left out, as no preference has an
        empty side."""
        whole = range(len(self.question.texts))
        found = whole if self.correction.response is None else (self.correction.response,)
        return tuple(index for index in found if self.question.texts[index].strip())

    @property
    def pairs(self) -> tuple[tuple[int, Preference], ...]:
        """The correction over each original, by the index of the original."""
        originals, messages = self.originals, self.question.messages
        return tuple(
            (
                index,
                Preference(
                    messages,
                    self.correction.text,
                    self.question.texts[index],
                    p_chosen=self.reliability,
                    weight=1 / (self.count * len(originals)),
                ),
            )
            for index in originals
        )


def corrected_answers(
    votes: Sequence[Vote],
    fates: Sequence[str],
    questions: Mapping[str, Question],
    reliability: Mapping[str, float],
) -> tuple[CorrectedAnswer, ...]:
    """The corrections in use among the votes, given the fate of each vote and the reliability of raters by name."""
    found = [
        (vote, vote.correction, questions[vote.item], _reliability(vote, reliability))
        for vote, fate in zip(votes, fates, strict=True)
        if vote.correction is not None and _use(vote, fate, reliability) == "used"
    ]
    counts = Counter(vote.item for vote, *_ in found)
    return tuple(CorrectedAnswer(*each, counts[each[0].item]) for each in found)


def correction_fates(
    votes: Iterable[Vote], fates: Iterable[str], reliability: Mapping[str, float]
) -> dict[str, int]:
    """The numbers of corrections of the latest votes that are `used`, `unreliable`, or have the fate of a vote left
    out."""
    return dict(
        Counter(
            _use(vote, fate, reliability)
            for vote, fate in zip(votes, fates, strict=True)
            if vote.correction is not None and vote.latest
        )
    )


def _use(vote: Vote, fate: str, reliability: Mapping[str, float]) -> str:
    if fate not in IN_USE:
        return fate
    return "used" if _reliability(vote, reliability) >= 0.5 else UNRELIABLE


def _reliability(vote: Vote, reliability: Mapping[str, float]) -> float:
    return 1.0 if vote.decides else reliability.get(vote.rater, PRIOR)
