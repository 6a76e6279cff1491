"""Items as an owner looks for them: by what is asked, by whom, by what was said; in pages, in an order.

A search reads texts, which takes a look at every prompt and response of the study; everything else goes by counters.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from tutelage.people.store import schema
from tutelage.people.store.catalogue import Question, questions_of
from tutelage.people.store.engine import Store

_items, _prompts, _links, _responses = schema.item, schema.prompt, schema.item_response, schema.response
_said, _given = schema.judgement, schema.assignment

STATES = ("open", "done", "disagreed", "excluded")
ORDERS = ("disagreement", "added", "newest", "answered", "skipped")


@dataclass(frozen=True)
class ItemFilter:
    """What is asked of items; what is left empty is not asked.

    text: a part of the prompt, of a response or of the key. rater: the number of a rater who answered or skipped it.
    flag: a flag of an answer in force, or `any`. skipped: somebody could not judge it. model: the name of a model of
    its responses. pool: production, gold or training. state: open (answers are wanted still), done, disagreed (votes
    for both sides), excluded. corrected: an answer in force has a better response or marked words.
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
    """The items of one page, and how many there are in all."""

    questions: tuple[Question, ...]
    total: int


def find_items(
    store: Store,
    study_id: int,
    wanted: ItemFilter,
    *,
    order: str = "added",
    among: Sequence[int] | None = None,
    limit: int = 25,
    offset: int = 0,
) -> Found:
    """A page of the items that the filter lets through, in one of `ORDERS`. With `among`, only the items of these
    numbers, in their order."""
    where = _conditions(store, study_id, wanted)
    if among is not None:
        where.append(_items.c.id.in_(among))
    counted = sa.select(sa.func.count()).select_from(_items.join(_prompts)).where(*where)
    chosen = sa.select(_items.c.id).join(_prompts).where(*where).order_by(*_order(order, among), _items.c.id)
    with store.read() as connection:
        total = connection.scalar(counted) or 0
        ids = list(connection.scalars(chosen.limit(limit).offset(offset)))
        return Found(questions_of(connection, study_id, ids), total)


def items_after(
    store: Store, study_id: int, wanted: ItemFilter, *, after: int = 0, limit: int = 100
) -> tuple[tuple[int, Question], ...]:
    """The items that the filter lets through and whose numbers are above `after`, with their numbers, in the order they
    were added."""
    where = [*_conditions(store, study_id, wanted), _items.c.id > after]
    query = sa.select(_items.c.id).join(_prompts).where(*where).order_by(_items.c.id).limit(limit)
    with store.read() as connection:
        ids = list(connection.scalars(query))
        return tuple(zip(ids, questions_of(connection, study_id, ids), strict=True))


def find_keys(store: Store, study_id: int, wanted: ItemFilter) -> tuple[str, ...]:
    """The keys of all items that the filter lets through, in the order they were added."""
    query = sa.select(_items.c.key).join(_prompts).where(*_conditions(store, study_id, wanted))
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


def _conditions(store: Store, study_id: int, wanted: ItemFilter) -> list[sa.ColumnElement[bool]]:
    found: list[sa.ColumnElement[bool]] = [_items.c.study_id == study_id]
    if wanted.text:
        found.append(_holds(store, wanted.text))
    if wanted.rater is not None:
        found.append(
            sa.exists().where(
                _given.c.rater_id == wanted.rater,
                _given.c.item_id == _items.c.id,
                _given.c.state.in_(("done", "skipped")),
            )
        )
    if wanted.flag:
        named = (
            _said.c.flags != "[]" if wanted.flag == "any" else _like(_said.c.flags, json.dumps(wanted.flag))
        )
        found.append(sa.exists().where(_said.c.item_id == _items.c.id, _said.c.latest == 1, named))
    if wanted.corrected:
        said = sa.or_(_said.c.correction.is_not(None), _said.c.spans.is_not(None))
        found.append(sa.exists().where(_said.c.item_id == _items.c.id, _said.c.latest == 1, said))
    if wanted.skipped:
        found.append(_items.c.skipped > 0)
    if wanted.model is not None:
        found.append(_like(_items.c.samplers, json.dumps(wanted.model, ensure_ascii=False)))
    if wanted.pool:
        found.append(_items.c.pool == wanted.pool)
    if wanted.round is not None:
        found.append(_items.c.round == wanted.round)
    if wanted.state:
        found += _of_state(wanted.state)
    return found


def _of_state(state: str) -> list[sa.ColumnElement[bool]]:
    states: dict[str, list[sa.ColumnElement[bool]]] = {
        "open": [_items.c.excluded.is_(None), _items.c.answered < _items.c.target],
        "done": [_items.c.excluded.is_(None), _items.c.answered >= _items.c.target],
        "disagreed": [_items.c.a_votes > 0, _items.c.b_votes > 0],
        "excluded": [_items.c.excluded.is_not(None)],
    }
    return states.get(state, [])


def _holds(store: Store, text: str) -> sa.ColumnElement[bool]:
    """The text is a part of the prompt, of a response or of the key, whatever the capitals."""
    if store.sqlite:
        turn = sa.func.json_each(_prompts.c.messages).table_valued("value", name="turn")
        content = sa.func.json_extract(turn.c.value, "$.content")
    else:
        turn = sa.func.json_array_elements(sa.cast(_prompts.c.messages, sa.JSON)).table_valued(
            "value", name="turn"
        )
        content = sa.func.json_extract_path_text(turn.c.value, "content")
    answers = sa.exists().where(
        _links.c.item_id == _items.c.id,
        _responses.c.id == _links.c.response_id,
        _like(_responses.c.text, text),
    )
    asked = sa.exists(sa.select(sa.literal(1)).select_from(turn).where(_like(content, text)))
    return sa.or_(_like(_items.c.key, text), asked, answers)


def _like(column: sa.ColumnElement, text: str) -> sa.ColumnElement[bool]:
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return column.ilike(f"%{escaped}%", escape="\\")
