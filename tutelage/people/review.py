"""The past answers of a rater, and the feedback after training questions."""

from dataclasses import dataclass

from tutelage.people.answers import LETTERS, Answer
from tutelage.people.store.engine import Store
from tutelage.people.store.history import given_answers, known_answer
from tutelage.people.store.questions import Assignment, load_assignment


@dataclass(frozen=True)
class PastAnswer:
    """A question that the rater has answered, with the answer in force as it was displayed. To change it, submit
    another answer, with a key of its own, to the same assignment."""

    assignment: Assignment
    answer: Answer
    revision: int
    created: int


@dataclass(frozen=True)
class Feedback:
    """The feedback after a training question: the place of the better response (`left`, `right`, `tie`), whether the
    rater said so, and why it is so."""

    expected: str
    right: bool
    explanation: str


def recent_answers(store: Store, rater_id: int, limit: int = 1) -> tuple[PastAnswer, ...]:
    """The rater's last answers, newest first: the first is the one to undo."""
    with store.read() as connection:
        return tuple(
            PastAnswer(load_assignment(connection, assignment_id), answer, revision, created)
            for assignment_id, answer, revision, created in given_answers(connection, rater_id, limit)
        )


def feedback(store: Store, assignment_id: int) -> Feedback | None:
    """The feedback on an answered training question; None for any other question, and before the answer."""
    with store.read() as connection:
        known = known_answer(connection, assignment_id)
        if known is None:
            return None
        assignment = load_assignment(connection, assignment_id)
    places = {LETTERS[index]: side for index, side in zip(assignment.order, ("left", "right"), strict=False)}
    expected = places.get(known.gold, known.gold)
    return Feedback(expected, known.verdict == known.gold, known.explanation)
