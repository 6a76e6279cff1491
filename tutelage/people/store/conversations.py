"""Live conversations: the models that raters chat with, the messages to them, and the turns.

A turn is stored as soon as its message is sent. Its prompt is the conversation up to that message; the replies of the
two models are responses to it, stored one by one as they complete. With the second one the turn gets an item, and from
there on (leases, judgements, exports) it is like any other pair.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import sqlalchemy as sa

from tutelage.base import nouns
from tutelage.base.errors import TutelageError
from tutelage.data.records import Message, Messages, Step
from tutelage.data.traces import split_trace, trace_messages, trace_text
from tutelage.people.answers import correction_from
from tutelage.people.store import schema
from tutelage.people.store.additions import (
    add_single_item,
    messages_from_text,
    messages_to_text,
    steps_from_text,
    steps_to_text,
    stored_response,
)
from tutelage.people.store.consents import renew_consent
from tutelage.people.store.engine import Connection, Store, insert_row, lock, reading, record_event, value_of
from tutelage.people.store.studies import Study, study_of
from tutelage.people.validation import refuse_unstorable

LONGEST_MESSAGE = 20_000
MOST_TURNS = 100
MOST_OPENINGS = 10_000
_models = schema.live


@dataclass(frozen=True)
class LiveModels:
    """The two models that raters chat with (folders, hub names or endpoint URLs; they may be equal), for at most
    `turns` messages. `openings` are suggested first messages, `sampling` the request options, `round` the round of the
    items, `id` the row."""

    model: str
    against: str
    turns: int = 4
    openings: tuple[str, ...] = ()
    sampling: Mapping[str, object] = field(default_factory=dict)
    round: int = 1
    id: int = 0

    def __post_init__(self) -> None:
        if not (self.model and self.against):
            raise TutelageError("A live conversation needs two models; the same one may be named twice.")
        if not 1 <= self.turns <= MOST_TURNS:
            raise TutelageError(f"turns is {self.turns}; a conversation has 1 to {MOST_TURNS} turns.")
        if len(self.openings) > MOST_OPENINGS:
            raise TutelageError(f"There are {len(self.openings):,} openings; at most {MOST_OPENINGS:,} are allowed.")
        for text in self.openings:
            check_message(text, "An opening")

    @property
    def names(self) -> tuple[str, str]:
        """Names of both models, in the order in which turns store their responses."""
        return self.model, self.against


def check_message(text: str, what: str = "The message") -> None:
    """Raises TutelageError for a message that cannot be sent."""
    if not text.strip():
        raise TutelageError(f"{what} is empty; write something.")
    if len(text) > LONGEST_MESSAGE:
        raise TutelageError(
            f"{what} has {nouns.counted(len(text), 'character')}; at most {LONGEST_MESSAGE:,} can be sent at once."
        )
    refuse_unstorable(text, what)


def set_live_models(store: Store, study_id: int, live: LiveModels, *, actor: str = "owner") -> tuple[LiveModels, bool]:
    """Set the models that raters chat with from their next message on. Returns the models in force, and whether they
    changed. Raises TutelageError if the study does not compare pairs."""
    with store.write() as connection:
        lock(connection, schema.study, study_id)
        study = study_of(connection, study_id)
        if not study.kind.traits.sides:
            raise TutelageError(
                f"'{study.name}' {study.kind.traits.does}; live conversations are for studies that compare pairs."
            )
        before = find_live_models(connection, study_id)
        if before is not None and _content(before) == _content(live):
            return before, False
        row = _content(live) | {"study_id": study_id, "created": store.now()}
        insert_row(connection, _models, row)
        detail = {"models": list(live.names), "turns": live.turns, "openings": len(live.openings)}
        if before is None:  # live conversations extend the standard text
            renew_consent(connection, study_id, store.now(), actor=actor)
        record_event(connection, study_id, store.now(), actor, "live_models", f"round {live.round}", **detail)
        current = find_live_models(connection, study_id)
        assert current is not None
        return current, True


def _content(live: LiveModels) -> dict[str, object]:
    row = asdict(live)
    del row["id"]
    return row | {name: json.dumps(row[name], ensure_ascii=False) for name in ("openings", "sampling")}


_LIVE = sa.select(_models).where(_models.c.study_id == sa.bindparam("study")).order_by(_models.c.id.desc()).limit(1)
_LIVE_OF = sa.select(_models).where(_models.c.id == sa.bindparam("id"))


@reading
def find_live_models(connection: Connection, study_id: int) -> LiveModels | None:
    """The models in force; None if the study has no live conversations."""
    row = connection.execute(_LIVE, {"study": study_id}).mappings().one_or_none()
    return None if row is None else _live(row)


def load_live_models(connection: Connection, live_id: int) -> LiveModels:
    """Models by row id, as referenced by turns."""
    return _live(connection.execute(_LIVE_OF, {"id": live_id}).mappings().one())


def _live(row: sa.RowMapping) -> LiveModels:
    texts = {"openings": tuple(json.loads(row["openings"])), "sampling": json.loads(row["sampling"])}
    return value_of(LiveModels, row, **texts)


LIVE = "live"
"""Origin of items from live conversations."""
ERASED = "(erased)"
"""Replacement for texts of erased raters."""
_conversations, _turns = schema.conversation, schema.turn
_assignments, _judgements, _responses = schema.assignment, schema.judgement, schema.response
_ANSWERS = (_turns.c.model_response_id, _turns.c.against_response_id)


@dataclass(frozen=True)
class Reply:
    """Response of a model: a text, or with calls of tools the steps of a trace, and then its text is the whole to
    read."""

    text: str
    steps: tuple[Step, ...] = ()

    @classmethod
    def of(cls, messages: Messages) -> "Reply":
        """A single text as itself, other messages as a trace."""
        (_, steps), (first, *others) = split_trace(messages), messages
        return cls(first.content) if first.is_text and not others else cls(trace_text(steps), steps)

    @property
    def messages(self) -> Messages:
        return self.before(len(self.steps)) or (Message("assistant", self.text),)

    def before(self, step: int) -> Messages:
        """The messages of the steps before one, counted from 0."""
        return trace_messages(self.steps[:step])


@dataclass(frozen=True)
class Turn:
    """A turn. `messages` end with the rater's; `order[k]` is the model (0 or 1) in place k from the left; `answers` are
    the ids of the responses, None until complete. `ended`: the rater ended the conversation."""

    id: int
    study_id: int
    rater_id: int
    conversation_id: int
    number: int
    live_id: int
    prompt_id: int
    messages: Messages
    order: tuple[int, ...]
    answers: tuple[int | None, ...]
    item_id: int | None
    ended: bool


_TURN = (
    sa.select(_turns, _conversations.c.rater_id, _conversations.c.ended, schema.prompt.c.messages)
    .join(_conversations, _conversations.c.id == _turns.c.conversation_id)
    .join(schema.prompt, schema.prompt.c.id == _turns.c.prompt_id)
)
_TURN_OF = _TURN.where(_turns.c.id == sa.bindparam("turn"))
_NEWEST = sa.select(sa.func.max(_conversations.c.id)).where(_conversations.c.rater_id == sa.bindparam("rater"))
_LAST = _TURN.where(_turns.c.conversation_id == _NEWEST.scalar_subquery()).order_by(_turns.c.number.desc()).limit(1)
_OF_KEY = sa.select(_turns.c.id).where(
    _turns.c.study_id == sa.bindparam("study"), _turns.c.idempotency_key == sa.bindparam("key")
)


def load_turn(connection: Connection, turn_id: int) -> Turn | None:
    """Turn with this id, or None."""
    row = connection.execute(_TURN_OF, {"turn": turn_id}).mappings().one_or_none()
    return None if row is None else _turn(row)


def turn_of_key(connection: Connection, study_id: int, key: str) -> Turn | None:
    """Turn with this idempotency key, or None."""
    turn_id = connection.scalar(_OF_KEY, {"study": study_id, "key": key})
    return None if turn_id is None else load_turn(connection, turn_id)


def last_turn(connection: Connection, rater_id: int) -> Turn | None:
    """Last turn of the rater's newest conversation, the only one that can be open."""
    row = connection.execute(_LAST, {"rater": rater_id}).mappings().one_or_none()
    return None if row is None else _turn(row)


