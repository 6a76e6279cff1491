"""Applications behind a port of this machine."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from tutelage.rollout.serving.asgi_server import listen, server


@contextlib.contextmanager
def serving(app: Any) -> Iterator[str]:
    """The address of the application while it is served."""
    listening = listen("127.0.0.1", 0)
    running = server(app)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        running.should_exit = True
        thread.join()
        listening.close()
