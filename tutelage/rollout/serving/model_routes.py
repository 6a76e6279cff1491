"""HTTP routes of the policy server."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tutelage.base.errors import TutelageError
from tutelage.rollout.serving.http_requests import read_json
from tutelage.rollout.serving.protocol.model import ServedModel
from tutelage.rollout.serving.protocol.replies import Reply
from tutelage.rollout.serving.protocol.request_fields import RequestError, error_body
from tutelage.rollout.serving.protocol.requests import read_chat, read_completions, read_generate
from tutelage.rollout.serving.service import Results, Service
from tutelage.rollout.serving.updates import update_routes
from tutelage.rollout.serving.usage import Chat, Usage

T = TypeVar("T")
Reader = Callable[[object, ServedModel], Reply]
EVENTS, NOT_CACHED, LAST_EVENT = "text/event-stream", {"Cache-Control": "no-cache"}, b"data: [DONE]\n\n"
"""Media type and headers of a stream, and its end."""
CLIENT_IS_GONE = 499
"""Status logged, but not sent, for a request whose client has disconnected."""
_log = logging.getLogger(__name__)


def create_app(
    service: Service,
    *,
    body: int,
    updates: bool,
    candidate: Service | None = None,
    patience: float | None = None,
    usage: Usage | None = None,
) -> Starlette:
    """Create the application. `body` limits the bytes of a body, `updates` adds the routes that change weights. `usage`
    records chats and says whose are answered by the `candidate`, which has `patience` seconds (see `Chat`)."""
    readers: dict[str, Reader] = {"/v1/completions": read_completions, "/inference/v1/generate": read_generate}
    routes = [
        Route(path, _answering(service, reader, body, usage), methods=["POST"]) for path, reader in readers.items()
    ]
    chat = _recording(service, candidate, usage, body, patience) if usage else _answering(service, read_chat, body)
    routes.append(Route("/v1/chat/completions", chat, methods=["POST"]))
    app = Starlette(
        routes=[
            *routes,
            Route("/v1/models", _models(service), methods=["GET"]),
            Route("/v1/models/{name:path}", _models(service), methods=["GET"]),
            Route("/health", _health(service), methods=["GET"]),
            Route("/ping", _health(service), methods=["GET", "POST"]),
            Route("/version", _version, methods=["GET"]),
            *(update_routes(service, body) if updates else []),
            *(usage.routes if usage else ()),
        ],
        exception_handlers=ERROR_HANDLERS,
    )
    app.router.redirect_slashes = False
    return app


def _answering(
    service: Service, read: Reader, most: int, usage: Usage | None = None
) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """Endpoint of a format, within the limits of a `usage`."""

    async def answer(request: Request) -> Response:
        body = await read_json(request, most)
        if usage is not None:
            usage.limit(body, _address(request))
        # tokenising a long text must not block other requests
        reply = await asyncio.to_thread(read, body, service.model)
        results = service.submit(reply)
        if not reply.streams:
            return _json(await _unless_gone(request, _body(results)))
        return StreamingResponse(
            _events(results), media_type=EVENTS, headers=NOT_CACHED, background=BackgroundTask(results.cancel)
        )

    return answer


async def _body(results: Results) -> dict[str, Any]:
    try:
        return await results.body()
    finally:
        results.cancel()


def _json(body: dict[str, Any] | None) -> Response:
    return Response(status_code=CLIENT_IS_GONE) if body is None else JSONResponse(body)


async def _unless_gone(request: Request, computation: Coroutine[Any, Any, T]) -> T | None:
    """The result, or None if the client disconnects, which cancels the computation."""
    task, left = asyncio.create_task(computation), asyncio.create_task(departure(request))
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        left.cancel()
        await asyncio.gather(task, left, return_exceptions=True)


def _address(request: Request) -> str:
    return request.client.host if request.client else ""


async def departure(request: Request) -> None:
    """Wait until the client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _recording(
    service: Service, candidate: Service | None, usage: Usage, most: int, patience: float | None
) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """Endpoint of chats whose use is recorded."""

    async def answer(request: Request) -> Response:
        body = await read_json(request, most)
        use = await usage.admit(body, _address(request))
        second = (candidate,) if candidate is not None and use is not None and use.candidate else ()
        chat = Chat(body, (*second, service), use, patience=patience)
        if not (isinstance(body, dict) and body.get("stream")):
            return _json(await _unless_gone(request, chat.body()))
        results = await _unless_gone(request, chat.begin())
        if results is None:
            return _json(None)
        return StreamingResponse(
            _events(results, chat),
            media_type=EVENTS,
            headers=NOT_CACHED,
            background=BackgroundTask(chat.close, results),
        )

    return answer


async def _events(results: Results, chat: "Chat | None" = None) -> AsyncGenerator[bytes]:
    """Server-sent events. An error during the stream is sent as an event."""
    try:
        async for chunk in chat.chunks(results) if chat else results.chunks():
            yield event(chunk)
    except TutelageError as error:
        yield event(error_body(str(error), 503))
    except Exception:
        _log.exception("a stream failed")
        yield event(error_body("The server failed; see its log.", 500))
    finally:
        results.cancel()
    yield LAST_EVENT


def event(data: dict[str, Any]) -> bytes:
    """Server-sent event."""
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def _models(service: Service) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """Models that requests can name: the model itself and its adapters."""
    began = int(time.time())

    def entry(name: str, root: str, parent: str | None) -> dict[str, Any]:
        limits = service.model.limits
        return {
            "id": name,
            "object": "model",
            "created": began,
            "owned_by": "tutelage",
            "root": root,
            "parent": parent,
            "max_model_len": limits.context,
        }

    async def models(request: Request) -> Response:
        model = service.model
        known = [entry(model.name, model.path, None)]
        known += [entry(name, path, model.name) for name, path in model.adapters.items()]
        if "name" not in request.path_params:
            return JSONResponse({"object": "list", "data": known})
        asked = model.adapter(request.path_params["name"]) or model.name
        return JSONResponse(next(each for each in known if each["id"] == asked))

    return models


def _health(service: Service) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    async def health(request: Request) -> Response:
        return Response(status_code=200 if service.worker.is_alive else 503)

    return health


async def _version(request: Request) -> Response:
    from tutelage.base.version import __version__

    return JSONResponse({"version": f"tutelage {__version__}"})


# Errors ---------------------------------------------------------------------------------------------------------------


async def _refused(request: Request, error: Exception) -> Response:
    refusal = error if isinstance(error, RequestError) else RequestError(str(error))
    body = error_body(str(refusal), refusal.status, refusal.param, refusal.code)
    wait = 1 if refusal.status == 503 else refusal.wait
    headers = {"Retry-After": str(wait)} if wait else None
    return JSONResponse(body, refusal.status, headers)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    said = f"{request.method} {request.url.path}: {error.detail}."
    return JSONResponse(error_body(said, error.status_code), error.status_code, error.headers)


async def _failed(request: Request, error: Exception) -> Response:
    return JSONResponse(error_body("The server failed; see its log.", 500), 500)


ERROR_HANDLERS: Mapping[Any, Any] = {TutelageError: _refused, HTTPException: _http_error, Exception: _failed}
"""Handlers of errors in routes: each is JSON in OpenAI's format."""
