"""Insertion of prompts, responses, items and images that are not in the study yet; the images that its texts name."""

import base64
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.data.images import ImageFile
from tutelage.data.records import (
    CompletionRecord,
    Messages,
    Prompt,
    Step,
    message_from,
    message_row,
    step_from,
    step_value,
    tools_of,
)
from tutelage.data.rubrics import Rubric, read_rubric, rubric_of, rubric_rows
from tutelage.people.store import schema
from tutelage.people.store.engine import Connection, Store, chunks, insert_row
from tutelage.people.store.studies import Study, room_for
from tutelage.people.validation import refuse_unstorable

SECOND_SHARE = 0.1
"""Share of items with a second rater regardless of the overlap, so that reliability can be estimated."""
UNLIMITED = 1_000_000_000
"""Target of a gold item: it may be assigned to every rater."""


@dataclass(frozen=True)
class StoredResponse:
    """A response in the study."""

    id: int
    prompt_id: int
    sampler: str
    length: int
    steps: int


@dataclass(frozen=True)
class NewItem:
    """An item to insert: the columns of its row, and its responses in canonical order."""

    row: Mapping[str, object]
    responses: tuple[StoredResponse, ...]

    @property
    def parts(self) -> tuple[int, ...]:
        return tuple(response.id for response in self.responses)


def messages_to_text(messages: Messages) -> str:
    """Serialise a conversation as JSON, the tools that it offers with its first message."""
    rows = [message_row(message) for message in messages]
    if tools_of(messages):
        rows[0]["tools"] = list(tools_of(messages))
    return json.dumps(rows, ensure_ascii=False)


def messages_from_text(text: str) -> Messages:
    """Inverse of `messages_to_text`."""
    return tuple(replace(message_from(row), tools=tuple(row.get("tools", ()))) for row in json.loads(text))


def steps_to_text(steps: Sequence[Step]) -> str | None:
    """Serialise the steps of a response for its column `steps`."""
    return json.dumps(list(map(step_value, steps)), ensure_ascii=False) if steps else None


def steps_from_text(text: str | None) -> tuple[Step, ...]:
    """The steps of a response from its column `steps`."""
    return () if text is None else tuple(map(step_from, json.loads(text)))


def count_steps(text: str | None) -> int:
    """The number of steps in a column `steps`."""
    return 0 if text is None else len(json.loads(text))


def rubric_to_text(prompt: Prompt) -> str:
    """Serialise the rubric in a prompt's own columns as JSON. Raises TutelageError if it is missing or unreadable."""
    text = json.dumps(rubric_rows(rubric_of(prompt.data, f"the prompt '{prompt.id}'")), ensure_ascii=False)
    refuse_unstorable(text, f"The rubric of the prompt '{prompt.id}'")
    return text


def rubric_from_text(text: str | None) -> Rubric:
    """Inverse of `rubric_to_text`; empty without a text."""
    return () if text is None else read_rubric(text)


def add_prompts(connection: Connection, study_id: int, prompts: Sequence[Prompt], *, rubrics: bool = False) -> int:
    """Insert the new prompts, with their `rubrics` or without; returns their number. Raises TutelageError if a key
    belongs to a different prompt, or a rubric is missing or unreadable."""
    rows: dict[str, Mapping[str, object]] = {
        p.id: {
            "messages": messages_to_text(p.messages),
            "split": p.split,
            "rubric": rubric_to_text(p) if rubrics else None,
        }
        for p in prompts
    }
    return len(_insert_new(connection, schema.prompt, study_id, rows, ("messages", "split", "rubric")))


def add_responses(connection: Connection, study_id: int, completions: Sequence[CompletionRecord]) -> int:
    """Insert the new responses; returns their number. Raises TutelageError if a key belongs to a different response, or
    a prompt is not in the study."""
    prompts = prompts_by_key(connection, study_id, [c.prompt_id for c in completions])
    rows: dict[str, Mapping[str, object]] = {}
    for c in completions:
        if c.prompt_id not in prompts:
            raise TutelageError(f"Response '{c.id}' answers the prompt '{c.prompt_id}', which is not in the study.")
        row = {"prompt_id": prompts[c.prompt_id], "text": c.text, "sampler": c.sampler, "sampling": c.sampling}
        rows[c.id] = row | {"finished": int(c.finished), "steps": steps_to_text(c.steps)}
    return len(_insert_new(connection, schema.response, study_id, rows, ("prompt_id", "text", "sampler", "steps")))


