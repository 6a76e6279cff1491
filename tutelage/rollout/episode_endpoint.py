"""An OpenAI endpoint in front of episodes: an address for each, whose chat completions are turns of the policy.

Requests of an episode are answered one at a time. One that continues a conversation of the episode continues its
tokens; any other begins a new context. A repetition of a request whose client left without the reply, or that the
client marks as a retry, has the reply of the first. A turn that was never received is not trained on.
"""

import asyncio
import hashlib
import json
import logging
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tutelage.base.errors import TutelageError
from tutelage.data.records import Message, Messages, call_json
from tutelage.rollout.episodes import Episode
from tutelage.rollout.serving.asgi_server import listen, server
from tutelage.rollout.serving.http_requests import Guard, read_json
from tutelage.rollout.serving.model_routes import (
    CLIENT_IS_GONE,
    ERROR_HANDLERS,
    EVENTS,
    LAST_EVENT,
    NOT_CACHED,
    departure,
    event,
)
from tutelage.rollout.serving.protocol.replies import Json, finish_of, message_json
from tutelage.rollout.serving.protocol.request_fields import ChatFields, RequestError, read_fields, refusal
from tutelage.rollout.serving.protocol.requests import read_conversation

T = TypeVar("T")
LOCAL = "127.0.0.1"
MOST_BYTES = 16_000_000
"""Bytes of a request."""
NOTICE = 0.001
"""Seconds after a turn in which it is noticed that the client has left."""
OWN_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "max_completion_tokens")
"""Fields of a request in whose place the run has its own settings."""
UNSUPPORTED: Mapping[str, object] = {
    "n": 1,
    "stop": (),
    "stop_token_ids": (),
    "ignore_eos": False,
    "logprobs": False,
    "top_logprobs": None,
    "return_token_ids": False,
}
"""Fields of a request that must have these values."""
log = logging.getLogger(__name__)


class EpisodeEndpoint:
    """HTTP server on this machine, on the running event loop."""

    def __init__(self) -> None:
        self._sessions: dict[str, EpisodeSession] = {}
        self._url = ""
        self._server: asyncio.Task[None] | None = None
        self._replaced: set[str] = set()

    @asynccontextmanager
    async def session(self, episode: Episode) -> AsyncIterator["EpisodeSession"]:
        """Context in which requests to the session's address are turns of an episode."""
        if self._server is None or self._server.done():
            self._listen()
        name = secrets.token_urlsafe(12)
        self._sessions[name] = session = EpisodeSession(episode, f"{self._url}/{name}/v1")
        try:
            yield session
            await session.close()
        finally:
            self._sessions = {known: each for known, each in self._sessions.items() if each is not session}
            session.cancel()

    @property
    def url(self) -> str:
        """Address of requests that name their episode in the header X-Session-ID (see `name`)."""
        return f"{self._url}/v1"

    def name(self, session: "EpisodeSession", name: str) -> None:
        """Give a session a further name."""
        self._sessions[name] = session

    def _listen(self) -> None:
        app = Starlette(
            routes=[
                route
                for path in ("/{episode}/v1", "/v1")
                for route in (
                    Route(f"{path}/chat/completions", self._chat, methods=["POST"]),
                    Route(f"{path}/models", self._models, methods=["GET"]),
                )
            ],
            exception_handlers=ERROR_HANDLERS,
        )
        listening = listen(LOCAL, 0)
        self._url = f"http://{LOCAL}:{listening.getsockname()[1]}"
        serving = server(Guard(app, "", only_local=True)).serve(sockets=[listening])
        self._server = asyncio.ensure_future(serving)

    async def _models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": "policy", "object": "model", "owned_by": "tutelage"}]})

    async def _chat(self, request: Request) -> Response:
        session = self._sessions.get(request.path_params.get("episode") or request.headers.get("x-session-id", ""))
        if session is None:
            raise RequestError("The episode of this address has ended.", status=404)
        try:
            return await session.reply(request, self._replaced)
        except TutelageError as error:
            session.refusal = str(error)
            raise


@dataclass
class TurnReply:
    """Reply to a request, and whether its client has left without it."""

    message: "asyncio.Task[tuple[int, Message]]"
    """Number of the turn, and its message."""
    left: bool = False


