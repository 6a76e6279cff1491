"""Model judges and reward models as raters, with the same questions and answers as people.

A judge compares each pair in both orders (`data.llm_judge`). Its answers fill no places, and count only if the
selection includes their kind.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tutelage.base.errors import TutelageError
from tutelage.base.progress.phases import phase
from tutelage.data.llm_judge import Compare, Opinion, in_both_orders
from tutelage.data.records import Messages
from tutelage.people.answers import Answer
from tutelage.people.assignment import next_assignment
from tutelage.people.images import refuse_images
from tutelage.people.store.assignments import Assignment
from tutelage.people.store.engine import Store
from tutelage.people.store.raters import add_rater, find_rater
from tutelage.people.store.studies import study_of
from tutelage.people.submission import submit

_SIDES: Mapping[str, Literal["left", "right"]] = {"first": "left", "second": "right"}


@dataclass(frozen=True)
class ScoreJudge:
    """A reward model, or any `score(conversations, responses) -> list[float]`, as a rater. Differences of scores up to
    `tie` are ties; above, the strength increases by one per `step`."""

    score: Callable[[Sequence[Messages], Sequence[str]], Sequence[float]]
    tie: float = 0.0
    step: float = 1.0

    def __call__(self, messages: Messages, first: str, second: str) -> Opinion:
        one, two = self.score([messages, messages], [first, second])
        difference = one - two
        if abs(difference) <= self.tie:
            return Opinion("tie", 0)
        strength = min(3, 1 + int((abs(difference) - self.tie) / self.step))
        return Opinion("first" if difference > 0 else "second", strength)


def judge_study(
    store: Store,
    study_id: int,
    name: str,
    compare: Compare,
    *,
    detail: Mapping[str, object] | None = None,
    most: int | None = None,
) -> int:
    """Let a judge answer all questions new to it, or the next `most` of them; returns the number of answers. After an
    interruption, the next call continues with the remaining questions.

    Raises:
        TutelageError: the study does not compare pairs, the name belongs to a person or to a judge with another
            `detail`, or the judge fails; previous answers are kept.
    """
    study = study_of(store, study_id)
    if not study.kind.traits.sides:
        raise TutelageError(f"'{study.name}' {study.kind.traits.does}; a model judge compares pairs.")
    rater_id = _judge(store, study_id, name, dict(detail or {}))
    count = 0
    with phase(name, most, done=0, loop=True) as judging:
        while most is None or count < most:
            question = next_assignment(store, rater_id)
            if question is None:
                break
            submit(store, question.id, both_orders(question, compare), rater_id=rater_id)
            count += 1
            judging.advance(count)
    return count


def both_orders(question: Assignment, compare: Compare) -> Answer:
    """The judge's answer to a question: the response preferred in both orders, else a tie.

    Raises:
        TutelageError: the question has an image, or the judge fails.
    """
    conversation = " ".join(message.content for message in question.messages)
    refuse_images((conversation, *question.texts), f"The item '{question.item}'", "a model judge")
    opinion = in_both_orders(compare, question.messages, question.left, question.right).settled
    if opinion.preferred == "tie":
        return Answer("tie", reason=opinion.reason)
    return Answer(_SIDES[opinion.preferred], opinion.strength, reason=opinion.reason)


def _judge(store: Store, study_id: int, name: str, detail: dict[str, object]) -> int:
    judge = find_rater(store, study_id, name)
    if judge is None:
        return add_rater(store, study_id, name, kind="llm", detail=detail).id
    if judge.kind != "llm" or dict(judge.detail) != detail:
        raise TutelageError(
            f"The name '{name}' is taken by a rater of another kind, model or prompt; choose another name for the "
            "judge."
        )
    return judge.id
