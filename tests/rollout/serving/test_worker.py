"""The worker: the same tokens whatever is computed beside them, and nothing computed for nobody."""

import queue
import threading
import time
from itertools import chain

import pytest

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.commands.loading import load_policy
from tutelage.engines.interface import PromptTokens
from tutelage.rollout.local import LocalGenerator
from tutelage.rollout.serving import jobs as groups
from tutelage.rollout.serving.jobs import CompletionPiece, Generation, Scoring
from tutelage.rollout.serving.worker import QueueIsFull, Worker

PATIENCE = 120.0
"""Seconds: the first answer may wait for the kernels to be compiled."""
ENDS = tuple(range(100, 140))
PROMPTS = ((40, 41, 42), (50,), (9, 60, 61, 62, 63, 64, 65), (40, 41, 42))
SETTINGS = (
    config.Sampling(max_new_tokens=12),
    config.Sampling(max_new_tokens=5, temperature=0.7),
    config.Sampling(max_new_tokens=12, top_p=0.8, stop=("e",)),
    config.Sampling(max_new_tokens=9, temperature=0.0),
)


class Inbox:
    """Where the results of one job go."""

    def __init__(self):
        self.results = queue.Queue()

    def __call__(self, result):
        self.results.put(result)

    def all(self, count, timeout=PATIENCE):
        """The pieces of `count` answers, by answer."""
        pieces = {index: [] for index in range(count)}
        while count:
            piece = self.results.get(timeout=timeout)
            if isinstance(piece, Exception):
                raise piece
            pieces[piece.index].append(piece)
            count -= piece.finish is not None
        return list(pieces.values())


@pytest.fixture
def worker_of(tiny_model):
    """A worker on a tiny model; more than one may be made."""
    made = []

    def make(family="llama", **more):
        policy = load_policy(tiny_model(family), device="cpu")
        policy.end_ids = (*policy.end_ids, *ENDS)
        made.append(Worker(policy, **{"rows": 16, "queue": 64} | more))
        return made[-1]

    yield make
    for worker in made:
        worker.close()


def jobs_of(worker, **more):
    ends = frozenset(worker.weights.policy.end_ids)
    return [
        Generation(prompt, sampling, ends, n=1 + number % 3, seed=number, name=f"p{number}", top=0, **more)
        for number, (prompt, sampling) in enumerate(zip(PROMPTS, SETTINGS, strict=True))
    ]


def answered(worker, jobs):
    """(token ids, log-probabilities, text, finish) of each answer to each job, submitted together."""
    inboxes = [Inbox() for _ in jobs]
    worker.submit(jobs, inboxes)
    return [[joined(pieces) for pieces in inbox.all(job.n)] for job, inbox in zip(jobs, inboxes, strict=True)]


def joined(pieces):
    tokens = [token for piece in pieces for token in piece.tokens]
    text = "".join(piece.text for piece in pieces)
    return [t.token for t in tokens], [t.logp for t in tokens], text, pieces[-1].finish


def same(one, other):
    assert [[(a[0], a[2], a[3]) for a in each] for each in one] == [
        [(a[0], a[2], a[3]) for a in each] for each in other
    ]
    for a, b in zip(chain(*one), chain(*other), strict=True):
        assert a[1] == pytest.approx(b[1], abs=1e-4)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2", "gemma2"])
def test_answers_together_are_those_alone_and_those_of_a_local_generator(worker_of, family):
    worker = worker_of(family)
    jobs = jobs_of(worker, strips=True)
    together = answered(worker, jobs)
    same(together, [answered(worker, [job])[0] for job in jobs])
    worker.close()  # it lays the weights out for its answers
    local = LocalGenerator(worker.weights.policy)
    for job, found in zip(jobs, together, strict=True):
        prompts = PromptTokens((job.prompt,), (job.name,))
        rollout = local.generate(prompts, job.n, job.sampling, seed=job.seed)
        for row, (tokens, logp, text, finish) in enumerate(found):
            assert tokens == rollout.response[row][rollout.mask[row]].tolist()
            assert text == rollout.texts[row]
            assert finish == ("stop" if rollout.terminated[row] else "length")
            if job.sampling.temperature:
                assert logp == pytest.approx(rollout.logp[row][rollout.mask[row]].tolist(), abs=1e-4)
            else:
                assert all(value < 0 for value in logp), "the model's own, not that of a certain token"


def test_answers_that_begin_in_the_middle_of_others_change_nothing(worker_of):
    worker = worker_of()
    jobs = jobs_of(worker, streams=True)
    alone = [answered(worker, [job])[0] for job in jobs]
    inboxes = [Inbox() for _ in jobs]
    for job, inbox in zip(jobs, inboxes, strict=True):
        worker.submit([job], [inbox])
        inbox.results.queue or time.sleep(0.005)
    found = [[joined(pieces) for pieces in inbox.all(job.n)] for job, inbox in zip(jobs, inboxes, strict=True)]
    same(found, alone)


def test_more_answers_than_rows_are_computed_in_turn(worker_of):
    worker = worker_of(rows=2)
    job = jobs_of(worker)[0]
    many = [Generation(job.prompt, job.sampling, job.end_ids, seed=seed) for seed in range(9)]
    same(answered(worker, many), [answered(worker, [each])[0] for each in many])
    big = Generation(job.prompt, job.sampling, job.end_ids, n=5, seed=3)
    assert len(answered(worker, [big])[0]) == 5, "one that is larger than all rows begins alone"


