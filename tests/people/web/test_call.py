"""Requests that end before they are whole."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from tutelage.people.web.routes import ROUTES

from .conftest import World


def sent_in_part(world: World, path: str) -> list[MutableMapping[str, Any]]:
    """What the application answers to a body that breaks off."""
    parts = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    answered: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return parts.pop(0)

    async def send(message: MutableMapping[str, Any]) -> None:
        answered.append(message)

    scope = {
        "type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"content-length", b"1000")], "scheme": "http", "root_path": "",
        "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1), "http_version": "1.1",
    }  # fmt: skip
    asyncio.run(world.app(scope, receive, send))
    return answered


@pytest.mark.parametrize("form", ["form", "json", "file"])
def test_a_request_that_breaks_off_is_no_defect(world: World, form: str) -> None:
    """A defect would be raised again for the log, with its traceback."""
    path = next(route.path for route in ROUTES if route.method == "POST" and route.form == form)
    assert sent_in_part(world, path)[0]["status"] == 400