def prompts_by_key(connection: Connection, study_id: int, keys: Sequence[str]) -> dict[str, int]:
    """Ids of the prompts with these keys; keys that are not in the study are omitted."""
    return {row.key: row.id for row in _rows_by_key(connection, schema.prompt, study_id, keys, ("id",))}


def responses_by_key(connection: Connection, study_id: int, keys: Sequence[str]) -> dict[str, StoredResponse]:
    """Responses with these keys; keys that are not in the study are omitted."""
    columns = ("id", "prompt_id", "sampler", "text", "steps")
    rows = _rows_by_key(connection, schema.response, study_id, keys, columns)
    return {row.key: stored_response(row) for row in rows}


def stored_response(row: sa.Row) -> StoredResponse:
    """Convert a row with the columns of a response."""
    return StoredResponse(row.id, row.prompt_id, row.sampler, len(row.text), count_steps(row.steps))


def add_item_rows(connection: Connection, study_id: int, items: Mapping[str, NewItem], overlap: int, now: int) -> int:
    """Insert the new items; returns their number. Raises TutelageError if a key belongs to a different item."""
    rows = {key: _item_row(study_id, key, item, overlap, now) for key, item in items.items()}
    new = _insert_new(connection, schema.item, study_id, rows, ("prompt_id", "pool", "gold", "round"))
    ids = {row.key: row.id for row in _rows_by_key(connection, schema.item, study_id, list(items), ("id",))}
    _refuse_other_responses(connection, {ids[key]: items[key].parts for key in items if key not in new}, ids)
    links = [link for key in items if key in new for link in _links(ids[key], items[key])]
    if links:
        connection.execute(schema.item_response.insert(), links)
        _promise_seconds(connection, study_id)
    return len(new)


def add_single_item(
    connection: Connection,
    study: Study,
    key: str,
    responses: tuple[StoredResponse, ...],
    *,
    origin: str,
    round: int,
    second: float,
    now: int,
) -> int:
    """Insert an item of a live conversation or of feedback from use, and return its id. It gets a second rater if the
    random number `second` is below `SECOND_SHARE`."""
    row: dict[str, object] = {
        "prompt_id": responses[0].prompt_id, "origin": origin, "round": round, "pool": "production", "gold": None,
        "explanation": "", "overlap": None, "priority": 0.0,
    }  # fmt: skip
    item, again = NewItem(row, responses), second < SECOND_SHARE
    overlap = max(study.plan.overlap, 2) if again else study.plan.overlap
    whole = _item_row(study.id, key, item, overlap, now) | {"study_id": study.id, "key": key, "second": int(again)}
    item_id = insert_row(connection, schema.item, whole)
    connection.execute(schema.item_response.insert(), _links(item_id, item))
    return item_id


def _links(item_id: int, item: NewItem) -> list[dict[str, int]]:
    """The rows that link an item to its responses."""
    return [
        {"item_id": item_id, "position": position, "response_id": response_id}
        for position, response_id in enumerate(item.parts)
    ]


def _rows_by_key(
    connection: Connection, table: sa.Table, study_id: int, keys: Sequence[str], columns: Sequence[str]
) -> list[sa.Row]:
    query = sa.select(table.c.key, *(table.c[name] for name in columns)).where(table.c.study_id == study_id)
    distinct = list(dict.fromkeys(keys))
    return [row for piece in chunks(distinct) for row in connection.execute(query.where(table.c.key.in_(piece)))]


def _insert_new(
    connection: Connection,
    table: sa.Table,
    study_id: int,
    rows: Mapping[str, Mapping[str, object]],
    content: Sequence[str],
) -> set[str]:
    """Insert the rows with new keys and return these keys; existing rows must have the same `content`."""
    stored = {row.key: row for row in _rows_by_key(connection, table, study_id, list(rows), content)}
    for key, row in stored.items():
        for name in content:
            if getattr(row, name) != rows[key][name]:
                what = name.removesuffix("_id")
                raise TutelageError(
                    f"The key '{key}' is taken: the {table.name} of that name has another {what}; "
                    "give the new one its own."
                )
    new = [{"study_id": study_id, "key": key, **row} for key, row in rows.items() if key not in stored]
    if new:
        connection.execute(table.insert(), new)
    return rows.keys() - stored.keys()


