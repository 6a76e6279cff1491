"""What a server records of its use: completions that users may give feedback on, and which of two models each got.

A recorded chat is answered by the user's own model or, where that fails, by the present one.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from starlette.routing import BaseRoute

from tutelage.data.records import Messages
from tutelage.rollout.serving.protocol.replies import ChatReply
from tutelage.rollout.serving.protocol.request_fields import RequestError
from tutelage.rollout.serving.protocol.requests import read_chat
from tutelage.rollout.serving.service import Results, Service

T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """What became of a request: the id and the conversation, the text (None if no model completed it: it failed, or the
    client left), whether it ended by itself, the model that wrote it, whether the user's own model failed, and seconds
    until it was complete or the client left."""

    key: str
    messages: Messages
    text: str | None
    finished: bool
    sampler: str
    failed: bool
    seconds: float


class Use(Protocol):
    """An admitted request. `candidate`: its user gets the second of two models."""

    @property
    def candidate(self) -> bool: ...

    def record(self, outcome: Outcome) -> Mapping[str, Any] | None:
        """Record what became of it, in any thread. Returns what the client learns: None unless the completion was
        kept."""


class Usage(Protocol):
    """The record of the use of a server. `routes` are added to it; those below `open_paths` need no key."""

    @property
    def routes(self) -> Sequence[BaseRoute]: ...

    @property
    def open_paths(self) -> Sequence[str]: ...

    async def admit(self, body: object, address: str) -> Use | None:
        """Admit the body of a chat request from a client address; None if there is nothing to record. Raises
        RequestError if it is refused."""

    def limit(self, body: object, address: str) -> None:
        """Count a request of any other kind. Raises RequestError if its user, or its address without one, has sent too
        many."""

    def close(self) -> None:
        """Release what the record holds."""


class Chat:
    """The request. `services` are tried in their order: a failure of one that is not the last is an error of it, and
    the next one answers; so is the time in which it does not answer, or in a stream does not begin, if longer than
    `patience` in seconds. `use` records what becomes of it, if anything is to be recorded."""

    def __init__(
        self, body: object, services: Sequence[Service], use: Use | None, *, patience: float | None = None
    ) -> None:
        self._body, self._services, self._use, self._patience = body, services, use, patience
        self._begun = time.monotonic()
        self._service = services[0]
        self._reply: ChatReply | None = None
        self._recorded = False
        self._failures: list[str] = []

    async def body(self) -> dict[str, Any]:
        """The whole response, with `feedback` if the completion was kept."""
        results, body = await self._first(lambda results: results.body())
        kept = await self._record(results)
        return body | ({"feedback": kept} if kept else {})

    async def begin(self) -> Results:
        """The results of the first service that begins to answer."""
        return (await self._first(lambda results: results.arrival()))[0]

    async def _first(self, arrival: Callable[[Results], Awaitable[T]]) -> tuple[Results, T]:
        """The results of the first service of which `arrival` comes, and what it is."""
        for service in self._services:
            self._service, is_last = service, service is self._services[-1]
            try:
                # tokenising a long text must not block other requests
                self._reply = await asyncio.to_thread(read_chat, self._body, service.model)
                results = service.submit(self._reply)
                try:
                    value = await asyncio.wait_for(arrival(results), None if is_last else self._patience)
                except BaseException:
                    results.cancel()
                    raise
            except asyncio.CancelledError:
                self.leave()
                raise
            except Exception as error:
                await self._failed(service, error)
                continue
            for failure in self._failures:  # a request that none can answer has none
                _log.warning("%s; the present model answers", failure)
            return results, value
        raise AssertionError("the last failure is raised")

    async def chunks(self, results: Results) -> AsyncGenerator[dict[str, Any]]:
        """The response in chunks; the last one has `feedback` if the completion was kept."""
        try:
            async for chunk in results.chunks():
                yield chunk
        except Exception:
            await self._record(None)
            raise
        except (asyncio.CancelledError, GeneratorExit):
            self.leave()
            raise
        kept = await self._record(results)
        if kept and self._reply is not None:
            yield self._reply.head | {"choices": [], "feedback": kept}

    def leave(self) -> None:
        """Record that the client left, or that the server ended, unless the response was complete or had failed. A
        cancelled task cannot wait for the record: the event loop does, before it ends."""
        if not self._recorded:
            self._record(None, failed=False)

    async def close(self, results: Results) -> None:
        """End the response in chunks, also one whose client left before the first of them."""
        results.cancel()
        self.leave()

    async def _failed(self, service: Service, error: Exception) -> None:
        """Raise the error of the last service, which is recorded unless the request itself is at fault."""
        if service is not self._services[-1]:
            late = f"no answer within {self._patience:g} seconds"
            self._failures.append(f"{service.model.path} failed: {late if isinstance(error, TimeoutError) else error}")
            return
        if not isinstance(error, RequestError) or error.status >= 500:
            await self._record(None)
        raise error

    def _record(self, results: Results | None, *, failed: bool = True) -> asyncio.Future[Any]:
        """Record the outcome in another thread; `results` are those of a complete response, `failed` says why there are
        none. The future has what the client learns."""
        loop = asyncio.get_running_loop()
        if self._use is None or self._reply is None:
            nothing = loop.create_future()
            nothing.set_result(None)
            return nothing
        self._recorded = True
        answer = results.answers[0][0] if results is not None else None
        own = self._service is self._services[0]
        outcome = Outcome(
            key=self._reply.head["id"],
            messages=self._reply.conversation,
            text=answer.text if answer is not None else None,
            finished=answer is not None and answer.finish == "stop",
            sampler=self._service.model.path,
            failed=(answer is None and failed) or not own,
            seconds=time.monotonic() - self._begun,
        )
        return loop.run_in_executor(None, self._use.record, outcome)
