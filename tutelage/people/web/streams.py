"""Streaming of model responses to the database and to open pages.

The responses of a turn are written in background tasks of the server, not in the request that shows them, so reloading
the page or losing the connection loses nothing. Raw text is streamed piece by piece, for the page to insert as text
nodes; a complete response is stored and sent once more as sanitised HTML. A message that calls tools, and each result,
is sent as HTML as soon as it is there.

Events, as JSON in server-sent events. `side` is the position from the left:

    {"side": 0, "whole": "…"}     the text so far, replacing earlier text (the model was asked again)
    {"side": 0, "text": "…"}      more text
    {"side": 0, "message": "…"}   a message of the response, in place of the text so far; more text follows it
    {"side": 0, "html": "…"}      the complete response
    {"ready": true}               the turn is a question now
    {"failed": "…"}               error message; requesting the stream again retries
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from functools import partial

from starlette.concurrency import run_in_threadpool

from tutelage.base.errors import TutelageError
from tutelage.data.chat_stream import ReplyPiece
from tutelage.data.records import Message, Messages, ToolCall, tools_of
from tutelage.data.transport import HttpRefusal
from tutelage.people import Store, Unavailable
from tutelage.people.languages import ENGLISH, Sentence, say
from tutelage.people.live_conversation import LiveTools, Models, OpenTurn, keep_answer, open_turn
from tutelage.people.store.conversations import Reply, Turn
from tutelage.people.store.inbox import notice_model
from tutelage.people.validation import storable
from tutelage.people.web.render import LONGEST, render
from tutelage.people.web.traces import call_names, message_html, step_html

ATTEMPTS = 3
WAIT = 1.0
"""Seconds before the first retry; doubled before the second."""
MOST_CALLS = 16
"""Calls of tools in a response."""
CALLS_AT_ONCE = 8
"""Calls of tools that run at the same time, of all conversations."""
HEARTBEAT = 10.0
"""Seconds of silence before a heartbeat is sent."""
REFUSED = Sentence(
    "One of the models refuses this conversation. What you wrote and judged is kept: end the conversation here, and "
    "begin another one."
)
SILENT = Sentence(
    "One of the models does not answer at the moment. Nothing is lost: your message is kept, and what the other one "
    "answered. Try again in a moment."
)
_log = logging.getLogger(__name__)


@dataclass
class _Response:
    """A partial response: `messages` that are complete, as HTML in `parts`, and the `text` after them."""

    text: str = ""
    restarts: int = 0
    html: str | None = None
    messages: Messages = ()
    parts: tuple[str, ...] = ()


@dataclass
class _Seen:
    """The part of a response that a listener has received."""

    restarts: int = -1
    length: int = 0
    complete: bool = False
    messages: int = 0


@dataclass
class ResponseStream:
    """The responses of one turn while they are written, with messages in the rater's language."""

    opened: OpenTurn
    responses: tuple[_Response, ...]
    language: str = ENGLISH
    failed: str = ""
    over: bool = False
    _listeners: set[asyncio.Event] = field(default_factory=set)

    def tell(self) -> None:
        """Wake up all listeners."""
        for event in self._listeners:
            event.set()

    async def events(self) -> AsyncGenerator[bytes]:
        """Past and future events, until both responses are complete or one has failed."""
        changed, seen = asyncio.Event(), [_Seen() for _ in self.responses]
        self._listeners.add(changed)
        try:
            while True:
                changed.clear()
                over = self.over  # read first: the last events may arrive while these are sent
                for side, model in enumerate(self.opened.turn.order):
                    for data in _news(self.responses[model], seen[side]):
                        yield _event({"side": side, **data})
                if over:
                    yield _event({"failed": say(self.failed, self.language)} if self.failed else {"ready": True})
                    return
                try:
                    await asyncio.wait_for(changed.wait(), HEARTBEAT)
                except TimeoutError:
                    yield b":\n\n"
        finally:
            self._listeners.discard(changed)


