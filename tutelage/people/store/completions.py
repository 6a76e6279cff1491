"""Completions of a served model that their users may give feedback on, until they expire."""

from dataclasses import dataclass

import sqlalchemy as sa

from tutelage.data.records import Messages
from tutelage.people.store import schema
from tutelage.people.store.additions import StoredResponse, messages_from_text, messages_to_text, stored_response
from tutelage.people.store.conversations import erase_prompts
from tutelage.people.store.engine import Connection, Store, insert_row, record_event, value_of
from tutelage.stats.split_test import Response

USE = "use"
"""Origin of items from feedback, and the reason for the assignment of such an item to its user."""
WRITTEN = "(user)"
"""Stands for the model of a response that a user wrote."""
_rows, _responses, _raters, _items = schema.completion, schema.response, schema.rater, schema.item


@dataclass(frozen=True)
class ServedCompletion:
    """A completion as served: its id, the conversation, the text (None if no model completed it), the model, whether it
    ended by itself, and seconds until it was complete. In a split test, `arm` is the user's model (a: present, b:
    candidate) and `trial` the name of the test; `failed`: that model failed, and the text is of the other one."""

    key: str
    messages: Messages
    text: str | None
    sampler: str
    finished: bool
    seconds: float
    trial: str = ""
    arm: str = ""
    failed: bool = False


@dataclass(frozen=True)
class KeptCompletion:
    """A completion in the study."""

    id: int
    key: str
    rater_id: int
    messages: Messages
    text: str
    sampler: str
    finished: bool
    created: int


def insert_completion(connection: Connection, study_id: int, rater_id: int, served: ServedCompletion, now: int) -> None:
    """Keep a completion of a user; one without a text also without the conversation."""
    messages = None if served.text is None else messages_to_text(served.messages)
    row = {
        "study_id": study_id, "rater_id": rater_id, "key": served.key, "text": served.text, "created": now,
        "messages": messages, "sampler": served.sampler, "finished": int(served.finished),
        "trial": served.trial, "arm": served.arm, "failed": int(served.failed), "seconds": served.seconds,
    }  # fmt: skip
    insert_row(connection, _rows, row)


_KEPT = sa.select(_rows).where(
    _rows.c.study_id == sa.bindparam("study"), _rows.c.key == sa.bindparam("key"), schema.KEPT
)


def find_completion(connection: Connection, study_id: int, key: str) -> KeptCompletion | None:
    """The completion with this id, locked until the transaction ends; None if there is none, or no longer."""
    row = connection.execute(_KEPT.with_for_update(), {"study": study_id, "key": key}).mappings().one_or_none()
    if row is None:
        return None
    return value_of(KeptCompletion, row, messages=messages_from_text(row["messages"]), finished=bool(row["finished"]))


def become_response(connection: Connection, study_id: int, completion: KeptCompletion) -> int:
    """The response of a completion, inserted if there is none yet; completions of one conversation share its prompt."""
    response_id = connection.scalar(sa.select(_rows.c.response_id).where(_rows.c.id == completion.id))
    if response_id is not None:
        return int(response_id)
    response = insert_text(
        connection,
        study_id,
        completion,
        completion.key,
        completion.text,
        sampler=completion.sampler,
        finished=completion.finished,
    )
    connection.execute(_rows.update().where(_rows.c.id == completion.id).values(response_id=response))
    return response


def insert_text(
    connection: Connection,
    study_id: int,
    completion: KeptCompletion,
    key: str,
    text: str,
    *,
    sampler: str,
    finished: bool,
) -> int:
    """Insert a response to the conversation of a completion; returns its id."""
    prompt = _prompt_of(connection, study_id, completion)
    row = {"study_id": study_id, "prompt_id": prompt, "key": key, "text": text, "sampler": sampler, "sampling": ""}
    return insert_row(connection, _responses, row | {"finished": int(finished)})


def _prompt_of(connection: Connection, study_id: int, completion: KeptCompletion) -> int:
    """The prompt of the user's conversation, inserted if there is none yet."""
    messages = messages_to_text(completion.messages)
    same = (
        sa.select(_responses.c.prompt_id)
        .join(_rows, _rows.c.response_id == _responses.c.id)
        .where(_rows.c.rater_id == completion.rater_id, _rows.c.messages == messages)
        .limit(1)
    )
    prompt_id = connection.scalar(same)
    if prompt_id is not None:
        return int(prompt_id)
    row = {"study_id": study_id, "key": f"use-{completion.key}", "messages": messages, "split": "train"}
    return insert_row(connection, schema.prompt, row)


