"""A served policy as one object: it listens, answers, and ends."""

import socket
import threading
import time
from types import TracebackType
from typing import Self

from tutelage.rollout.serving.app import create_app
from tutelage.rollout.serving.guard import Guard, is_local
from tutelage.rollout.serving.listening import listen, server, signals_handled
from tutelage.rollout.serving.service import Service


class Server:
    """A policy behind HTTP, from the moment it is made until `close`.

        with Server(service, host="127.0.0.1", port=0) as served:   # in a thread of its own
            client(served.url)

    or `served.run()` in the main thread, until SIGTERM or ctrl-C. `port` 0 takes any free port.

    Raises TutelageError where the port cannot be used.
    """

    def __init__(
        self, service: Service, *, host: str, port: int, key: str = "", body: int, updates: bool = False
    ) -> None:
        self.service = service
        self.listening: socket.socket = listen(host, port)
        app = Guard(create_app(service, body=body, updates=updates), key, only_local=is_local(host))
        self._server = server(app)
        self._thread: threading.Thread | None = None
        shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
        port = self.listening.getsockname()[1]
        self.url = f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"
        """The address, to which clients add /v1."""

    def run(self) -> None:
        """Answer requests until SIGTERM or ctrl-C. For the main thread."""
        with signals_handled():
            self._server.run(sockets=[self.listening])
        self.close()

    def start(self) -> Self:
        """Answer requests in a thread of its own."""
        sockets = [self.listening]
        self._thread = threading.Thread(
            target=lambda: self._server.run(sockets=sockets), name="tutelage-http"
        )
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.005)
        return self

    def close(self) -> None:
        """End what is being answered, after up to five seconds, and free the port."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()
        self.listening.close()
        self.service.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
