"""Live conversations: a rater talks to two models, and judges in each turn which response is better.

The rater sends a message (`say`), both models respond (`keep_answer`, one call each), and the turn becomes a regular
question, reserved for this rater. A response with calls of tools is a trace. The conversation continues from the better
response until the last turn. Only between conversations, the rater is assigned other questions: practice, known
answers, repeats, and turns of other raters that need a second vote.

All state is in the database, so that a conversation survives interruptions at any point.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from tutelage.base.errors import TutelageError
from tutelage.data.chat_endpoint import Endpoint
from tutelage.data.chat_stream import ChatStream, ReplyPiece
from tutelage.data.records import Message, Messages, ToolCall
from tutelage.data.transport import Transport
from tutelage.people.answers import LONGEST_NAME
from tutelage.people.assignment import next_assignment, refusal, reserve_turn
from tutelage.people.languages import Sentence
from tutelage.people.store import conversations
from tutelage.people.store.additions import steps_to_text
from tutelage.people.store.assignments import Assignment
from tutelage.people.store.conversations import (
    LiveModels,
    Reply,
    Turn,
    check_message,
    displayed_order,
    find_live_models,
    last_turn,
    load_live_models,
    load_turn,
    messages_after,
    replies_of,
)
from tutelage.people.store.engine import Connection, Store
from tutelage.people.store.raters import Rater, get_rater, lock_rater, update_rater
from tutelage.people.store.studies import Study, study_of
from tutelage.people.validation import StudyError, refuse_unstorable

SILENCE = 60.0
"""Timeout for output of a model, in seconds."""


class ChatModel(Protocol):
    """A model that responds to conversations."""

    def pieces(self, messages: Messages, **options: object) -> AsyncGenerator[ReplyPiece]:
        """Stream the response in pieces; the last one has ended. Raises TutelageError like `ChatStream.pieces`."""


Models: TypeAlias = Callable[[str], ChatModel]
"""The model with a name. Raises TutelageError for an unknown name."""


class LiveTools(Protocol):
    """Tools that the models of live conversations call; `schemas` are those of their functions."""

    @property
    def schemas(self) -> tuple[str, ...]: ...

    def among(self, schemas: Sequence[str]) -> "LiveTools":
        """Those of the tools that a conversation with these schemas offers."""

    async def run(self, call: ToolCall) -> Message:
        """The result of a call, with what went wrong as its text, such as a tool that is not among these. Raises
        TutelageError for a fault outside."""


def is_address(name: str) -> bool:
    """Whether the name of a model is the URL of an endpoint rather than a folder."""
    return name.startswith(("http://", "https://"))


def endpoint_of(name: str, key: str = "") -> Endpoint:
    """The endpoint for `http://host:8000/v1#MODEL`; without #MODEL, the model is unspecified."""
    url, _, model = name.partition("#")
    return Endpoint(url, model, key, SILENCE)


@dataclass
class EndpointModel:
    """A model served by an endpoint. If unspecified, it is the only model that the endpoint lists."""

    endpoint: Endpoint
    _stream: ChatStream | None = field(default=None, init=False)

    async def pieces(self, messages: Messages, **options: object) -> AsyncGenerator[ReplyPiece]:
        if self._stream is None:
            if not self.endpoint.model:
                self.endpoint = replace(self.endpoint, model=await asyncio.to_thread(only_model, self.endpoint))
            self._stream = ChatStream(self.endpoint)
        async with aclosing(self._stream.pieces(messages, **options)) as pieces:
            async for piece in pieces:
                yield piece


def only_model(endpoint: Endpoint) -> str:
    """The only model served by an endpoint. Raises TutelageError if there are several, or none."""
    address = f"{endpoint.url.rstrip('/')}/models"
    answer = Transport(f"The endpoint {endpoint.url}", endpoint.key, SILENCE, retries=0).get(address)
    try:
        names = [str(each["id"]) for each in answer["data"]]
    except (KeyError, TypeError) as error:
        raise TutelageError(f"{address} does not list models; write the address as {endpoint.url}#MODEL.") from error
    if len(names) != 1:
        raise TutelageError(
            f"{endpoint.url} serves {len(names)} models ({', '.join(names[:5])}); write the address as "
            f"{endpoint.url}#MODEL."
        )
    return names[0]