def _refuse_other_responses(
    connection: Connection, expected: Mapping[int, tuple[int, ...]], ids: Mapping[str, int]
) -> None:
    links, numbers = schema.item_response, list(expected)
    stored: dict[int, list[int]] = {number: [] for number in numbers}
    query = sa.select(links.c.item_id, links.c.response_id).order_by(links.c.item_id, links.c.position)
    for some in chunks(numbers):
        for row in connection.execute(query.where(links.c.item_id.in_(some))):
            stored[row.item_id].append(row.response_id)
    for key, number in ids.items():
        if number in expected and tuple(stored[number]) != expected[number]:
            raise TutelageError(
                f"The key '{key}' is taken: the item of that name has other responses; give the new one its own."
            )


def _item_row(study_id: int, key: str, item: NewItem, overlap: int, now: int) -> dict[str, object]:
    target = UNLIMITED if item.row["pool"] != "production" else item.row["overlap"] or overlap
    return {
        **item.row,
        "lengths": json.dumps([response.length for response in item.responses]),
        "samplers": json.dumps([response.sampler for response in item.responses], ensure_ascii=False),
        "second": 0,
        "target": target,
        "shuffle": int.from_bytes(hashlib.sha256(f"{study_id}|{key}".encode()).digest()[:7], "big"),
        "created": now,
        "room": target,
        "touched": now,
    }


def _promise_seconds(connection: Connection, study_id: int) -> None:
    """Mark more items for a second rater until `SECOND_SHARE` of all are marked, in the order of their hashes."""
    items = schema.item
    mine = sa.and_(items.c.study_id == study_id, items.c.pool == "production")
    count = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(items.c.second), 0)).where(mine)
    total, marked = connection.execute(count).one()
    missing = math.ceil(SECOND_SHARE * total) - marked
    if missing <= 0:
        return
    query = sa.select(items.c.id).where(mine, items.c.second == 0, items.c.started == 0)
    chosen = list(connection.scalars(query.order_by(items.c.shuffle).limit(missing)))
    raised = sa.case((sa.and_(items.c.overlap.is_(None), items.c.target < 2), 2), else_=items.c.target)
    values = {"second": 1, "target": raised, "room": room_for(raised)}
    for some in chunks(chosen):
        connection.execute(items.update().where(items.c.id.in_(some)).values(**values))


_images = schema.image


def add_images(connection: Connection, study_id: int, files: Iterable[ImageFile]) -> int:
    """Insert the images that the study does not have yet; returns their number."""
    by_name = {file.name: file for file in files}
    stored: set[str] = set()
    for some in chunks(list(by_name)):
        query = sa.select(_images.c.name).where(_images.c.study_id == study_id, _images.c.name.in_(some))
        stored.update(connection.scalars(query))
    for name in by_name.keys() - stored:
        file = by_name[name]
        content = base64.b64encode(file.content).decode()
        row = {"study_id": study_id, "name": name, "content": content, "width": file.width, "height": file.height}
        connection.execute(_images.insert(), row)
    return len(by_name.keys() - stored)


def image_content(store: Store, study_id: int, name: str) -> bytes | None:
    """The content of an image; None if the study has no image of the name."""
    query = sa.select(_images.c.content).where(_images.c.study_id == study_id, _images.c.name == name)
    with store.read() as connection:
        content = connection.scalar(query)
    return None if content is None else base64.b64decode(content)


def image_sizes(store: Store, study_id: int, names: Sequence[str]) -> Mapping[str, tuple[int, int]]:
    """Width and height in pixels of those of the images that the study has, by name."""
    if not names:
        return {}
    query = sa.select(_images.c.name, _images.c.width, _images.c.height).where(_images.c.study_id == study_id)
    with store.read() as connection:
        return {
            row.name: (row.width, row.height)
            for some in chunks(list(dict.fromkeys(names)))
            for row in connection.execute(query.where(_images.c.name.in_(some)))
        }


def list_images(store: Store, study_id: int) -> Iterator[tuple[str, bytes]]:
    """Name and content of each image of the study, in the order of insertion."""
    with store.read() as connection:
        names = connection.scalars(
            sa.select(_images.c.name).where(_images.c.study_id == study_id).order_by(_images.c.id)
        ).all()
    for name in names:
        content = image_content(store, study_id, name)
        assert content is not None, "images are never deleted"
        yield name, content
