"""A server that takes webhooks."""

import contextlib
import http.server
import threading
from collections.abc import Iterator
from typing import TypeAlias

Received: TypeAlias = tuple[dict[str, str], bytes]
"""Headers, with names in lower case, and the body."""


@contextlib.contextmanager
def webhook_server() -> Iterator[tuple[str, list[Received]]]:
    """A server that takes webhooks: its address, and what came. `/broken` answers 500, `/moved` leads to `/hook`."""
    came: list[Received] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            came.append(({name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response({"/broken": 500, "/moved": 307}.get(self.path, 204))
            if self.path == "/moved":
                self.send_header("location", "/hook")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", came
    finally:
        server.shutdown()
        server.server_close()
