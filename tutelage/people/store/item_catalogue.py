"""Items with all their data, for owners and exports, never for raters; filtered by content, rater or state, in pages.

A text search reads every prompt and response of the study; all other filters use counters.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from tutelage.data.records import AssistantTurn, CompletionRecord, Messages, Prompt, spoken
from tutelage.data.rubrics import rubric_rows
from tutelage.data.traces import trace_messages
from tutelage.people.store import schema
from tutelage.people.store.additions import messages_from_text, rubric_from_text, steps_from_text
from tutelage.people.store.engine import Connection, Store, value_of
from tutelage.people.store.items import Item

_items, _prompts, _links, _responses = schema.item, schema.prompt, schema.item_response, schema.response
_judgements, _assignments = schema.judgement, schema.assignment
_QUESTIONS = sa.select(
    _items, _prompts.c.key.label("prompt_key"), _prompts.c.messages, _prompts.c.split, _prompts.c.rubric
).join(_prompts, _prompts.c.id == _items.c.prompt_id)


@dataclass(frozen=True)
class Question:
    """An item in its current state. `counts` are the votes that count, by verdict; `answered` is their sum."""

    item: Item
    prompt: Prompt
    completions: tuple[CompletionRecord, ...]
    target: int
    answered: int
    leased: int
    skipped: int
    counts: Mapping[str, int]
    excluded: str | None

    @property
    def key(self) -> str:
        return self.item.key

    @property
    def messages(self) -> Messages:
        return self.prompt.messages

    @property
    def turns(self) -> tuple[AssistantTurn, ...]:
        """What the assistant wrote in each response: its text, or the message of a trace of one."""
        return tuple(map(turn_of, self.completions))

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(completion.text for completion in self.completions)


def turn_of(completion: CompletionRecord) -> AssistantTurn:
    """What the assistant wrote: its text, or the message of a trace of one."""
    messages = trace_messages(completion.steps)
    return spoken(messages[0]) if len(messages) == 1 else completion.text


def list_questions(store: Store, study_id: int, *, keys: Sequence[str] | None = None) -> tuple[Question, ...]:
    """All items, or those with these keys, in the order of insertion."""
    query = _QUESTIONS.where(_items.c.study_id == study_id)
    if keys is not None:
        query = query.where(_items.c.key.in_(keys))
    with store.read() as connection:
        rows = connection.execute(query.order_by(_items.c.id)).mappings().all()
        few = [row["id"] for row in rows] if len(rows) <= 500 else None
        parts = _parts(connection, study_id, few)
    return tuple(_question(row, parts[row["id"]]) for row in rows)


def questions_of(connection: Connection, study_id: int, ids: Sequence[int]) -> tuple[Question, ...]:
    """Items with these ids, in this order."""
    rows = {row["id"]: row for row in connection.execute(_QUESTIONS.where(_items.c.id.in_(ids))).mappings()}
    parts = _parts(connection, study_id, ids)
    return tuple(_question(rows[number], parts[number]) for number in ids)


def _parts(connection: Connection, study_id: int, item_ids: Sequence[int] | None) -> dict[int, list[sa.Row]]:
    """Responses of these items (default: all), in canonical order."""
    query = (
        sa.select(_links.c.item_id, _responses.c.key, _responses.c.text, _responses.c.sampler)
        .add_columns(_responses.c.sampling, _responses.c.finished, _responses.c.steps)
        .join(_responses, _responses.c.id == _links.c.response_id)
        .where(_responses.c.study_id == study_id)
        .order_by(_links.c.item_id, _links.c.position)
    )
    if item_ids is not None:
        query = query.where(_links.c.item_id.in_(item_ids))
    parts: dict[int, list[sa.Row]] = {}
    for row in connection.execute(query):
        parts.setdefault(row.item_id, []).append(row)
    return parts


def _question(row: sa.RowMapping, parts: list[sa.Row]) -> Question:
    rubric = rubric_from_text(row["rubric"])
    data = {"rubric": rubric_rows(rubric)} if rubric else {}
    prompt = Prompt(row["prompt_key"], messages_from_text(row["messages"]), row["split"], data)
    completions = tuple(
        CompletionRecord(
            part.key,
            prompt.id,
            part.text,
            part.sampler,
            part.sampling,
            bool(part.finished),
            steps_from_text(part.steps),
        )
        for part in parts
    )
    responses, explanation = tuple(each.id for each in completions), row["explanation"] or ""
    item = value_of(Item, row, prompt=prompt.id, responses=responses, explanation=explanation)
    counts = {"a": row["a_votes"], "b": row["b_votes"], "tie": row["ties"], "both_bad": row["both_bad"]}
    return value_of(Question, row, item=item, prompt=prompt, completions=completions, counts=counts)


STATES = ("open", "done", "disagreed", "excluded")


@dataclass(frozen=True)
class ItemFilter:
    """Filter for items; empty fields match everything.

    text: substring of the prompt, a response or the key. rater: id of a rater who answered or skipped it. flag: a flag
    of a latest answer, or `any`. skipped: a rater could not judge it. model: model name of one of its responses. pool:
    production, gold or training. state: open (needs more answers), done, disagreed (votes for both sides), excluded.
    corrected: a latest answer has a better response or marked words.
    """

    text: str = ""
    rater: int | None = None
    flag: str = ""
    skipped: bool = False
    model: str | None = None
    pool: str = ""
    round: int | None = None
    state: str = ""
    corrected: bool = False


@dataclass(frozen=True)
class Found:
    """Items of one page, and the total number of matches."""

    questions: tuple[Question, ...]
    total: int


def find_items(
    store: Store,
    study_id: int,
    filters: ItemFilter,
    *,
    order: str = "added",
    among: Sequence[int] | None = None,
    limit: int = 25,
    offset: int = 0,
) -> Found:
    """One page of the items that match the filter, in the order added, disagreement, newest, answered or
    skipped; with `among`, only these ids, in their order."""
    where = _conditions(store, study_id, filters)
    if among is not None:
        where.append(_items.c.id.in_(among))
    counted = sa.select(sa.func.count()).select_from(_items.join(_prompts)).where(*where)
    chosen = sa.select(_items.c.id).join(_prompts).where(*where).order_by(*_order(order, among), _items.c.id)
    with store.read() as connection:
        total = connection.scalar(counted) or 0
        ids = list(connection.scalars(chosen.limit(limit).offset(offset)))
        return Found(questions_of(connection, study_id, ids), total)


def items_after(
    store: Store, study_id: int, filters: ItemFilter, *, after: int = 0, limit: int = 100
) -> tuple[tuple[int, Question], ...]:
    """Items that match the filter, with their ids, for ids above `after`, in the order of insertion."""
    where = [*_conditions(store, study_id, filters), _items.c.id > after]
    query = sa.select(_items.c.id).join(_prompts).where(*where).order_by(_items.c.id).limit(limit)
    with store.read() as connection:
        ids = list(connection.scalars(query))
        return tuple(zip(ids, questions_of(connection, study_id, ids), strict=True))


def find_keys(store: Store, study_id: int, filters: ItemFilter) -> tuple[str, ...]:
    """Keys of all items that match the filter, in the order of insertion."""
    query = sa.select(_items.c.key).join(_prompts).where(*_conditions(store, study_id, filters))
    with store.read() as connection:
        return tuple(connection.scalars(query.order_by(_items.c.id)))


def _order(name: str, among: Sequence[int] | None) -> list[sa.ColumnElement]:
    if among:
        return [sa.case({number: place for place, number in enumerate(among)}, value=_items.c.id)]
    minority = sa.case((_items.c.a_votes < _items.c.b_votes, _items.c.a_votes), else_=_items.c.b_votes)
    orders: dict[str, list[sa.ColumnElement]] = {
        "disagreement": [minority.desc()],
        "newest": [_items.c.touched.desc()],
        "answered": [_items.c.answered.desc()],
        "skipped": [_items.c.skipped.desc()],
    }
    return orders.get(name, [])


def _conditions(store: Store, study_id: int, filters: ItemFilter) -> list[sa.ColumnElement[bool]]:
    conditions: list[sa.ColumnElement[bool]] = [_items.c.study_id == study_id]
    if filters.text:
        conditions.append(_holds(store, filters.text))
    if filters.rater is not None:
        conditions.append(
            sa.exists().where(
                _assignments.c.rater_id == filters.rater,
                _assignments.c.item_id == _items.c.id,
                _assignments.c.state.in_(("done", "skipped")),
            )
        )
    if filters.flag:
        named = (
            _judgements.c.flags != "[]"
            if filters.flag == "any"
            else _like(_judgements.c.flags, json.dumps(filters.flag))
        )
        conditions.append(sa.exists().where(_judgements.c.item_id == _items.c.id, _judgements.c.latest == 1, named))
    if filters.corrected:
        revised = sa.or_(_judgements.c.correction.is_not(None), _judgements.c.spans.is_not(None))
        conditions.append(sa.exists().where(_judgements.c.item_id == _items.c.id, _judgements.c.latest == 1, revised))
    if filters.skipped:
        conditions.append(_items.c.skipped > 0)
    if filters.model is not None:
        conditions.append(_like(_items.c.samplers, json.dumps(filters.model, ensure_ascii=False)))
    if filters.pool:
        conditions.append(_items.c.pool == filters.pool)
    if filters.round is not None:
        conditions.append(_items.c.round == filters.round)
    if filters.state:
        conditions += _of_state(filters.state)
    return conditions


def _of_state(state: str) -> list[sa.ColumnElement[bool]]:
    states: dict[str, list[sa.ColumnElement[bool]]] = {
        "open": [_items.c.excluded.is_(None), _items.c.answered < _items.c.target],
        "done": [_items.c.excluded.is_(None), _items.c.answered >= _items.c.target],
        "disagreed": [_items.c.a_votes > 0, _items.c.b_votes > 0],
        "excluded": [_items.c.excluded.is_not(None)],
    }
    return states.get(state, [])


def _holds(store: Store, text: str) -> sa.ColumnElement[bool]:
    """Case-insensitive condition that the prompt, a response or the key contains the text."""
    if store.sqlite:
        turn = sa.func.json_each(_prompts.c.messages).table_valued("value", name="turn")
        content = sa.func.json_extract(turn.c.value, "$.content")
    else:
        turn = sa.func.json_array_elements(sa.cast(_prompts.c.messages, sa.JSON)).table_valued("value", name="turn")
        content = sa.func.json_extract_path_text(turn.c.value, "content")
    answers = sa.exists().where(
        _links.c.item_id == _items.c.id, _responses.c.id == _links.c.response_id, _like(_responses.c.text, text)
    )
    prompts = sa.exists(sa.select(sa.literal(1)).select_from(turn).where(_like(content, text)))
    return sa.or_(_like(_items.c.key, text), prompts, answers)


def _like(column: sa.ColumnElement, text: str) -> sa.ColumnElement[bool]:
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return column.ilike(f"%{escaped}%", escape="\\")
