"""Fleet of servers that share the requests of a rollout; each request goes to the server with the fewest in flight."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Condition

from tutelage.data.transport import Unanswered
from tutelage.rollout.generator import RolloutError
from tutelage.rollout.server.api import TokenRequest, TokenResponse
from tutelage.rollout.server.rollout_servers import RolloutServer

AT_ONCE = 64
"""Maximum number of requests in flight per server: enough to keep its batches full, few enough that faster servers
get more of them."""

log = logging.getLogger(__name__)


class Fleet:
    """Servers, their failures, and their requests in flight. Thread-safe."""

    def __init__(self, servers: Sequence[RolloutServer]) -> None:
        self.servers = tuple(servers)
        self._lost: dict[str, str] = {}  # url -> reason
        self._in_flight: Counter[str] = Counter()
        self._changed = Condition()

    @property
    def live(self) -> list[RolloutServer]:
        """Servers that are available."""
        return [server for server in self.servers if server.url not in self._lost]

    @property
    def width(self) -> int:
        """Capacity of all live servers in requests."""
        return AT_ONCE * len(self.live)

    def ask(self, request: TokenRequest) -> tuple[RolloutServer, list[TokenResponse]]:
        """Send a request to the server with the fewest in flight. Returns that server and its response; if it fails,
        another server takes over.

        Raises RolloutError if no server is left.
        """
        while True:
            with self._least_busy() as server:
                try:
                    own = replace(request, model=server.model)
                    return server, server.api.generate(server.connection, own)
                except Unanswered as error:
                    self.lose(server, error)

    def each(self, act: Callable[[RolloutServer], None]) -> None:
        """Call a function on every server, including failed ones, which recover if it succeeds.

        Raises RolloutError if no server is left.
        """
        for server in self.servers:
            try:
                act(server)
            except Unanswered as error:
                self.lose(server, error)
            else:
                with self._changed:
                    if self._lost.pop(server.url, None) is not None:
                        log.warning("The server %s is available again.", server.url)
        if not self.live:
            raise self._nobody()

    def lose(self, server: RolloutServer, error: Unanswered) -> None:
        """Stop sending requests to a server."""
        with self._changed:
            if server.url not in self._lost:
                self._lost[server.url] = str(error)
                if self.live:
                    log.warning("%s Its prompts are sent to the other servers.", error)
            self._changed.notify_all()

    @contextmanager
    def _least_busy(self) -> Iterator[RolloutServer]:
        with self._changed:
            while True:
                live = self.live
                if not live:
                    raise self._nobody()
                server = min(live, key=lambda one: self._in_flight[one.url])
                if self._in_flight[server.url] < AT_ONCE:
                    break
                self._changed.wait()
            self._in_flight[server.url] += 1
        try:
            yield server
        finally:
            with self._changed:
                self._in_flight[server.url] -= 1
                self._changed.notify()

    def _nobody(self) -> RolloutError:
        reasons = " ".join(self._lost[server.url] for server in self.servers)
        return RolloutError(f"No rollout server is left. {reasons}")