def only_endpoints(name: str) -> ChatModel:
    """The model of an endpoint. Raises TutelageError if the name is not a URL."""
    if not is_address(name):
        raise TutelageError(f"The model {name} is a folder; use `tutelage collect serve` to serve it.")
    return EndpointModel(endpoint_of(name))


OPENINGS = 3
"""Number of suggested openings displayed at a time."""


@dataclass(frozen=True)
class Talk:
    """The state of a rater's conversation between questions. `messages` is the conversation so far; `writing` is the
    id of the turn that models are answering, None if the rater writes next. `turn` is the number of the current or next
    turn, of `turns`. `conversation` is None for a new conversation, with suggested `openings`."""

    conversation: int | None
    turn: int
    turns: int
    messages: Messages = ()
    openings: tuple[str, ...] = ()
    writing: int | None = None


@dataclass(frozen=True)
class OpenTurn:
    """A turn in progress: the models, their responses (None until complete), and the seed."""

    turn: Turn
    live: LiveModels
    replies: tuple[Reply | None, ...]
    seed: int

    @property
    def complete(self) -> bool:
        """Whether both responses are complete."""
        return None not in self.replies


def next_step(store: Store, rater_id: int, *, besides: Collection[int] = ()) -> Assignment | Talk | None:
    """The next question, or the state of the conversation if no question is next. None if there is nothing for the
    rater (`why_nothing` returns the reason), or if the next step depends on an answer to an assignment in `besides`.

    Raises:
        TutelageError: the rater does not exist.
        Unavailable: the database cannot be written at the moment.
    """
    with store.read() as connection:
        rater = get_rater(connection, rater_id)
        study = study_of(connection, rater.study_id)
        live = find_live_models(connection, study.id)
        last = last_turn(connection, rater_id) if live is not None else None
        state = _state(connection, study, last)
    if live is None or rater.state != "active" or refusal(study, rater) is not None:
        return next_assignment(store, rater_id, besides=besides)
    if isinstance(state, Turn):
        return _ask_turn(store, rater_id, state.id, besides)
    if state is not None:
        return state
    question = next_assignment(store, rater_id, besides=besides)
    if question is not None or besides:
        return question
    return Talk(None, 1, live.turns, openings=_suggested(study, rater, last, live))


def _state(connection: Connection, study: Study, last: Turn | None) -> Talk | Turn | None:
    """The state of the conversation with this last turn: a `Talk`, or the turn to be judged; None if no conversation is
    open."""
    if last is None or last.ended:
        return None
    talk, turns = last.conversation_id, load_live_models(connection, last.live_id).turns
    if last.item_id is None:
        return Talk(talk, last.number, turns, last.messages, writing=last.id)
    messages = messages_after(connection, study, last)
    if messages is None:
        return last
    return Talk(talk, last.number + 1, turns, messages) if last.number < turns else None


def _ask_turn(store: Store, rater_id: int, turn_id: int, besides: Collection[int]) -> Assignment | None:
    with store.write(lasting=False) as connection:
        rater = lock_rater(connection, rater_id)
        study = study_of(connection, rater.study_id)
        turn = load_turn(connection, turn_id)
        assert turn is not None  # turns are never deleted
        assert turn.item_id is not None  # and keep their items
        question = reserve_turn(store, connection, study, rater, turn.item_id, displayed_order(study, turn))
    return None if question.id in besides else question


def _suggested(study: Study, rater: Rater, last: Turn | None, live: LiveModels) -> tuple[str, ...]:
    """A random choice of openings per conversation, the same on every reload."""
    number = 0 if last is None else last.conversation_id
    order = sorted(range(len(live.openings)), key=lambda index: study.chance(rater.id, number, index))
    return tuple(live.openings[index] for index in order[:OPENINGS])


