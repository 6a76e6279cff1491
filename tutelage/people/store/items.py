"""Prompts, responses and the items made of them."""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar

import sqlalchemy as sa

from tutelage.data.records import Comparison, Completion, Message, Messages, Prompt
from tutelage.errors import TutelageError
from tutelage.people.store import schema
from tutelage.people.store.engine import Store, lock, record_event
from tutelage.people.store.studies import load_study, room_for, touched_from

Pool: TypeAlias = Literal["production", "gold", "training"]
SECOND_SHARE = 0.1
"""Share of the items that get a second rater whatever the overlap: without it nothing is known about reliability."""
MOST_RESPONSES = 6
UNLIMITED = 1_000_000_000
"""The target of a question with a known answer: every rater may be asked."""

T = TypeVar("T")


@dataclass(frozen=True)
class Item:
    """A question: `responses` holds completion ids in canonical order (a, b, …).

    `overlap` overrides the study's; `gold` is the known answer (a, b or tie), `explanation` what a rater in training
    is told; `priority` is what the priority policy asks by (greatest first); `round` is the trip through people that
    the item belongs to.
    """

    key: str
    prompt: str
    responses: tuple[str, ...]
    origin: str = "random"
    round: int = 1
    pool: Pool = "production"
    gold: str | None = None
    explanation: str = ""
    overlap: int | None = None
    priority: float = 0.0

    @classmethod
    def of(cls, comparison: Comparison, round: int = 1) -> "Item":
        return cls(
            comparison.id, comparison.prompt_id, (comparison.a_id, comparison.b_id), comparison.origin, round
        )


@dataclass(frozen=True)
class Added:
    """What came of adding: how many were new, and how many were already there (same key, same content)."""

    prompts: int
    responses: int
    items: int
    known: int


def add_items(
    store: Store,
    study_id: int,
    prompts: Iterable[Prompt],
    completions: Iterable[Completion],
    items: Iterable[Item | Comparison],
    *,
    actor: str = "owner",
) -> Added:
    """Add questions, all or none. What is already there with the same content is left alone, so that a repeated import
    adds nothing.

    Raises:
        TutelageError: a key is taken by different content, an item names an unknown prompt or response, compares a
            response with itself or one of another prompt, or is a gold item without an answer.
    """
    now = store.now()
    wanted = [item if isinstance(item, Item) else Item.of(item) for item in items]
    with store.write() as connection:
        lock(connection, schema.study, study_id)
        study = load_study(connection, study_id)
        for item in wanted:
            _check_shape(item, study.kind)
        new_prompts = _add_prompts(connection, study_id, prompts)
        prompt_ids = _ids(connection, schema.prompt, study_id)
        new_responses = _add_responses(connection, study_id, completions, prompt_ids)
        new = _add_new_items(connection, study_id, wanted, prompt_ids, study.plan.overlap, now)
        added = Added(new_prompts, new_responses, new, len(wanted) - new)
        detail = {"prompts": new_prompts, "responses": new_responses, "items": new, "known": added.known}
        record_event(connection, study_id, now, actor, "items_added", study.name, **detail)
        return added


def messages_to_text(messages: Messages) -> str:
    """A conversation as JSON."""
    return json.dumps([{"role": m.role, "content": m.content} for m in messages], ensure_ascii=False)


def messages_from_text(text: str) -> Messages:
    """The inverse of `messages_to_text`."""
    return tuple(Message(turn["role"], turn["content"]) for turn in json.loads(text))


