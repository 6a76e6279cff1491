"""Connections that send no whole request: closed after a while, and first where there are too many connections."""

import asyncio
import sys
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

PATIENCE = 20.0
"""Seconds in which a request's head has to be there, and between two pieces of its body."""
MOST_AT_ONCE = 2048
"""Connections that the operating system holds ready, and that are taken from it at once, at most."""
ROUNDS = 4
"""Times that asyncio may take so many until the protocol hears of the first of them, and a closed one is gone."""
OTHER_FILES = 128
"""Open files beside the connections: databases, models, the log."""
MOST_FILES = 65_536


class PatientProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # which of two it is depends on what is installed
    """uvicorn's protocol of HTTP for connections whose number and silence are bounded.

    uvicorn waits for ever for the rest of a request. With as many such connections as a process may open files nobody
    else is served, and asyncio logs a traceback of every failed try. `waiting` are the connections that owe a part of
    a request, those that owe it longest first: where more than `most` are open, the first of them is closed. Both
    belong to one server, whose event loop alone may close its connections: see `protocol_of_server`.
    """

    most: int
    waiting: "dict[PatientProtocol, None]"
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request; a connection beyond `most` takes the place of one that waits longer."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self.most:
            next(iter(self.waiting)).give_up()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a request that is not whole."""
        body = self._owes_body()
        super().data_received(data)
        if self.transport.is_closing() or not self._owes():
            self._stop_waiting()
        elif body or self not in self.waiting:
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def give_up(self) -> None:
        """Close the connection without an answer."""
        self._stop_waiting()
        self.transport.abort()

    def _owes(self) -> bool:
        """Whether a request has begun, or its connection, that is not whole."""
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
    """The protocol of one server's connections, of which at most so many are open."""
    return type(PatientProtocol.__name__, (PatientProtocol,), {"most": most, "waiting": {}})


def bounds() -> tuple[int, int]:
    """The number of connections that are taken at once, and that of all connections, which the files of this process
    allow. Their limit is raised as far as it may be."""
    files = _files()
    at_once = min(MOST_AT_ONCE, files // (2 * ROUNDS))
    return at_once, max(1, files - ROUNDS * at_once - OTHER_FILES)


def _files() -> int:
    """The number of files that this process may open."""
    if sys.platform == "win32":
        return MOST_FILES
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
        soft = target
    return MOST_FILES if soft == resource.RLIM_INFINITY else min(soft, MOST_FILES)
