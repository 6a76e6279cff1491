"""A chat endpoint that answers as a test tells it to, and a client that leaves."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR, socket
from typing import Any

Said = dict[str, Any] | list[Any] | str | int | tuple[int, str]


@dataclass
class Served:
    """What was asked, in order; `answer(body, number)` gives a JSON body, a text that is none, or a status, with a
    reason where it matters. The body holds the path too; a GET has nothing else."""

    answer: Callable[[dict[str, Any], int], Said]
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    url: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    connections: int = 0


def choices(*texts: str, cut: bool = False) -> dict[str, Any]:
    """The body of a proper answer."""
    reason = "length" if cut else "stop"
    return {"choices": [{"message": {"content": text}, "finish_reason": reason} for text in texts]}


@contextmanager
def serving(answer: Callable[[dict[str, Any], int], Said]) -> Iterator[Served]:
    """The endpoint, as long as the block lasts. Its connections stay open: a new one for each request takes 10 ms."""
    served, lock, connections = Served(answer), threading.Lock(), list[socket]()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            served.connections += 1
            connections.append(self.connection)

        def do_POST(self) -> None:
            self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def do_GET(self) -> None:
            self.reply({})

        def reply(self, body: dict[str, Any]) -> None:
            asked = {"path": self.path, **body}
            with lock:
                number = len(served.asked)
                served.asked.append(asked)
                served.keys.append(self.headers["Authorization"])
            said = served.answer(dict(asked), number)
            status, reason = said if isinstance(said, tuple) else (said, f"told about {said}")
            if not isinstance(status, int):
                status, text = 200, said if isinstance(said, str) else json.dumps(said)
            else:
                text = json.dumps({"error": {"message": reason}} if status >= 400 else {})
            self.send_response(status)
            for name, value in {"Content-Length": str(len(text.encode())), **served.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        for connection in connections:
            with suppress(OSError):  # it is closed
                connection.shutdown(SHUT_RDWR)


@contextmanager
def leaving(url: str, path: str, body: Mapping[str, Any]) -> Iterator[None]:
    """Inside, a request has been sent; then its client leaves without the reply."""
    connection = HTTPConnection(url.removeprefix("http://"))
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    yield
    connection.close()
