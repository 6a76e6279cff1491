"""Service between the routes, which run in an event loop, and the worker's thread."""

import asyncio
import copy
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from typing import Any

from tutelage.base.nouns import counted
from tutelage.models.policy import Policy
from tutelage.rollout.serving.jobs import Job, Ticket, TokenLogp
from tutelage.rollout.serving.protocol.model import Limits, ServedModel
from tutelage.rollout.serving.protocol.replies import Answer, Reply
from tutelage.rollout.serving.protocol.request_fields import RequestError
from tutelage.rollout.serving.served_weights import ServedWeights
from tutelage.rollout.serving.worker import QueueIsFull, Worker


class Service:
    """Policy that serves requests.

    Args:
        policy: model, owned by the service from now on.
        name: name of the model in requests.
        path: its source.
        rows: completions computed at the same time.
        queue: maximum number of queued prompts.
        tokens: maximum number of tokens of a completion.
    """

    def __init__(self, policy: Policy, *, name: str, path: str, rows: int, queue: int, tokens: int) -> None:
        self.worker = Worker(policy, rows=rows, queue=queue)
        self.worker.warm_up()
        limits = Limits(tokens, rows, policy.context, policy.vocabulary, prompts=queue)
        self.model = ServedModel(
            name=name,
            path=path,
            tokenizer=copy.deepcopy(policy.tokenizer),
            end_ids=frozenset(policy.end_ids),
            limits=limits,
            adapters=self.worker.weights.adapters,
        )

    def submit(self, request: Reply) -> "Results":
        """Queue the jobs of a request. Raises RequestError if the queue is full."""
        results = Results(request)
        jobs: list[Job] = [*request.generations, *request.scorings]
        receivers = [results.receiver(place) for place in range(len(jobs))]
        try:
            results.tickets = self.worker.submit(jobs, receivers)
        except QueueIsFull as error:
            raise RequestError(
                f"The server is busy: {counted(self.worker.queue, 'request')} wait already. Try again later.",
                status=503,
                code="queue_full",
            ) from error
        return results

    async def change(self, function: Callable[[ServedWeights], Any]) -> Any:
        """Change the weights after running completions have ended."""
        return await asyncio.wrap_future(self.worker.change(function))

    async def pause(self, mode: str) -> None:
        """Stop starting requests; see `Worker.pause`. Raises RequestError for an unknown mode."""
        if mode not in ("wait", "abort"):
            raise RequestError(
                f"The mode is {mode!r}; this server has wait and abort. It does not go on with other weights in the "
                "middle of an answer.",
                param="mode",
            )
        await asyncio.wrap_future(self.worker.pause("abort" if mode == "abort" else "wait"))

    def close(self) -> None:
        """Stop the worker."""
        self.worker.close()


class Results:
    """Results of a request, in its event loop. `cancel` is called when its client disconnects."""

    def __init__(self, request: Reply) -> None:
        self.request = request
        self.tickets: Sequence[Ticket] = ()
        self.answers = [[Answer() for _ in range(job.n)] for job in request.generations]
        self.scores: list[Sequence[TokenLogp]] = [()] * len(request.scorings)
        self._loop, self._queue = asyncio.get_running_loop(), asyncio.Queue[tuple[int, Any]]()
        self._left = sum(map(len, self.answers)) + len(self.scores)
        self._first: tuple[int, Any] | None = None

    def receiver(self, place: int) -> Callable[[Any], None]:
        """Callback for the results of job number `place`, called from the worker's thread."""

        def receive(result: Any) -> None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._queue.put_nowait, (place, result))

        return receive

    def cancel(self) -> None:
        """Stop the computation."""
        for ticket in self.tickets:
            ticket.cancelled.set()

    async def arrival(self) -> None:
        """Wait for the first result. Raises the exception of a failed job."""
        if self._first is None:
            self._first = await self._queue.get()
        if isinstance(self._first[1], Exception):
            raise self._first[1]

    async def body(self) -> dict[str, Any]:
        """Whole response."""
        while self._left:
            await self._next()
        return self.request.body(self.answers, self.scores)

    async def chunks(self) -> AsyncGenerator[dict[str, Any]]:
        """Response in chunks, as tokens are sampled."""
        for chunk in self.request.opening():
            yield chunk
        while self._left:
            place, piece = await self._next()
            if (found := self.request.chunk(place, piece, self.answers[place][piece.index])) is not None:
                yield found
        for chunk in self.request.closing(self.answers):
            yield chunk

    async def _next(self) -> tuple[int, Any]:
        """Wait for the next result and store it. Raises the exception of a failed job."""
        place, result = self._first or await self._queue.get()
        self._first = None
        if isinstance(result, Exception):
            raise result
        if place < len(self.answers):
            self.answers[place][result.index].add(result)
            self._left -= result.finish is not None
        else:
            self.scores[place - len(self.answers)] = result
            self._left -= 1
        return place, result