@dataclass
class EpisodeSession:
    """Requests of a client as turns of its episode."""

    episode: Episode
    url: str
    """Base address of the requests."""
    refusal: str = ""
    """Reason of the last refusal."""
    ended: "asyncio.Future[BaseException]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """What ended the episode before its client did."""
    _replies: dict[str, TurnReply] = field(default_factory=dict)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _closed: bool = False

    @property
    def remark(self) -> str:
        """Sentence about the last refusal, with a space before it; "" without one."""
        return f" Its last request was refused: {self.refusal}" if self.refusal else ""

    async def reply(self, request: Request, replaced: set[str]) -> Response:
        """Response to a request: the next turn, or that of an earlier request that it repeats."""
        body = await read_json(request, MOST_BYTES)
        fields = read_fields(ChatFields, body)
        for name, only in UNSUPPORTED.items():
            if getattr(fields, name) != only:
                raise refusal(name, "is not supported for a policy in training: leave it out")
        _remark_sampling(body, replaced)
        key = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
        reply = self._replies.get(key)
        if reply is None or not (reply.left or request.headers.get("x-stainless-retry-count", "0") != "0"):
            reply = TurnReply(asyncio.ensure_future(self._next(read_conversation(fields))))
            reply.message.add_done_callback(lambda task: task.cancelled() or task.exception())  # maybe nobody waits
            self._replies[key] = reply
        left = asyncio.ensure_future(departure(request))
        try:
            await asyncio.wait({reply.message, left}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({left}, timeout=NOTICE)
            reply.left = left.done()
        finally:
            left.cancel()
        if reply.left:
            return Response(status_code=CLIENT_IS_GONE)
        number, message = reply.message.result()
        self.episode.unread.discard(number)
        return _response(message, fields)

    async def result_of(self, work: Awaitable[T]) -> T:
        """Result of what the client does. Raises what ends the episode before."""
        task = asyncio.ensure_future(work)
        watched: tuple[asyncio.Future[Any], ...] = (task, self.ended)
        try:
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            if self.ended.done():
                raise self.ended.result()
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """Wait for a turn that is being sampled, and begin no other."""
        self._closed = True
        async with self._turn:
            pass

    def cancel(self) -> None:
        """End all turns, and begin no other."""
        self._closed = True
        for reply in self._replies.values():
            reply.message.cancel()

    async def _next(self, conversation: Messages) -> tuple[int, Message]:
        """The next turn, which nobody has received yet. What ends the episode is an error for its client, unless it has
        left before."""
        async with self._turn:
            number = len(self.episode.rewards)
            self.episode.unread.add(number)
            try:
                if not self._closed:
                    return number, await self.episode.turn(conversation)
            except (TutelageError, asyncio.CancelledError):
                raise
            except BaseException as end:
                if not self._closed:
                    self.episode.unread.discard(number)  # of a turn that was cut
                    self._closed = True
                    self.ended.set_result(end)
            raise RequestError("The episode has ended.", status=409)


def _remark_sampling(body: Mapping[str, Any], replaced: set[str]) -> None:
    """Log fields of requests that have no effect, each once."""
    new = [name for name in OWN_SAMPLING if body.get(name) is not None and name not in replaced]
    if new:
        replaced.update(new)
        log.warning(f"The agent sends {', '.join(new)}; turns are sampled by the settings of --sampling instead.")


def _response(message: Message, fields: ChatFields) -> Response:
    """Turn as a response in OpenAI's format, whole or as a stream."""
    name, finish = secrets.token_hex(16), finish_of("stop", message.calls)
    head: Json = {"id": f"chatcmpl-{name}", "created": int(time.time()), "model": fields.model or "policy"}
    choice: Json = {"index": 0, "logprobs": None, "finish_reason": finish}
    if not fields.stream:
        whole = choice | {"message": message_json(message)}
        return JSONResponse(head | {"object": "chat.completion", "choices": [whole]})
    delta: Json = {"role": "assistant", "content": message.content}
    if message.calls:
        delta["tool_calls"] = [{"index": place} | call_json(call) for place, call in enumerate(message.calls)]

    async def events() -> AsyncGenerator[bytes]:
        for each in (choice | {"delta": delta, "finish_reason": None}, choice | {"delta": {}}):
            yield event(head | {"object": "chat.completion.chunk", "choices": [each]})
        yield LAST_EVENT

    return StreamingResponse(events(), media_type=EVENTS, headers=NOT_CACHED)
