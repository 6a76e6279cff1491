"""Worker thread that owns the model: takes jobs from a queue, decodes them in groups, and changes weights in
between."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any, Literal

import torch

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.engines.interface import Decoders
from tutelage.models.policy import Policy
from tutelage.rollout.serving.jobs import DecodingGroup, Generation, Job, Line, Scoring, Ticket, groups_of, score
from tutelage.rollout.serving.served_weights import ServedWeights

MOST_GROUPS = 32
"""Maximum number of groups decoded at the same time. Queued jobs join the next group."""
_log = logging.getLogger(__name__)


class QueueIsFull(Exception):
    """The queue accepts no further job at the moment."""


class ServerIsClosing(TutelageError):
    """The server is stopping and will not finish the job."""

    def __init__(self) -> None:
        super().__init__("The server is shutting down.")


class Worker:
    """Computes jobs with one policy, in one thread.

    Args:
        policy: served model, owned by the worker.
        rows: completions computed at the same time.
        queue: maximum number of queued jobs.
    """

    def __init__(self, policy: Policy, *, rows: int, queue: int) -> None:
        self.weights, self.rows, self.queue = ServedWeights(policy), rows, queue
        self.paused = False
        self._waiting: deque[Ticket] = deque()
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._groups: list[DecodingGroup] = []
        self._aborting = self._closing = False
        self._changed = threading.Condition()
        self._decoders: Decoders | None = None
        self._context = ExitStack()  # decoding context of one adapter
        self._adapter = ""
        self._thread = threading.Thread(target=self._run, name="tutelage-worker", daemon=True)
        self._thread.start()

    # For other threads ------------------------------------------------------------------------------------------------

    @property
    def is_alive(self) -> bool:
        """Whether jobs are still processed."""
        return self._thread.is_alive()

    def submit(self, jobs: Sequence[Job], deliver: Sequence[Callable[[Any], None]]) -> list[Ticket]:
        """Queue jobs, all or none. `deliver[i]` is called from the worker's thread with every result of job i: pieces
        of completions, prompt tokens, or an exception.

        Raises QueueIsFull, and ServerIsClosing.
        """
        tickets = [Ticket(job, to) for job, to in zip(jobs, deliver, strict=True)]
        with self._changed:
            if self._closing:
                raise ServerIsClosing
            if len(self._waiting) + len(tickets) > self.queue:
                raise QueueIsFull
            self._waiting.extend(tickets)
            self._changed.notify()
        return tickets

    def change(self, function: Callable[[ServedWeights], Any]) -> Future[Any]:
        """Call a function on the weights in the worker's thread, after running completions have ended."""

        def changed() -> Any:
            self._leave()
            return function(self.weights)

        return self._call(changed)

    def _call(self, function: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        with self._changed:
            if self._closing:
                raise ServerIsClosing
            self._calls.append((function, future))
            self._changed.notify()
        return future

    def pause(self, mode: Literal["wait", "abort"]) -> Future[Any]:
        """Stop starting jobs. Resolves once no completion is running: they are finished, or stopped with `abort`,
        which also drops queued jobs."""
        with self._changed:
            self.paused = True
            self._aborting = mode == "abort"
        return self._call(lambda: None)

    def warm_up(self) -> None:
        """Compute a completion of two tokens, so that the first request does not wait for kernel selection."""
        done = threading.Event()
        job = Generation((0,), config.Sampling(max_new_tokens=2), frozenset())
        self.submit([job], [lambda result: done.set()])
        done.wait()

    def resume(self) -> None:
        """Resume queued jobs."""
        with self._changed:
            self.paused = False
            self._changed.notify()

    def close(self) -> None:
        """Stop running jobs and the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    # In the worker's thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        with torch.no_grad(), self._context:
            while self._wait():
                self._abort_if_requested()
                if not self._groups:
                    self._make_calls()
                self._step()
                self._begin(self._admitted())
            self._end()

    def _wait(self) -> bool:
        """Wait for work. Returns False once the worker must stop."""
        with self._changed:
            while not (self._closing or self._groups or self._calls or (self._waiting and not self.paused)):
                self._changed.wait()
            return not self._closing

    def _abort_if_requested(self) -> None:
        with self._changed:
            if not self._aborting:
                return
            self._aborting = False
            waiting, self._waiting = list(self._waiting), deque()
        self._close_groups()
        for ticket in waiting:
            ticket.deliver(TutelageError("The server was paused, and dropped the requests that waited."))

    def _make_calls(self) -> None:
        while True:
            with self._changed:
                if not self._calls:
                    return
                function, future = self._calls.popleft()
            try:
                future.set_result(function())
            except BaseException as error:  # delivered to the caller
                future.set_exception(error)

    def _admitted(self) -> list[Ticket]:
        """Queued jobs that can start now, all for the same adapter."""
        with self._changed:
            taken: list[Ticket] = []
            if self.paused or self._calls or len(self._groups) >= MOST_GROUPS:
                return taken
            used = sum(len(group.lines) for group in self._groups)
            adapter = self._adapter if self._groups else None
            while self._waiting:
                job: Job = self._waiting[0].job
                full = used + job.rows > self.rows and used > 0
                if full or (adapter is not None and job.adapter != adapter):
                    break
                ticket = self._waiting.popleft()
                if not ticket.cancelled.is_set():
                    taken.append(ticket)
                    used, adapter = used + job.rows, job.adapter
            return taken

    def _begin(self, tickets: Sequence[Ticket]) -> None:
        if not tickets:
            return
        try:
            decoders = self._decoders_of(tickets[0].job.adapter)
            scorings = [(ticket, ticket.job) for ticket in tickets if isinstance(ticket.job, Scoring)]
            if scorings:
                decoders.restore()
                scores = score(self.weights.policy, [job for _, job in scorings])
                for (ticket, _), tokens in zip(scorings, scores, strict=True):
                    ticket.deliver(tokens)
            tokenizer, version = self.weights.policy.tokenizer, self.weights.version
            lines = [
                Line(ticket, ticket.job, index, tokenizer, version)
                for ticket in tickets
                if isinstance(ticket.job, Generation)
                for index in range(ticket.job.n)
            ]
            groups = groups_of(decoders, lines, self.rows) if lines else []
            for group in groups:
                group.begin()
            self._groups += [group for group in groups if group.lines]
        except Exception as error:
            self._fail(tickets, error)

    def _step(self) -> None:
        """Sample the next token of every line of every group."""
        groups = self._groups
        if not groups:
            return
        assert self._decoders is not None
        try:
            steps = self._decoders.step([group.decoder for group in groups], [group.tokens for group in groups])
            for group, logits in zip(groups, steps, strict=True):
                group.advance(logits)
        except Exception as error:
            tickets = {id(line.ticket): line.ticket for group in groups for line in group.lines}
            self._groups = []
            self._fail(list(tickets.values()), error)
        else:
            self._groups = [group for group in groups if group.lines]

    def _fail(self, tickets: Sequence[Ticket], error: Exception) -> None:
        if not isinstance(error, TutelageError):
            _log.error("%s failed", counted(len(tickets), "request"), exc_info=error)
        for ticket in tickets:
            ticket.deliver(error)

    def _decoders_of(self, adapter: str) -> Decoders:
        """Decoders of an adapter, in its decoding context."""
        if self._decoders is None or adapter != self._adapter:
            self._leave()
            self._context.enter_context(self.weights.using(adapter))
            self._decoders = self._context.enter_context(self.weights.policy.engine.decoding())
            self._adapter = adapter
        return self._decoders

    def _leave(self) -> None:
        self._context.close()
        self._decoders = None

    def _close_groups(self) -> None:
        """Stop all completions at their current token."""
        for group in self._groups:
            for line in group.lines:
                line.close("abort")
        self._groups = []

    def _end(self) -> None:
        self._close_groups()
        with self._changed:
            waiting, calls = list(self._waiting), list(self._calls)
            self._waiting.clear()
            self._calls.clear()
        for ticket in waiting:
            ticket.deliver(ServerIsClosing())
        for _, future in calls:
            future.set_exception(ServerIsClosing())
