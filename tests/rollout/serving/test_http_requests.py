"""Bodies of requests that end too early."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.requests import Request

from tutelage.rollout.serving.http_requests import read_json
from tutelage.rollout.serving.protocol.request_fields import RequestError


def test_a_body_that_breaks_off_is_refused_and_no_defect() -> None:
    parts = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]

    async def receive() -> dict[str, Any]:
        return parts.pop(0)

    request = Request({"type": "http", "headers": [(b"content-type", b"application/json")]}, receive)
    # a thread of its own: a browser of other tests may have a loop in this one
    with ThreadPoolExecutor() as pool, pytest.raises(RequestError, match="ended too early") as caught:
        pool.submit(asyncio.run, read_json(request, 1_000)).result()
    assert caught.value.status == 400
