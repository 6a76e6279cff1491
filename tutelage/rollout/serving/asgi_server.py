"""Sockets and uvicorn servers for an ASGI application; no torch, since the rating site and `doctor` use them."""

import socket
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from tutelage.base.errors import TutelageError
from tutelage.base.signals import handled

if TYPE_CHECKING:
    import uvicorn


def listen(host: str, port: int) -> socket.socket:
    """Listening socket. Raises TutelageError if the port cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only if it sees that the protocol is TCP
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen(512)
    except OSError as error:
        listening.close()
        raise TutelageError(
            f"Port {port} of {host} cannot be used ({error.strerror}); choose another with --port."
        ) from error
    return listening


def server(app: object) -> "uvicorn.Server":
    """uvicorn server for the application; it trusts no proxy header, and times out incomplete requests."""
    import uvicorn

    from tutelage.rollout.serving.http_connections import bounds, protocol_of_server

    at_once, most = bounds()
    return uvicorn.Server(
        uvicorn.Config(
            app,  # type: ignore[arg-type]
            http=protocol_of_server(most),
            backlog=at_once,
            log_config=None,  # uvicorn's configuration would close the handlers of every other library
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=5,
        )
    )


def signals_handled() -> AbstractContextManager[None]:
    """Context in which a signal that uvicorn handled and raises again has no further effect."""
    return handled(lambda number, frame: None)