def _news(response: _Response, seen: _Seen) -> list[dict[str, object]]:
    """The events that a listener has not received; marks them as received."""
    news: list[dict[str, object]] = []
    if response.html is not None:
        if not seen.complete:
            news.append({"html": response.html})
        seen.complete = True
    else:
        restarted = seen.restarts != response.restarts
        parts = response.parts[0 if restarted else seen.messages :]
        if restarted:
            news.append({"whole": "" if parts else response.text})
        news += [{"message": html} for html in parts]
        start = 0 if parts else len(response.text) if restarted else seen.length
        if len(response.text) > start:
            news.append({"text": response.text[start:]})
    seen.restarts, seen.length, seen.messages = response.restarts, len(response.text), len(response.parts)
    return news


def _event(data: Mapping[str, object]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


def _html(reply: Reply, language: str) -> str:
    """The HTML of a complete response."""
    html = partial(render, language=language)
    return "".join(step_html(step, html, language) for step in reply.steps) or html(reply.text)


def _length(message: Message) -> int:
    """Characters of a message, those of its calls included."""
    return len(message.content) + sum(len(call.name) + len(call.arguments) for call in message.calls)


def _none_left(call: ToolCall) -> Message:
    content = f"error: a response calls tools at most {MOST_CALLS} times"
    return Message("tool", content, name=call.name, call_id=call.id)


def _storable(message: Message) -> Message:
    """The message with characters that databases store."""
    calls = (ToolCall(storable(call.name), _arguments(call), storable(call.id)) for call in message.calls)
    content, name, call_id = map(storable, (message.content, message.name, message.call_id))
    return replace(message, content=content, calls=tuple(calls), name=name, call_id=call_id)


def _arguments(call: ToolCall) -> str:
    """The arguments of a call with characters that databases store, also where JSON escapes them."""
    text = storable(call.arguments)
    plain = json.dumps(json.loads(text), ensure_ascii=False)
    return text if storable(plain) == plain else storable(plain)


class ResponseStreams:
    """All responses being written. Used by one event loop."""

    def __init__(self, store: Store, models: Models, tools: LiveTools | None = None) -> None:
        self._store, self._models, self._tools = store, models, tools
        self._places = asyncio.Semaphore(CALLS_AT_ONCE)
        self._running: dict[int, ResponseStream] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def schemas(self) -> tuple[str, ...]:
        """Schemas of the tools that new conversations offer."""
        return () if self._tools is None else self._tools.schemas

    async def events(self, turn: Turn, language: str = ENGLISH) -> AsyncGenerator[bytes]:
        """The events of a turn, in the language. Starts writing the responses if they are not being written."""
        stream = self._running.get(turn.id)
        if stream is None:
            try:
                opened, responses = await run_in_threadpool(self._known, turn, language)
            except Unavailable:
                return  # without a final event, so that the page reconnects
            stream = self._running.get(turn.id) or self._begin(opened, responses, language)
        async with aclosing(stream.events()) as events:
            async for event in events:
                yield event

    def _known(self, turn: Turn, language: str) -> tuple[OpenTurn, tuple[_Response, ...]]:
        """The turn in the database, and its responses so far."""
        opened = open_turn(self._store, turn.id, turn.rater_id)
        return opened, tuple(
            _Response() if reply is None else _Response(reply.text, html=_html(reply, language))
            for reply in opened.replies
        )

    def _begin(self, opened: OpenTurn, responses: tuple[_Response, ...], language: str) -> ResponseStream:
        stream = ResponseStream(opened, responses, language, over=opened.complete)
        if not stream.over:
            self._running[opened.turn.id] = stream
            task = asyncio.create_task(self._write_both(stream))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return stream

    async def _write_both(self, stream: ResponseStream) -> None:
        missing = [place for place, reply in enumerate(stream.opened.replies) if reply is None]
        try:
            await asyncio.gather(*(self._write(stream, place) for place in missing))
        finally:
            stream.over = True
            del self._running[stream.opened.turn.id]
            stream.tell()

    async def _write(self, stream: ResponseStream, place: int) -> None:
        """Ask a model, store its response and show it, or report why there is none."""
        try:
            finished = await self._ask(stream, place)
            await self._keep(stream, place, finished)
        except HttpRefusal as error:
            await self._give_up(stream, place, REFUSED, str(error))
        except TutelageError as error:
            await self._give_up(stream, place, SILENT, str(error))
        except Exception as error:
            _log.exception("a response failed")
            await self._give_up(stream, place, SILENT, repr(error))

    async def _ask(self, stream: ResponseStream, place: int) -> bool:
        """Ask the model, retrying other errors than HTTP refusals after the results of tools that are there, so that no
        call is repeated. Returns whether the response is complete."""
        response, live = stream.responses[place], stream.opened.live
        for attempt in range(ATTEMPTS):
            try:
                seed = stream.opened.seed + 2 * attempt + place
                return await self._respond(stream, place, dict(live.sampling) | {"seed": seed})
            except HttpRefusal:
                raise
            except TutelageError:
                if attempt == ATTEMPTS - 1:
                    raise
            await asyncio.sleep(WAIT * 2**attempt)
            response.text = ""
            response.restarts += 1
            stream.tell()
        raise AssertionError("the last attempt returns or raises")

    async def _respond(self, stream: ResponseStream, place: int, options: Mapping[str, object]) -> bool:
        """Let the model go on with its response, and run the tools that it calls. Returns whether it is complete."""
        response = stream.responses[place]
        while True:
            results = sum(message.role == "tool" for message in response.messages)
            calls = [call for message in response.messages for call in message.calls]
            for call in calls[results:]:
                results += 1
                result = await self._run(stream, call) if results <= MOST_CALLS else _none_left(call)
                await self._add(stream, place, result)
            if results > MOST_CALLS or sum(map(_length, response.messages)) > LONGEST:
                return False
            last = await self._listen(stream, place, options)
            if not last.calls:
                if response.text.strip():
                    return last.ended != "length"
                raise TutelageError(f"The model {stream.opened.live.names[place]} gave an empty answer.")
            if self._tools is None:
                name = last.calls[0].name
                raise TutelageError(f"It calls the tool {name!r}, and this server has none: serve it with --tools.")
            await self._add(stream, place, Message("assistant", response.text.strip(), calls=last.calls))

    async def _run(self, stream: ResponseStream, call: ToolCall) -> Message:
        """The result of a call of a tool that the conversation offers; few run at once. Raises TutelageError for a
        fault."""
        assert self._tools is not None  # else no call is part of a response
        async with self._places:
            return await self._tools.among(tools_of(stream.opened.turn.messages)).run(call)

    async def _add(self, stream: ResponseStream, place: int, message: Message) -> None:
        """Add a complete message to a response."""
        response, message = stream.responses[place], _storable(message)
        names = call_names((*response.messages, message))
        html = partial(render, language=stream.language)
        part = await run_in_threadpool(message_html, message, names, html, stream.language)
        response.messages, response.parts, response.text = (*response.messages, message), (*response.parts, part), ""
        stream.tell()

    async def _listen(self, stream: ResponseStream, place: int, options: Mapping[str, object]) -> ReplyPiece:
        """Append the model's text to the response as it arrives. Returns its last piece."""
        response = stream.responses[place]
        messages = (*stream.opened.turn.messages, *response.messages)
        model = self._models(stream.opened.live.names[place])
        async with aclosing(model.pieces(messages, **options)) as pieces:
            async for piece in pieces:
                response.text += piece.text
                stream.tell()
                if piece.ended:
                    return piece
                if len(response.text) > LONGEST:
                    return ReplyPiece("", "length")
        return ReplyPiece("")

    async def _keep(self, stream: ResponseStream, place: int, finished: bool) -> None:
        response, opened = stream.responses[place], stream.opened
        keep = partial(keep_answer, self._store, sampling=opened.live.sampling, finished=finished)
        last = Message("assistant", storable(response.text.strip()))
        reply = Reply.of((*response.messages, *([last] if last.content or not response.messages else [])))
        for attempt in range(ATTEMPTS):
            try:
                await run_in_threadpool(keep, opened.turn, place, reply)
                break
            except Unavailable:
                if attempt == ATTEMPTS - 1:
                    raise
            await asyncio.sleep(WAIT * 2**attempt)
        response.html = await run_in_threadpool(_html, reply, stream.language)
        stream.tell()

    async def _give_up(self, stream: ResponseStream, place: int, sentence: str, why: str) -> None:
        stream.failed = stream.failed or sentence
        name = stream.opened.live.names[place]
        _log.warning("The model %s did not answer a turn: %s", name, why)
        with suppress(Unavailable):  # logged above
            await run_in_threadpool(notice_model, self._store, stream.opened.turn.study_id, name, why)