def _turn(row: sa.RowMapping) -> Turn:
    return value_of(
        Turn, row, messages=messages_from_text(row["messages"]), order=tuple(json.loads(row["order"])),
        answers=tuple(row[column.name] for column in _ANSWERS), ended=row["ended"] is not None,
    )  # fmt: skip


_JUDGED = (
    sa.select(_judgements.c.verdict, _judgements.c.correction)
    .join(_assignments, _assignments.c.id == _judgements.c.assignment_id)
    .where(
        _assignments.c.item_id == sa.bindparam("item"),
        _assignments.c.rater_id == sa.bindparam("rater"),
        _assignments.c.repeat == 0,
        _judgements.c.latest == 1,
    )
)
_REPLIES = (
    sa.select(_responses.c.text, _responses.c.steps)
    .join(schema.item_response, schema.item_response.c.response_id == _responses.c.id)
    .where(schema.item_response.c.item_id == sa.bindparam("item"))
    .order_by(schema.item_response.c.position)
)


def messages_after(connection: Connection, study: Study, turn: Turn) -> Messages | None:
    """The conversation with the response that it continues from: the rater's correction, else the better response, else
    a random one; None until judged."""
    if turn.item_id is None:
        return None
    judgement = connection.execute(_JUDGED, {"item": turn.item_id, "rater": turn.rater_id}).one_or_none()
    if judgement is None:
        return None
    rows = connection.execute(_REPLIES, {"item": turn.item_id})
    replies = [Reply(row.text, steps_from_text(row.steps)) for row in rows]
    if judgement.correction is not None:
        correction = correction_from(json.loads(judgement.correction))
        assert correction is not None
        kept = () if correction.step is None else replies[correction.response or 0].before(correction.step)
        return (*turn.messages, *kept, Message("assistant", correction.text))
    place_by_chance = int(study.chance("goes on", turn.id) < 0.5)
    place = {"a": 0, "b": 1}.get(judgement.verdict, place_by_chance)
    return (*turn.messages, *replies[place].messages)


