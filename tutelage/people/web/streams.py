"""Streaming of model responses to the database and to open pages.

The responses of a turn are written in background tasks of the server, not in the request that shows them, so reloading
the page or losing the connection loses nothing. Raw text is streamed piece by piece, for the page to insert as text
nodes; a complete response is stored and sent once more as sanitised HTML.

Events, as JSON in server-sent events. `side` is the position from the left:

    {"side": 0, "whole": "…"}     the text so far, replacing earlier text (the model was asked again)
    {"side": 0, "text": "…"}      more text
    {"side": 0, "html": "…"}      the complete response
    {"ready": true}               the turn is a question now
    {"failed": "…"}               error message; requesting the stream again retries
"""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field

from starlette.concurrency import run_in_threadpool

from tutelage.base.errors import TutelageError
from tutelage.data.transport import HttpRefusal
from tutelage.people import Store, Unavailable
from tutelage.people.chat_models import Models
from tutelage.people.languages import ENGLISH, Sentence, say
from tutelage.people.live_conversation import OpenTurn, keep_answer, open_turn
from tutelage.people.store.inbox import notice_model
from tutelage.people.store.turns import Turn
from tutelage.people.validation import storable
from tutelage.people.web.render import LONGEST, render

ATTEMPTS = 3
WAIT = 1.0
"""Seconds before the first retry; doubled before the second."""
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
    """A partial response; `begun` counts its restarts."""

    text: str = ""
    begun: int = 0
    html: str | None = None


@dataclass
class _Seen:
    """The part of a response that a listener has received."""

    begun: int = -1
    length: int = 0
    complete: bool = False


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
    elif seen.begun != response.begun:
        news.append({"whole": response.text})
    elif len(response.text) > seen.length:
        news.append({"text": response.text[seen.length :]})
    seen.begun, seen.length = response.begun, len(response.text)
    return news


def _event(data: Mapping[str, object]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


class ResponseStreams:
    """All responses being written. Used by one event loop."""

    def __init__(self, store: Store, models: Models) -> None:
        self._store, self._models = store, models
        self._running: dict[int, ResponseStream] = {}
        self._tasks: set[asyncio.Task[None]] = set()

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
            _Response() if text is None else _Response(text, html=render(text, language)) for text in opened.texts
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
        missing = [place for place, text in enumerate(stream.opened.texts) if text is None]
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
        """Ask the model, retrying other errors than HTTP refusals. Returns whether the response is complete."""
        response, live = stream.responses[place], stream.opened.live
        for attempt in range(ATTEMPTS):
            try:
                seed = stream.opened.seed + 2 * attempt + place
                ended = await self._listen(stream, place, dict(live.sampling) | {"seed": seed})
                if response.text.strip():
                    return ended != "length"
                raise TutelageError(f"The model {live.names[place]} gave an empty answer.")
            except HttpRefusal:
                raise
            except TutelageError:
                if attempt == ATTEMPTS - 1:
                    raise
            await asyncio.sleep(WAIT * 2**attempt)
            response.text = ""
            response.begun += 1
            stream.tell()
        raise AssertionError("the last attempt returns or raises")

    async def _listen(self, stream: ResponseStream, place: int, options: Mapping[str, object]) -> str:
        """Append the model's text to the response as it arrives. Returns why it ended."""
        response = stream.responses[place]
        model = self._models(stream.opened.live.names[place])
        async with aclosing(model.pieces(stream.opened.turn.messages, **options)) as pieces:
            async for piece in pieces:
                response.text += piece.text
                stream.tell()
                if piece.ended:
                    return piece.ended
                if len(response.text) > LONGEST:
                    return "length"
        return ""

    async def _keep(self, stream: ResponseStream, place: int, finished: bool) -> None:
        response, opened = stream.responses[place], stream.opened
        text = storable(response.text.strip())
        for attempt in range(ATTEMPTS):
            try:
                await run_in_threadpool(
                    keep_answer, self._store, opened.turn, place, text, sampling=opened.live.sampling, finished=finished
                )
                break
            except Unavailable:
                if attempt == ATTEMPTS - 1:
                    raise
            await asyncio.sleep(WAIT * 2**attempt)
        response.html = await run_in_threadpool(render, text, stream.language)
        stream.tell()

    async def _give_up(self, stream: ResponseStream, place: int, sentence: str, why: str) -> None:
        stream.failed = stream.failed or sentence
        name = stream.opened.live.names[place]
        _log.warning("The model %s did not answer a turn: %s", name, why)
        with suppress(Unavailable):  # logged above
            await run_in_threadpool(notice_model, self._store, stream.opened.turn.study_id, name, why)
