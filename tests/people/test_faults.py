"""What goes wrong in a long study: crashes, full disks, locks, two programs at once."""

import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.people import (
    Answer,
    Assignment,
    Plan,
    Store,
    Study,
    Unavailable,
    list_questions,
    list_votes,
    next_assignment,
    open_store,
    open_study,
    submit,
)
from tutelage.people.live_conversation import Talk, keep_answer, next_step, open_turn
from tutelage.people.store import engine
from tutelage.people.store.conversations import LiveModels, set_live_models

from .worlds import QUIET, asked, better, raters_of, study_of, work

TALKER = Path(__file__).with_name("talker.py")
KEPT = ("said", "answer", "vote")
WORKER = Path(__file__).with_name("worker.py")


def prepared(path: Path, pairs: int, raters: int) -> list[int]:
    """A study for processes to work at; its raters."""
    store = open_store(path)
    numbers = raters_of(store, study_of(store, pairs), raters)
    store.close()
    return numbers


def start(path: Path, rater_id: int, *limits: int) -> "subprocess.Popen[str]":
    command = [sys.executable, str(WORKER), str(path), str(rater_id), *map(str, limits)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def opened(path: Path) -> tuple[Store, Study]:
    store = open_store(path)
    return store, open_study(store)


def answer_at_length(store: Store, rater: int, acknowledged: list[str]) -> None:
    """Answer everything with long reasons, noting which answers were acknowledged."""
    while (question := next_assignment(store, rater)) is not None:
        answer = Answer("left", 1, reason="x" * 2000)
        submit(store, question.id, answer)
        acknowledged.append(answer.key)


def test_kill_9_in_the_middle_of_answers_loses_no_acknowledged_vote(folder: Path) -> None:
    path = folder / "study.sqlite"
    (rater,) = prepared(path, 400, 1)
    worker = start(path, rater)
    assert worker.stdout is not None
    acknowledged = [worker.stdout.readline().strip() for _ in range(25)]
    worker.send_signal(signal.SIGKILL)
    acknowledged += worker.stdout.read().split()
    assert worker.wait() == -signal.SIGKILL
    store, study = opened(path)
    keys = [vote.key for vote in list_votes(store, study.id)]
    assert len(keys) < 400  # it was in the middle
    assert set(acknowledged) <= set(keys)
    assert len(keys) <= len(acknowledged) + 1  # the last one may have been on the disk, but not yet said
    assert len(set(keys)) == len(keys)
    counts = Counter(vote.item for vote in list_votes(store, study.id))
    assert {q.key: q.answered for q in list_questions(store, study.id) if q.answered} == dict(counts)
    question = asked(store, rater)
    submit(store, question.id, better(question))
    store.close()


def test_kill_9_in_the_middle_of_a_conversation_loses_nothing(folder: Path) -> None:
    """Messages, answers and votes that were acknowledged are there, and the conversation goes on where it was."""
    path = folder / "study.sqlite"
    store, study = opened_new(path)
    (rater,) = raters_of(store, study, 1)
    store.close()
    talker = subprocess.Popen([sys.executable, str(TALKER), str(path), str(rater)], stdout=subprocess.PIPE, text=True)
    assert talker.stdout is not None
    told = [talker.stdout.readline() for _ in range(30)]
    talker.send_signal(signal.SIGKILL)
    told += talker.stdout.readlines()
    assert talker.wait() == -signal.SIGKILL
    acknowledged = {word: [line[len(word) + 1 :].strip() for line in told if line.startswith(word)] for word in KEPT}
    store, study = opened(path)
    votes = [vote.key for vote in list_votes(store, study.id)]
    assert votes[: len(acknowledged["vote"])] == acknowledged["vote"]
    step = next_step(store, rater)
    said = {question.messages[-1].content for question in list_questions(store, study.id)}
    answers = {text for question in list_questions(store, study.id) for text in question.texts}
    if isinstance(step, Talk) and step.writing is not None:  # killed between a message and the second answer
        unfinished = open_turn(store, step.writing, rater)
        said.add(step.messages[-1].content)
        answers |= {reply.text for reply in unfinished.replies if reply is not None}
        for place, text in enumerate(unfinished.replies):
            if text is None:
                keep_answer(store, unfinished.turn, place, "late", sampling={})
        step = next_step(store, rater)
    assert set(acknowledged["said"]) <= said
    assert set(acknowledged["answer"]) <= answers
    if isinstance(step, Assignment):
        submit(store, step.id, Answer("left", 1))
        step = next_step(store, rater)
    assert isinstance(step, Talk)
    assert step.writing is None
    store.close()


def opened_new(path: Path) -> tuple[Store, Study]:
    """A database with a study of live conversations."""
    store = open_store(path)
    study = study_of(store, 0, Plan(overlap=1, gold_rate=0.0, repeat_rate=0.0))
    set_live_models(store, study.id, LiveModels("one", "two"))
    return store, study


def test_two_programs_on_one_file_give_exact_overlap(folder: Path) -> None:
    path = folder / "study.sqlite"
    raters = prepared(path, 30, 3)
    workers = [start(path, rater) for rater in raters]
    said = [line for worker in workers for line in worker.communicate()[0].split("\n") if line]
    assert not [line for line in said if line.startswith("refused")]
    store, study = opened(path)
    assert sorted(vote.key for vote in list_votes(store, study.id)) == sorted(said)
    assert {question.answered for question in list_questions(store, study.id)} == {QUIET.overlap}
    store.close()


def test_a_full_disk_refuses_answers_and_loses_none(folder: Path) -> None:
    store = open_store(folder / "study.sqlite")
    study = study_of(store, 300)
    (rater,) = raters_of(store, study, 1)
    with store.read() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
    full = f"PRAGMA max_page_count={pages + 10}"
    sa.event.listen(store.engine, "connect", lambda connection, _: connection.execute(full))
    store.engine.dispose()
    acknowledged: list[str] = []
    with pytest.raises(Unavailable, match="full"):
        answer_at_length(store, rater, acknowledged)
    assert acknowledged
    assert [vote.key for vote in list_votes(store, study.id)] == acknowledged
    store.close()
    store, study = opened(folder / "study.sqlite")
    work(store, [rater])
    assert len(list_votes(store, study.id)) == 300
    store.close()


def test_a_disk_that_fails_under_the_program_loses_no_acknowledged_vote(folder: Path) -> None:
    path = folder / "study.sqlite"
    (rater,) = prepared(path, 400, 1)
    lines = start(path, rater, path.stat().st_size + 150_000).communicate()[0].strip().split("\n")
    assert lines[-1].startswith("refused: The disk under")
    assert len(lines) > 1
    store, study = opened(path)
    assert [vote.key for vote in list_votes(store, study.id)] == lines[:-1]
    store.close()


def test_a_lock_held_by_another_program_is_told_and_passes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "BUSY_SECONDS", 0.2)
    path = folder / "study.sqlite"
    store = open_store(path)
    study = study_of(store, 2)
    (rater,) = raters_of(store, study, 1)
    question = asked(store, rater)
    answer = better(question)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match=r"locked"):
        submit(store, question.id, answer)
    with pytest.raises(Unavailable):
        next_assignment(store, rater)
    assert list_votes(store, study.id) == ()  # reading goes on
    other.execute("ROLLBACK")
    other.close()
    assert not submit(store, question.id, answer).known
    store.close()


def test_a_folder_that_cannot_be_written_is_told(folder: Path) -> None:
    with pytest.raises(TutelageError, match="opened"):
        open_store("/proc/study.sqlite")


def test_the_application_imports_no_torch() -> None:
    code = "import sys, tutelage.people; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
