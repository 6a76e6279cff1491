"""Live conversations: raters' messages, and the streamed responses of both models.

Responses never reveal which model is on which side.
"""

from starlette.responses import JSONResponse, Response, StreamingResponse

from tutelage.base.errors import TutelageError
from tutelage.people.languages import Sentence
from tutelage.people.live_conversation import end_conversation, open_turn, say
from tutelage.people.web import values
from tutelage.people.web.call import Call, Refusal, sentence
from tutelage.people.web.pages.rating import messages_data, refuse_strangers


def send(call: Call) -> Response:
    """Store a message and return its turn."""
    refuse_strangers(call)
    turn = say(
        call.store,
        call.me.id,
        values.optional_integer(call.data, "conversation"),
        values.text(call.data, "text"),
        values.text(call.data, "key"),
    )
    return JSONResponse(
        {
            "turn": turn.id,
            "conversation": turn.conversation_id,
            "number": turn.number,
            "messages": messages_data(turn.messages, call.language),
        }
    )


def listen(call: Call) -> Response:
    """The responses to a turn as server-sent events (see `streams`)."""
    refuse_strangers(call)
    try:
        opened = open_turn(call.store, _number(call), call.me.id)
    except TutelageError as error:
        raise Refusal(404, sentence(error)) from error
    return StreamingResponse(
        call.site.streams.events(opened.turn, call.language),
        media_type="text/event-stream",
        headers={"x-accel-buffering": "no"},  # keeps proxies from buffering the stream
    )


def end(call: Call) -> Response:
    """End the conversation early."""
    refuse_strangers(call)
    end_conversation(call.store, call.me.id, _number(call))
    return JSONResponse({"ended": True})


def _number(call: Call) -> int:
    text = call.path["number"]
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise Refusal(404, Sentence("There is no such conversation."))
    return int(text)
