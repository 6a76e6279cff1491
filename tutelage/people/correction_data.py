"""Corrections as training data: weighted demonstrations, and preferences of each correction over its originals.

For a rater of reliability a (the probability of a right vote, by the model of the labels), n used corrections of the
question, and m originals:

    demonstration   weight a / n
    pair            p_chosen a, weight 1 / (n m)

so that the total weight of a question is at most 1, regardless of the number of corrections. The original is the edited
response; for a text written from scratch, all responses of the question are originals. Owners have reliability 1.

A correction of a step of a trace comes after the conversation up to that step, and its original is the message that the
model wrote there.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tutelage.data.records import Demonstration, Message, Messages, Preference, spoken
from tutelage.data.traces import trace_messages
from tutelage.people.answers import Correction
from tutelage.people.images import turn_with_parts, with_parts
from tutelage.people.store.item_catalogue import Question
from tutelage.people.store.votes import Vote

PRIOR = 4 / 6
"""The reliability of a rater without a vote for a side: the mean of the model's prior, Beta(4, 2)."""
IN_USE = ("counts", "adjudication", "gold", "repeat")
"""The fates of votes whose corrections are used."""
UNRELIABLE = "unreliable"
"""The fate of a correction by a rater of reliability below 0.5."""


@dataclass(frozen=True)
class CorrectedAnswer:
    """A used correction with its vote and question, the rater's reliability, and the number of used corrections of the
    question."""

    vote: Vote
    correction: Correction
    question: Question
    reliability: float
    count: int

    @property
    def demonstration(self) -> Demonstration:
        """The correction as a demonstration."""
        return Demonstration(self.messages, turn_with_parts(self.correction.text), self.reliability / self.count)

    @property
    def messages(self) -> Messages:
        """The conversation before the correction."""
        return with_parts((*self.question.messages, *self._branch[0]))

    @property
    def _branch(self) -> tuple[Messages, Message | None]:
        """The messages of the trace before the corrected step, and its own; for other corrections nothing, and None."""
        response, step = self.correction.response, self.correction.step
        if response is None or step is None:
            return (), None
        steps = self.question.completions[response].steps
        return trace_messages(steps[:step]), trace_messages(steps[step:])[0]

    @property
    def originals(self) -> tuple[int, ...]:
        """The canonical indices of the corrected responses, without empty ones, which preferences cannot contain."""
        if (written := self._branch[1]) is not None and not (written.content.strip() or written.calls):
            return ()
        whole = range(len(self.question.texts))
        indices = whole if self.correction.response is None else (self.correction.response,)
        return tuple(index for index in indices if self.question.texts[index].strip())

    @property
    def pairs(self) -> tuple[tuple[int, Preference], ...]:
        """The preferences of the correction over each original, with the index of the original."""
        originals, written = self.originals, self._branch[1]
        return tuple(
            (
                index,
                Preference(
                    self.messages,
                    turn_with_parts(self.correction.text),
                    turn_with_parts(self.question.turns[index] if written is None else spoken(written)),
                    p_chosen=self.reliability,
                    weight=1 / (self.count * len(originals)),
                ),
            )
            for index in originals
        )


def corrected_answers(
    votes: Sequence[Vote], fates: Sequence[str], questions: Mapping[str, Question], reliability: Mapping[str, float]
) -> tuple[CorrectedAnswer, ...]:
    """The used corrections among the votes, for the fate of each vote and the reliability of raters by name."""
    used = [
        (vote, vote.correction, questions[vote.item], _reliability(vote, reliability))
        for vote, fate in zip(votes, fates, strict=True)
        if vote.correction is not None and _use(vote, fate, reliability) == "used"
    ]
    counts = Counter(vote.item for vote, *_ in used)
    return tuple(CorrectedAnswer(*each, counts[each[0].item]) for each in used)


def correction_fates(votes: Iterable[Vote], fates: Iterable[str], reliability: Mapping[str, float]) -> dict[str, int]:
    """The numbers of corrections in the latest votes by fate: `used`, `unreliable`, or the fate of an unused vote."""
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
