"""Model judges and reward models as raters, with the same questions and answers as people.

A judge compares each pair in both orders, or decides about each criterion of a prompt's rubric (`data.llm_judge`). Its
answers fill no places, and count only if the selection includes their kind.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tutelage.base.concurrency import mapped
from tutelage.base.errors import TutelageError
from tutelage.base.progress.phases import phase
from tutelage.data.chat_endpoint import AT_ONCE
from tutelage.data.llm_judge import Compare, JudgeCriterion, Opinion, in_both_orders
from tutelage.data.records import Messages
from tutelage.people.answers import DECISIONS, Answer, decisions_in, judged
from tutelage.people.assignment import next_assignment
from tutelage.people.images import refuse_images
from tutelage.people.store.assignments import Assignment
from tutelage.people.store.engine import Store
from tutelage.people.store.item_catalogue import list_questions
from tutelage.people.store.raters import add_rater, find_rater
from tutelage.people.store.studies import study_of
from tutelage.people.store.votes import list_votes
from tutelage.people.submission import submit
from tutelage.stats.agreement import agreement_of_counts
from tutelage.stats.intervals import Interval, ratio_interval

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
    judge: Compare | JudgeCriterion,
    *,
    detail: Mapping[str, object] | None = None,
    most: int | None = None,
) -> int:
    """Let a judge answer all questions new to it, or the next `most` of them; returns the number of answers. After an
    interruption, the next call continues with the remaining questions. Raises TutelageError if the study is neither of
    pairs nor of criteria, the name belongs to a person or to a judge with another `detail`, or the judge fails;
    previous answers are kept."""
    study = study_of(store, study_id)
    traits = study.kind.traits
    if not (traits.sides or traits.rubrics):
        raise TutelageError(f"'{study.name}' {traits.does}; a model judge compares pairs or decides about criteria.")
    respond: Callable[[Assignment, Any], Answer] = by_criteria if traits.rubrics else both_orders
    rater_id = _judge(store, study_id, name, dict(detail or {}))
    count = 0
    with phase(name, most, done=0, loop=True) as judging:
        while most is None or count < most:
            question = next_assignment(store, rater_id)
            if question is None:
                break
            submit(store, question.id, respond(question, judge), rater_id=rater_id)
            count += 1
            judging.advance(count)
    return count


def both_orders(question: Assignment, compare: Compare) -> Answer:
    """The judge's answer to a question: the response preferred in both orders, else a tie. Raises TutelageError if the
    question has an image, or the judge fails."""
    _refuse_images(question)
    opinion = in_both_orders(compare, question.messages, question.left, question.right).settled
    if opinion.preferred == "tie":
        return Answer("tie", reason=opinion.reason)
    return Answer(_SIDES[opinion.preferred], opinion.strength, reason=opinion.reason)


def by_criteria(question: Assignment, judge: JudgeCriterion) -> Answer:
    """The judge's answer to a question about criteria; a missing verdict is unsure. Raises TutelageError if the
    question has an image, or the judge fails."""
    _refuse_images(question)
    questions = [(text, criterion) for criterion in question.rubric for text in question.texts]
    decided = mapped(lambda each: judge(question.messages, *each), questions, AT_ONCE)
    words = {met: word for word, met in DECISIONS.items()}
    verdicts: dict[str, list[str]] = {}
    for (_, criterion), met in zip(questions, decided, strict=True):
        verdicts.setdefault(criterion.text, []).append(words[met])
    return judged(verdicts)


def _refuse_images(question: Assignment) -> None:
    texts = (*(message.content for message in question.messages), *question.texts)
    refuse_images(texts, f"The item '{question.item}'", "a model judge")


@dataclass(frozen=True)
class CriterionAgreement:
    """A judge and people on one criterion, or on all (`criterion` is empty).

    `judge` is the probability that a person's verdict is the judge's, over `verdicts` of people; `people` that two
    people's verdicts are equal. Intervals resample prompts.
    """

    criterion: str
    verdicts: int
    judge: Interval
    people: Interval


def criterion_agreements(store: Store, study_id: int, name: str) -> tuple[CriterionAgreement, ...]:
    """Agreement of a judge with people on the same criteria of the same responses: on all, then on each, those with
    most verdicts first. Votes that do not count and unsure verdicts are left out."""
    prompts = {question.key: question.prompt.id for question in list_questions(store, study_id)}
    counts: dict[tuple[str, str, int], list[int]] = {}
    own: dict[tuple[str, str, int], bool] = {}
    for vote in list_votes(store, study_id):
        people = vote.rater_kind == "human" and not (vote.excluded or vote.repeat)
        for criterion, index, met in decisions_in(vote.content):
            if people:
                counts.setdefault((criterion, vote.item, index), [0, 0])[met] += 1
            elif vote.rater == name:
                own[criterion, vote.item, index] = met
    shared = [place for place in counts if place in own]
    by_criterion: dict[str, list[tuple[str, str, int]]] = {}
    for place in shared:
        by_criterion.setdefault(place[0], []).append(place)

    def measured(criterion: str, places: Sequence[tuple[str, str, int]]) -> CriterionAgreement:
        votes = np.array([counts[place] for place in places], float)
        cluster = [prompts[place[1]] for place in places]
        same = votes[np.arange(len(places)), [int(own[place]) for place in places]]
        among = agreement_of_counts(votes, np.array(cluster))
        return CriterionAgreement(
            criterion,
            int(votes.sum()),
            ratio_interval(same, votes.sum(axis=1), cluster),
            Interval(among.value, among.low, among.high),
        )

    if not shared:
        return ()
    each = sorted((measured(*item) for item in by_criterion.items()), key=lambda one: -one.verdicts)
    return (measured("", shared), *each)


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