def _check_shape(item: Item, kind: str) -> None:
    count = len(item.responses)
    if kind == "pair" and count != 2:
        raise TutelageError(f"Item '{item.key}' has {count} responses; an item of a pair study has two.")
    if kind == "ranking" and not 2 <= count <= MOST_RESPONSES:
        raise TutelageError(
            f"Item '{item.key}' has {count} responses; a ranking takes 2 to {MOST_RESPONSES}."
        )
    if len(set(item.responses)) < count:
        raise TutelageError(f"Item '{item.key}' compares a response with itself.")
    if item.pool != "production" and item.gold is None:
        raise TutelageError(
            f"Item '{item.key}' is meant for {item.pool} but has no known answer; give its gold."
        )
    if item.gold is not None and item.gold not in ("a", "b", "tie"):
        raise TutelageError(f"Item '{item.key}' has the gold answer '{item.gold}'; it is a, b or tie.")
    if item.overlap is not None and not 1 <= item.overlap <= 100:
        raise TutelageError(f"Item '{item.key}' asks for {item.overlap} raters; it is between 1 and 100.")


def _ids(connection: sa.Connection, table: sa.Table, study_id: int) -> dict[str, int]:
    rows = connection.execute(sa.select(table.c.key, table.c.id).where(table.c.study_id == study_id))
    return {row.key: row.id for row in rows}


def _add_prompts(connection: sa.Connection, study_id: int, prompts: Iterable[Prompt]) -> int:
    rows = {
        p.id: {"study_id": study_id, "key": p.id, "messages": messages_to_text(p.messages), "split": p.split}
        for p in prompts
    }
    return _add_rows(connection, schema.prompt, study_id, rows, ("messages", "split"))


def _add_responses(
    connection: sa.Connection, study_id: int, completions: Iterable[Completion], prompts: Mapping[str, int]
) -> int:
    rows: dict[str, dict[str, object]] = {}
    for c in completions:
        if c.prompt_id not in prompts:
            raise TutelageError(
                f"Response '{c.id}' answers the prompt '{c.prompt_id}', which is not in the study."
            )
        row = {"key": c.id, "prompt_id": prompts[c.prompt_id], "text": c.text, "sampler": c.sampler}
        rows[c.id] = row | {"study_id": study_id, "sampling": c.sampling, "finished": int(c.finished)}
    return _add_rows(connection, schema.response, study_id, rows, ("prompt_id", "text", "sampler"))


def _add_rows(
    connection: sa.Connection,
    table: sa.Table,
    study_id: int,
    rows: Mapping[str, Mapping[str, object]],
    content: Sequence[str],
) -> int:
    """Insert the rows whose key is new; a known key must have the same `content`."""
    columns = [table.c.key, *(table.c[name] for name in content)]
    known = set()
    for keys in _chunks(list(rows)):
        query = sa.select(*columns).where(table.c.study_id == study_id, table.c.key.in_(keys))
        for row in connection.execute(query).mappings():
            known.add(row["key"])
            for name in content:
                if row[name] != rows[row["key"]][name]:
                    raise TutelageError(
                        f"The study already has a {table.name} '{row['key']}' with another {name}; give the new one "
                        "another key."
                    )
    new = [dict(row) for key, row in rows.items() if key not in known]
    if new:
        connection.execute(table.insert(), new)
    return len(new)


def _add_new_items(
    connection: sa.Connection,
    study_id: int,
    items: Sequence[Item],
    prompts: Mapping[str, int],
    overlap: int,
    now: int,
) -> int:
    responses = _responses_by_key(connection, study_id)
    parts: dict[str, tuple[int, ...]] = {}
    rows: dict[str, dict[str, object]] = {}
    for item in items:
        prompt_id = prompts.get(item.prompt)
        if prompt_id is None:
            raise TutelageError(
                f"Item '{item.key}' asks about the prompt '{item.prompt}', which is not in the study."
            )
        for key in item.responses:
            if responses.get(key, (0, 0, ""))[1] != prompt_id:
                raise TutelageError(
                    f"Item '{item.key}' names '{key}', which is no response to its prompt '{item.prompt}'."
                )
        parts[item.key] = tuple(responses[key][0] for key in item.responses)
        samplers = [responses[key][2] for key in item.responses]
        rows[item.key] = _item_row(item, study_id, prompt_id, samplers, overlap, now)
    new = _add_rows(connection, schema.item, study_id, rows, ("prompt_id", "pool", "gold", "round"))
    if new:
        _link_responses(connection, study_id, parts)
        _promise_seconds(connection, study_id)
    return new


