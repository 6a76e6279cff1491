"""The JSON body of a request, read up to a limit."""

import json
from typing import Any

from starlette.requests import ClientDisconnect, Request

from tutelage.base.nouns import counted
from tutelage.rollout.serving.protocol.fields import RequestError


async def read_json(request: Request, most: int) -> Any:
    """The body as JSON, {} for an empty one. Raises RequestError for more than `most` bytes and for anything else.

    The content type has to be application/json: a browser asks before it sends that to another site.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in ("application/json", ""):
        raise RequestError(f"The content type is {kind!r}; send application/json.", status=415)
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > most:
                raise RequestError(
                    f"The body is longer than {counted(most, 'byte')}.", status=413, code="request_too_large"
                )
    except ClientDisconnect as error:
        raise RequestError("The body ended too early.") from error
    if body and not kind:
        raise RequestError("The body has no content type; send application/json.", status=415)
    try:
        return json.loads(body or b"{}", parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"The body is not JSON: {error}.") from error


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")