def say(
    store: Store, rater_id: int, conversation: int | None, text: str, key: str, *, tools: Sequence[str] = ()
) -> Turn:
    """Store a message of the rater as the next turn of the conversation, or of a new one, which offers `tools` by their
    schemas, and return the turn. Requests with the same key are idempotent.

    Raises:
        TutelageError: the message is empty or too long, no message is possible at present (the last turn is not judged,
            the conversation is over, the study is paused), or another conversation is open.
        Unavailable: the database cannot be written at the moment; nothing was saved, send the same message again.
    """
    check_message(text)
    if not 1 <= len(key) <= LONGEST_NAME:
        raise TutelageError(f"A message needs an idempotency key of 1 to {LONGEST_NAME} characters.")
    with store.write() as connection:
        rater = lock_rater(connection, rater_id)
        previous = conversations.turn_of_key(connection, rater.study_id, key)
        if previous is not None:
            if previous.rater_id != rater_id or previous.messages[-1].content != text:
                raise TutelageError("The idempotency key was used for another message; every message needs its own.")
            return previous
        study = study_of(connection, rater.study_id)
        live = find_live_models(connection, study.id)
        reason = refusal(study, rater)
        if live is None:
            raise TutelageError(f"'{study.name}' has no models for live conversations.")
        if reason is not None:
            raise TutelageError(reason)
        before, messages = _before(connection, study, rater_id, conversation)
        messages = (*messages, Message("user", text, tools=() if messages else tuple(tools)))
        update_rater(connection, rater_id, seen=store.now())
        return conversations.begin_turn(connection, study, rater_id, before, messages, live, key, store.now())


def _before(
    connection: Connection, study: Study, rater_id: int, conversation: int | None
) -> tuple[Turn | None, Messages]:
    """The turn before a new message, and the messages of the conversation so far."""
    last = last_turn(connection, rater_id)
    state = _state(connection, study, last)
    current = None if last is None or state is None else last.conversation_id
    if current != conversation:
        raise StudyError("This conversation has gone on or ended in another window: load the page again.")
    if state is None:
        return None, ()
    if isinstance(state, Turn) or state.writing is not None:
        raise StudyError("Say which of the last two answers is better first.")
    return last, state.messages


def end_conversation(store: Store, rater_id: int, conversation: int) -> None:
    """End a conversation: the next message starts a new one. Judgements are kept. Raises TutelageError if the
    conversation is not the rater's latest."""
    with store.write() as connection:
        lock_rater(connection, rater_id)
        last = last_turn(connection, rater_id)
        if last is None or last.conversation_id != conversation:
            raise StudyError("This conversation has ended already: load the page again.")
        conversations.end_conversation(connection, conversation, store.now())


def open_turn(store: Store, turn_id: int, rater_id: int) -> OpenTurn:
    """A turn of the rater, for generating the responses. Raises TutelageError if the rater has no such turn."""
    with store.read() as connection:
        turn = load_turn(connection, turn_id)
        if turn is None or turn.rater_id != rater_id:
            raise TutelageError(f"Turn {turn_id} does not exist or belongs to another rater; load the page again.")
        study = study_of(connection, turn.study_id)
        live = load_live_models(connection, turn.live_id)
        seed = int(study.chance("seed", turn.id) * 2**31)
        return OpenTurn(turn, live, replies_of(connection, turn), seed)


def keep_answer(
    store: Store, turn: Turn, place: int, reply: Reply | str, *, sampling: Mapping[str, object], finished: bool = True
) -> bool:
    """Store the response of a model (0 or 1); returns whether the turn is complete. With the second response the turn
    becomes a question, reserved for its rater, unless the conversation was ended meanwhile. A response stored earlier
    is not overwritten.

    Raises:
        TutelageError: the text contains characters that cannot be stored, or the rater was forgotten.
        Unavailable: the database cannot be written at the moment; nothing was saved.
    """
    reply = Reply(reply) if isinstance(reply, str) else reply
    for text in (reply.text, steps_to_text(reply.steps) or ""):
        refuse_unstorable(text, Sentence("The answer"))
    with store.write() as connection:
        rater = lock_rater(connection, turn.rater_id)
        if rater.forgotten is not None:
            raise TutelageError("Its rater was forgotten meanwhile, so nothing is stored.")
        live = load_live_models(connection, turn.live_id)
        options = ", ".join(f"{name} {value}" for name, value in sampling.items())
        turn = conversations.write_answer(
            connection, turn, place, reply, sampler=live.names[place], sampling=options, finished=finished
        )
        if None in turn.answers:
            return False
        if turn.item_id is None and not turn.ended:
            study = study_of(connection, turn.study_id)
            item_id = conversations.add_item_of(connection, study, turn, live.round, store.now())
            reserve_turn(store, connection, study, rater, item_id, displayed_order(study, turn))
        return True
