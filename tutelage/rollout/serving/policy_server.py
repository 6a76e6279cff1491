"""Policy server as one object; it stops with its parent process at the latest."""

import os
import signal
import socket
import threading
import time
from contextlib import suppress
from typing import Self

from tutelage.rollout.serving.asgi_server import listen, server, signals_handled
from tutelage.rollout.serving.http_requests import Guard, is_local
from tutelage.rollout.serving.model_routes import create_app
from tutelage.rollout.serving.service import Service
from tutelage.rollout.serving.usage import Usage

GRACE = 10.0
"""Grace period in seconds for the server to stop once the pipe is closed."""


def end_with_parent() -> None:
    """Watch standard input from a thread, and stop this process when the pipe is closed."""

    def watch() -> None:
        with suppress(OSError):  # there is no standard input
            while os.read(0, 4096):
                pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="parent").start()


class PolicyServer:
    """Policy server over HTTP, from creation until `close`.

        with PolicyServer(service, host="127.0.0.1", port=0) as served:   # in a background thread
            client(served.url)

    or `served.run()` in the main thread, until SIGTERM or Ctrl-C. `port` 0 selects any free port.

    Raises TutelageError if the port cannot be used.
    """

    def __init__(
        self,
        service: Service,
        *,
        host: str,
        port: int,
        key: str = "",
        body: int,
        updates: bool = False,
        candidate: Service | None = None,
        patience: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        self.service, self.candidate, self.usage = service, candidate, usage
        self.listening: socket.socket = listen(host, port)
        routes = create_app(service, body=body, updates=updates, candidate=candidate, patience=patience, usage=usage)
        open_paths = usage.open_paths if usage else ()
        app = Guard(routes, key, only_local=is_local(host), open_paths=open_paths)
        self._server = server(app)
        self._thread: threading.Thread | None = None
        shown = "127.0.0.1" if host in ("0.0.0.0", "::") else host
        port = self.listening.getsockname()[1]
        self.url = f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"
        """Base address, without /v1."""

    def run(self) -> None:
        """Serve requests in the main thread until SIGTERM or Ctrl-C."""
        with signals_handled():
            self._server.run(sockets=[self.listening])
        self.close()

    def start(self) -> Self:
        """Serve requests in a background thread."""
        sockets = {"sockets": [self.listening]}
        self._thread = threading.Thread(target=self._server.run, kwargs=sockets, name="tutelage-http")
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.005)
        return self

    def close(self) -> None:
        """Stop running requests, after up to five seconds, and free the port."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()
        self.listening.close()
        self.service.close()
        for each in (self.candidate, self.usage):
            if each is not None:
                each.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.close()