def begin_turn(
    connection: Connection,
    study: Study,
    rater_id: int,
    before: Turn | None,
    messages: Messages,
    live: LiveModels,
    key: str,
    now: int,
) -> Turn:
    """Store a message as the next turn of the conversation whose last turn is `before`, or of a new one."""
    if before is None:
        row = {"study_id": study.id, "rater_id": rater_id, "created": now}
        conversation, number = insert_row(connection, _conversations, row), 1
    else:
        conversation, number = before.conversation_id, before.number + 1
    prompt = {"study_id": study.id, "key": f"talk-{conversation}-{number}", "split": "train"}
    prompt_id = insert_row(connection, schema.prompt, prompt | {"messages": messages_to_text(messages)})
    turn_id = insert_row(
        connection,
        _turns,
        {
            "study_id": study.id, "conversation_id": conversation, "number": number, "live_id": live.id,
            "prompt_id": prompt_id, "idempotency_key": key, "created": now,
            "order": json.dumps(study.side_order(f"talk {conversation}.{number}", rater_id, len(_ANSWERS))),
        },
    )  # fmt: skip
    turn = load_turn(connection, turn_id)
    assert turn is not None
    return turn


def write_answer(
    connection: Connection, turn: Turn, place: int, reply: Reply, *, sampler: str, sampling: str, finished: bool
) -> Turn:
    """Store the response of a model (0 or 1), unless there is one already; returns the updated turn."""
    now = load_turn(connection, turn.id)
    assert now is not None
    if now.answers[place] is not None:
        return now
    key = f"talk-{turn.conversation_id}-{turn.number}-{'ab'[place]}"
    row = {"study_id": turn.study_id, "prompt_id": turn.prompt_id, "key": key, "text": reply.text, "sampler": sampler}
    more = {"sampling": sampling, "finished": int(finished), "steps": steps_to_text(reply.steps)}
    response = insert_row(connection, _responses, row | more)
    _set(connection, turn, {_ANSWERS[place].name: response})
    changed = load_turn(connection, turn.id)
    assert changed is not None
    return changed


