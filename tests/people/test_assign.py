"""Who is asked what next."""

import collections
import threading
from dataclasses import replace

import pytest

from tutelage.people import (
    Store,
    list_questions,
    list_votes,
    next_assignment,
    open_study,
    submit,
)

from .worlds import QUIET, better, raters_of, study_of, work


def answers_per_item(store: Store) -> dict[str, int]:
    study = open_study(store)
    counted = collections.Counter(vote.item for vote in list_votes(store, study.id) if not vote.repeat)
    return {question.key: counted[question.key] for question in list_questions(store, study.id)}


@pytest.mark.parametrize("policy", ["finish_first", "random", "priority"])
def test_every_item_gets_exactly_its_overlap_and_never_the_same_rater_twice(
    store: Store, policy: str
) -> None:
    study = study_of(store, 15, replace(QUIET, overlap=3, policy=policy))  # type: ignore[arg-type]
    work(store, raters_of(store, study, 5))
    assert set(answers_per_item(store).values()) == {3}
    pairs = [(vote.item, vote.rater) for vote in list_votes(store, study.id)]
    assert len(set(pairs)) == len(pairs)
    assert all(question.answered == 3 for question in list_questions(store, study.id))


def test_twelve_threads_give_exact_overlap_and_lose_or_double_nothing(store: Store) -> None:
    study = study_of(store, 40, replace(QUIET, overlap=3))
    store.clock = __import__("time").time
    failures: list[BaseException] = []
    sent: list[str] = []

    def rate(rater_id: int) -> None:
        try:
            while (question := next_assignment(store, rater_id)) is not None:
                answer = better(question)
                submit(store, question.id, answer)
                sent.append(answer.key)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=rate, args=(rater_id,)) for rater_id in raters_of(store, study, 12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    votes = list_votes(store, study.id)
    assert sorted(vote.key for vote in votes) == sorted(sent)
    assert set(answers_per_item(store).values()) == {3}
    assert not any(vote.extra for vote in votes)
