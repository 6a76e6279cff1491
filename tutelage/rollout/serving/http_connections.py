"""Limits on idle connections: they are closed after a timeout, and first if there are too many connections."""

import asyncio
import sys
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

PATIENCE = 20.0
"""Timeout in seconds for the head of a request, and between two pieces of its body."""
MOST_AT_ONCE = 2048
"""Maximum backlog of the listening socket, and of connections accepted at once."""
ROUNDS = 4
"""Batches that asyncio may accept before the protocol is notified of the first and a closed connection is gone."""
OTHER_FILES = 128
"""Open files besides connections: databases, models, the log."""
MOST_FILES = 65_536


class PatientProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # which of two it is depends on what is installed
    """uvicorn's HTTP protocol with limits on the number of connections and on their silence.

    uvicorn has no timeout for incomplete requests. Once such connections use up the open files of a process, no
    other client is served, and asyncio logs a traceback for every failed accept. `waiting` are the connections with
    an incomplete request, oldest first: beyond `most`, the first of them is closed. Both belong to one server, whose
    event loop alone may close its connections: see `protocol_of_server`.
    """

    most: int
    waiting: "dict[PatientProtocol, None]"
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Start the timeout for a request; a connection beyond `most` replaces the one that has waited longest."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self.most:
            next(iter(self.waiting)).give_up()

    def data_received(self, data: bytes) -> None:
        """Restart the timeout while a request is incomplete."""
        body = self._owes_body()
        super().data_received(data)
        if self.transport.is_closing() or not self._owes():
            self._stop_waiting()
        elif body or self not in self.waiting:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeout."""
        self._stop_waiting()
        super().connection_lost(exc)

    def give_up(self) -> None:
        """Close the connection without a response."""
        self._stop_waiting()
        self.transport.abort()

    def _owes(self) -> bool:
        """Whether a request, or its connection, has started and is incomplete."""
        return self.cycle is None or self.cycle.response_complete or self._owes_body()

    def _owes_body(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete and self.cycle.more_body

    def _wait(self) -> None:
        self._stop_waiting()
        self.waiting[self] = None
        self._timer = self.loop.call_later(PATIENCE, self.give_up)

    def _stop_waiting(self) -> None:
        self.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()


def protocol_of_server(most: int) -> type[PatientProtocol]:
    """Protocol for one server, with at most so many open connections."""
    return type(PatientProtocol.__name__, (PatientProtocol,), {"most": most, "waiting": {}})


def bounds() -> tuple[int, int]:
    """Backlog and maximum number of connections, from the limit on open files, which is raised as far as allowed."""
    files = _files()
    at_once = min(MOST_AT_ONCE, files // (2 * ROUNDS))
    return at_once, max(1, files - ROUNDS * at_once - OTHER_FILES)


def _files() -> int:
    """Limit on open files of this process."""
    if sys.platform == "win32":
        return MOST_FILES
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        soft = target
    return MOST_FILES if soft == resource.RLIM_INFINITY else min(soft, MOST_FILES)