class Slow(groups.DecodingGroup):
    """A group whose steps are counted and wait."""

    steps, wait = 0, 0.002

    def advance(self, logits):
        Slow.steps += 1
        time.sleep(self.wait)
        super().advance(logits)


@pytest.fixture
def slow(monkeypatch):
    Slow.steps = 0
    monkeypatch.setattr(groups, "DecodingGroup", Slow)


def long_job(**more):
    return Generation((40, 41), config.Sampling(max_new_tokens=90), frozenset(), **more)


def test_a_cancelled_answer_is_dropped_and_others_go_on(worker_of, slow):
    worker = worker_of()
    whole = answered(worker, [long_job(seed=2)])
    first, second = Inbox(), Inbox()
    tickets = worker.submit([long_job(seed=1, streams=True), long_job(seed=2)], [first, second])
    first.results.get(timeout=PATIENCE)
    tickets[0].cancelled.set()
    same([[joined(pieces) for pieces in second.all(1)]], whole)
    time.sleep(0.05)
    assert not any(piece.finish for piece in list(first.results.queue))
    Slow.steps = 0
    (ticket,) = worker.submit([long_job(streams=True)], [first])
    first.results.get(timeout=PATIENCE)
    ticket.cancelled.set()
    time.sleep(0.1)
    assert Slow.steps < 80, "nothing is computed for nobody"


def test_an_answer_that_comes_later_begins_at_once(worker_of, slow):
    worker = worker_of()
    first, second = Inbox(), Inbox()
    worker.submit([long_job(streams=True)], [first])
    first.results.get(timeout=PATIENCE)
    worker.submit([long_job(seed=1, streams=True)], [second])
    second.results.get(timeout=PATIENCE)
    assert not any(piece.finish for piece in list(first.results.queue)), "the first one is still being written"


def test_pausing_waits_or_aborts_and_what_waits_begins_after_it(worker_of, slow):
    worker = worker_of()
    running, waiting = Inbox(), Inbox()
    worker.submit([long_job(streams=True)], [running])
    running.results.get(timeout=PATIENCE)
    paused = worker.pause("wait")
    worker.submit([long_job()], [waiting])
    paused.result(timeout=PATIENCE)
    assert running.all(1)[0][-1].finish == "length"
    assert waiting.results.empty()
    worker.resume()
    assert waiting.all(1)[0][-1].finish == "length"
    worker.submit([long_job(streams=True)], [running])
    running.results.get(timeout=PATIENCE)
    worker.pause("abort").result(timeout=PATIENCE)
    assert running.all(1)[0][-1].finish == "abort"


def test_the_queue_has_an_end_and_takes_all_or_none(worker_of):
    worker = worker_of(queue=2)
    worker.pause("wait").result(timeout=PATIENCE)
    inbox = Inbox()
    worker.submit([long_job()], [inbox])
    with pytest.raises(QueueIsFull):
        worker.submit([long_job(), long_job()], [inbox, inbox])
    worker.resume()
    inbox.all(1)
    assert inbox.results.empty()


def test_a_failure_ends_its_own_group_alone(worker_of, monkeypatch, caplog):
    worker = worker_of()
    broken = groups.draw

    def draw(logits, sampling, uniform):
        if sampling.temperature == 3.0:
            raise RuntimeError("out of luck")
        return broken(logits, sampling, uniform)

    monkeypatch.setattr(groups, "draw", draw)
    inbox = Inbox()
    bad = Generation((5, 6), config.Sampling(temperature=3.0), frozenset())
    worker.submit([bad], [inbox])
    with pytest.raises(RuntimeError, match="out of luck"):
        inbox.all(1)
    assert "1 request failed" in caplog.text
    assert answered(worker, [long_job()])[0][0][3] == "length"


def test_closing_ends_everything(worker_of, slow):
    worker = worker_of()
    running, waiting = Inbox(), Inbox()
    worker.submit([long_job(streams=True)], [running])
    running.results.get(timeout=PATIENCE)
    worker.pause("wait")
    worker.submit([Scoring((1, 2, 3))], [waiting])
    worker.close()
    assert running.all(1)[0][-1].finish == "abort"
    with pytest.raises(TutelageError, match="shutting down"):
        waiting.all(1)
    with pytest.raises(TutelageError, match="shutting down"):
        worker.submit([long_job()], [running])
    assert "tutelage-worker" not in [thread.name for thread in threading.enumerate()]


def test_a_seed_gives_the_same_answer_with_another_limit(worker_of):
    worker = worker_of()
    found = {}
    for limit in (3, 20, 60):
        job = Generation((40, 41), config.Sampling(max_new_tokens=limit), frozenset(), seed=5)
        found[limit] = answered(worker, [job])[0][0][0]
    assert found[60][:20] == found[20]
    assert found[20][:3] == found[3]


def test_pieces_hold_every_token_once(worker_of):
    worker = worker_of()
    inbox = Inbox()
    worker.submit([long_job(streams=True)], [inbox])
    (pieces,) = inbox.all(1)
    assert len(pieces) == 90
    assert all(isinstance(piece, CompletionPiece) and len(piece.tokens) == 1 for piece in pieces)