def _responses_by_key(connection: sa.Connection, study_id: int) -> dict[str, tuple[int, int, str]]:
    """Key -> number, number of the prompt, sampler."""
    table = schema.response
    query = sa.select(table.c.key, table.c.id, table.c.prompt_id, table.c.sampler)
    rows = connection.execute(query.where(table.c.study_id == study_id))
    return {row.key: (row.id, row.prompt_id, row.sampler) for row in rows}


def _item_row(
    item: Item, study_id: int, prompt_id: int, samplers: Sequence[str], overlap: int, now: int
) -> dict[str, object]:
    target = UNLIMITED if item.pool != "production" else item.overlap or overlap
    return {
        "study_id": study_id,
        "key": item.key,
        "prompt_id": prompt_id,
        "places": len(item.responses),
        "samplers": json.dumps(samplers, ensure_ascii=False),
        "origin": item.origin,
        "round": item.round,
        "pool": item.pool,
        "gold": item.gold,
        "explanation": item.explanation,
        "overlap": item.overlap,
        "second": 0,
        "target": target,
        "priority": item.priority,
        "shuffle": int.from_bytes(hashlib.sha256(f"{study_id}|{item.key}".encode()).digest()[:7], "big"),
        "created": now,
        "room": target,
        "touched": now,
    }


def _link_responses(connection: sa.Connection, study_id: int, parts: Mapping[str, tuple[int, ...]]) -> None:
    items = _ids(connection, schema.item, study_id)
    linked = set(connection.scalars(sa.select(schema.item_response.c.item_id).distinct()))
    links = [
        {"item_id": items[key], "position": position, "response_id": response_id}
        for key, response_ids in parts.items()
        if items[key] not in linked
        for position, response_id in enumerate(response_ids)
    ]
    connection.execute(schema.item_response.insert(), links)


def _promise_seconds(connection: sa.Connection, study_id: int) -> None:
    """Mark more items for a second rater until `SECOND_SHARE` of all are marked; which ones is left to their hash."""
    items = schema.item
    mine = sa.and_(items.c.study_id == study_id, items.c.pool == "production")
    count = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(items.c.second), 0)).where(mine)
    total, marked = connection.execute(count).one()
    missing = math.ceil(SECOND_SHARE * total) - marked
    if missing <= 0:
        return
    query = sa.select(items.c.id).where(mine, items.c.second == 0, items.c.started == 0)
    chosen = list(connection.scalars(query.order_by(items.c.shuffle).limit(missing)))
    for ids in _chunks(chosen):
        raised = sa.case((sa.and_(items.c.overlap.is_(None), items.c.target < 2), 2), else_=items.c.target)
        values = {"second": 1, "target": raised, "room": room_for(raised)}
        connection.execute(items.update().where(items.c.id.in_(ids)).values(**values))


def set_overlap(
    store: Store, study_id: int, overlap: int, keys: Sequence[str], *, actor: str = "owner"
) -> None:
    """Ask for `overlap` raters on these items, whatever the study's plan says."""
    if not 1 <= overlap <= 100:
        raise TutelageError(f"overlap is {overlap}; each item needs between 1 and 100 raters.")
    items, now = schema.item, store.now()
    with store.write() as connection:
        for chunk in _chunks(keys):
            chosen = sa.and_(items.c.study_id == study_id, items.c.key.in_(chunk))
            room = room_for(sa.literal(overlap))
            values = {"overlap": overlap, "target": overlap, "room": room, "touched": touched_from(now)}
            connection.execute(items.update().where(chosen).values(**values))
        record_event(connection, study_id, now, actor, "overlap_set", f"{len(keys)} items", overlap=overlap)


def _chunks(keys: Sequence[T], size: int = 500) -> Iterator[Sequence[T]]:
    for start in range(0, len(keys), size):
        yield keys[start : start + size]