def displayed_order(study: Study, turn: Turn) -> tuple[int, ...]:
    """Canonical index of the response in each place; the canonically first model is random for each turn."""
    models = _canonical(study, turn)
    return tuple(models.index(model) for model in turn.order)


def _canonical(study: Study, turn: Turn) -> tuple[int, ...]:
    """Model of each canonical index."""
    return (1, 0) if study.chance("canonical", turn.id) < 0.5 else (0, 1)


def add_item_of(connection: Connection, study: Study, turn: Turn, round: int, now: int) -> int:
    """Create the item of a turn with both responses; returns its id. Whether it gets a second rater is random."""
    responses = {
        row.id: row for row in connection.execute(sa.select(_responses).where(_responses.c.id.in_(turn.answers)))
    }
    rows = [responses[turn.answers[model]] for model in _canonical(study, turn)]
    item_id = add_single_item(
        connection, study, f"talk-{turn.conversation_id}-{turn.number}", tuple(map(stored_response, rows)),
        origin=LIVE, round=round, second=study.chance("second", turn.id), now=now,
    )  # fmt: skip
    _set(connection, turn, {"item_id": item_id})
    return item_id


def replies_of(connection: Connection, turn: Turn) -> tuple[Reply | None, ...]:
    """Response of each model, None if incomplete."""
    complete = [number for number in turn.answers if number is not None]
    query = sa.select(_responses.c.id, _responses.c.text, _responses.c.steps).where(_responses.c.id.in_(complete))
    replies = {row.id: Reply(row.text, steps_from_text(row.steps)) for row in connection.execute(query)}
    return tuple(None if number is None else replies[number] for number in turn.answers)


def end_conversation(connection: Connection, conversation_id: int, now: int) -> None:
    """Record that the rater ended the conversation."""
    change = _conversations.update().where(_conversations.c.id == conversation_id, _conversations.c.ended.is_(None))
    connection.execute(change.values(ended=now))


def erase_conversations(connection: Connection, rater_id: int, now: int) -> None:
    """Erase the rater's conversations, including the models' responses, and exclude their items."""
    mine = sa.select(_conversations.c.id).where(_conversations.c.rater_id == rater_id)
    erase_prompts(connection, sa.select(_turns.c.prompt_id).where(_turns.c.conversation_id.in_(mine)))
    connection.execute(_conversations.update().where(_conversations.c.rater_id == rater_id).values(ended=now))


def erase_prompts(connection: Connection, prompts: sa.Select) -> None:
    """Erase the texts of prompts, given by id, and of the responses to them, and exclude their items."""
    empty = messages_to_text((Message("user", ERASED),))
    connection.execute(schema.prompt.update().where(schema.prompt.c.id.in_(prompts)).values(messages=empty))
    connection.execute(_responses.update().where(_responses.c.prompt_id.in_(prompts)).values(text=ERASED, steps=None))
    items = schema.item.update().where(schema.item.c.prompt_id.in_(prompts))
    connection.execute(items.values(excluded=ERASED, room=0))


def _set(connection: Connection, turn: Turn, values: Mapping[str, object]) -> None:
    connection.execute(_turns.update().where(_turns.c.id == turn.id).values(**values))