def response_of(connection: Connection, response_id: int) -> StoredResponse:
    """A response, for a new item."""
    row = connection.execute(sa.select(_responses).where(_responses.c.id == response_id)).one()
    return stored_response(row)


def find_text(connection: Connection, study_id: int, key: str) -> tuple[int, str] | None:
    """Id and text of the response with this key, or None."""
    query = sa.select(_responses.c.id, _responses.c.text)
    row = connection.execute(query.where(_responses.c.study_id == study_id, _responses.c.key == key)).one_or_none()
    return None if row is None else (row.id, row.text)


def item_of_key(connection: Connection, study_id: int, key: str) -> int | None:
    """Id of the item with this key, or None."""
    return connection.scalar(sa.select(_items.c.id).where(_items.c.study_id == study_id, _items.c.key == key))


def replace_item(connection: Connection, study_id: int, key: str, *, actor: str, now: int) -> None:
    """Exclude an item that its user has replaced by another."""
    reason = "replaced by the user"
    mine = sa.and_(_items.c.study_id == study_id, _items.c.key == key)
    connection.execute(_items.update().where(mine).values(excluded=reason, room=0))
    record_event(connection, study_id, now, actor, "exclude", key, scope="item", reason=reason)


def set_outcome(connection: Connection, completion_id: int, outcome: float, now: int) -> None:
    """Record what the user said of a completion first. It stays, because who looks at a split test has counted it."""
    mine = sa.and_(_rows.c.id == completion_id, _rows.c.outcome.is_(None))
    connection.execute(_rows.update().where(mine).values(outcome=outcome, said=now))


def drop_texts(store: Store, study_id: int, before: int) -> int:
    """Delete the completions from before this time: their ids are unknown from then on. What became a response stays,
    and what a split test counts, without the texts. Returns their number."""
    old = sa.and_(_rows.c.study_id == study_id, schema.KEPT, _rows.c.created < before)
    with store.write() as connection:
        said_nothing = sa.and_(old, _rows.c.response_id.is_(None), _rows.c.arm == "")
        gone = connection.execute(_rows.delete().where(said_nothing)).rowcount
        blank = connection.execute(_rows.update().where(old).values(messages=None, text=None)).rowcount
    return int(gone + blank)


def list_outcomes(store: Store, study_id: int, trial: str) -> tuple[Response, ...]:
    """The completions of a split test with what their users said of them first, oldest first. Users are named by their
    pseudonyms. Conversations and texts are not read."""
    c = _rows.c
    query = (
        sa.select(c.arm, _raters.c.name, c.outcome, c.failed, c.seconds, c.created, sa.func.coalesce(c.said, 0))
        .join(_raters, _raters.c.id == c.rater_id)
        .where(c.study_id == study_id, c.trial == trial, c.arm != "")
        .order_by(c.id)
        .execution_options(yield_per=1000)
    )
    with store.read() as connection:
        return tuple(
            Response(arm, user, outcome, bool(failed), seconds, time, said)
            for arm, user, outcome, failed, seconds, time, said in connection.execute(query)
        )


def list_trials(store: Store, study_id: int) -> tuple[str, ...]:
    """The split tests of a study by name, in the order of their last completions."""
    mine = sa.and_(_rows.c.study_id == study_id, _rows.c.trial != "")
    query = sa.select(_rows.c.trial).where(mine).group_by(_rows.c.trial).order_by(sa.func.max(_rows.c.id))
    with store.read() as connection:
        return tuple(connection.scalars(query))


def is_user(connection: Connection, rater_id: int) -> bool:
    """Whether the rater is a user of a served model whose completions became questions."""
    return connection.scalar(_asked_by(rater_id).limit(1)) is not None


def _asked_by(rater_id: int) -> sa.Select:
    """The prompts of the questions from a user's feedback; also in a restored study, which has no completions."""
    questions = schema.assignment
    query = sa.select(_items.c.prompt_id).join(questions, questions.c.item_id == _items.c.id)
    return query.where(questions.c.rater_id == rater_id, questions.c.chosen_by == USE)


def erase_completions(connection: Connection, rater_id: int) -> None:
    """Erase the texts of the user's completions and of the questions that they became."""
    mine = _rows.c.rater_id == rater_id
    erase_prompts(connection, _asked_by(rater_id))
    connection.execute(_rows.delete().where(mine, _rows.c.response_id.is_(None), _rows.c.arm == ""))
    connection.execute(_rows.update().where(mine).values(messages=None, text=None))
