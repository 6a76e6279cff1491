"""`tutelage board`: a live page over a folder of runs, on this machine alone."""

import secrets
import sys
import threading
import webbrowser
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

import tyro

from tutelage.base.config.bounds import at_least
from tutelage.base.errors import TutelageError

if TYPE_CHECKING:
    from tutelage.report.board import Board

HOST = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class BoardSettings:
    """A live page over a folder of runs: their status, curves that grow, several runs in one chart, samples, and what
    asks for a look. It only reads, and only this machine reaches it."""

    folder: tyro.conf.Positional[Path]
    """Folder with the folders of runs."""
    port: int = 8765
    """Port on 127.0.0.1; 0 for any free one."""
    open: bool = False
    """Open the page in the browser."""

    def __post_init__(self) -> None:
        at_least(self, port=0)


def main(settings: BoardSettings) -> int:
    """Serve the page until Ctrl-C."""
    with server(settings.folder, settings.port) as running:
        address = f"http://{HOST}:{running.server_address[1]}/"
        print(f"The board of {settings.folder} is at {address} (Ctrl-C ends it).", file=sys.stderr, flush=True)
        if settings.open:
            webbrowser.open(address)
        try:
            running.serve_forever()
        except KeyboardInterrupt:
            print(file=sys.stderr)
    return 0


def server(folder: Path, port: int) -> ThreadingHTTPServer:
    """A server of the board of a folder. Raises TutelageError if there is no such folder, or the port is taken."""
    from tutelage.report.board import Board

    board = Board(folder)
    try:
        return BoardServer((HOST, port), board)
    except (OSError, OverflowError) as error:
        raise TutelageError(f"Port {port} of {HOST} cannot be opened ({error}): choose another --port.") from error


class BoardServer(ThreadingHTTPServer):
    """Server of a board, whose requests read it one after the other."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], board: "Board") -> None:
        super().__init__(address, BoardRequest)
        self.board, self.reading = board, threading.Lock()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of this server in requests; a page of another name that leads here is refused."""
        return tuple(f"{name}:{self.server_address[1]}" for name in (HOST, "localhost"))

    def handle_error(self, request: object, client_address: object) -> None:
        """Report the error of a request, unless the browser left before the answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class BoardRequest(BaseHTTPRequestHandler):
    """A request for the page (`/`), or for its parts (`/parts`)."""

    server: BoardServer

    def do_GET(self) -> None:
        """Answer with the page or its parts."""
        from tutelage.report.board import View, render_frame, render_parts

        path, _, query = self.path.partition("?")
        if self.headers.get("Host") not in self.server.names:
            self._answer(HTTPStatus.FORBIDDEN, "The board answers on 127.0.0.1 and localhost.")
        elif path == "/":
            nonce = secrets.token_urlsafe(16)
            self._answer(HTTPStatus.OK, render_frame(self.server.board, nonce), nonce)
        elif path == "/parts":
            with self.server.reading:
                self.server.board.refresh()
                text = render_parts(self.server.board, View.of(parse_qs(query)))
            self._answer(HTTPStatus.OK, text)
        else:
            self._answer(HTTPStatus.NOT_FOUND, "There is no such page.")

    def _answer(self, status: HTTPStatus, text: str, nonce: str = "") -> None:
        content = text.encode()
        script = f"; script-src 'nonce-{nonce}'" if nonce else ""
        nowhere = "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        policy = f"default-src 'none'; style-src 'unsafe-inline'; connect-src 'self'; {nowhere}{script}"
        self.send_response(status)
        for name, value in {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Length": str(len(content)),
            "Content-Security-Policy": policy,
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""
