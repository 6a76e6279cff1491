"""Items: the questions of a study, their counters, and the lock on an item while these change.

Counters are derived from assignments and latest answers and updated in the same transaction, so that no query ever
counts over the whole study.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import sqlalchemy as sa

from tutelage.base import nouns
from tutelage.base.errors import TutelageError
from tutelage.data.images import ImageFile
from tutelage.data.records import Comparison, CompletionRecord, Messages, Prompt
from tutelage.people.kinds.kind import MOST_STEPS, Kind
from tutelage.people.languages import counted
from tutelage.people.store import additions, schema
from tutelage.people.store.additions import add_images
from tutelage.people.store.engine import Connection, Store, chunks, lock, record_event, several
from tutelage.people.store.studies import Study, room_for, study_of, touched_from
from tutelage.people.validation import FieldError, refuse_unstorable

Pool: TypeAlias = Literal["production", "gold", "training"]
MOST_RATERS = 100


@dataclass(frozen=True)
class Item:
    """A question: `responses` holds completion ids in canonical order (a, b, …).

    `overlap` overrides the study's; `gold` is the known answer (a, b or tie; the number of the first wrong step, or 0,
    in a study of steps), `explanation` is shown to raters after a
    practice question; `priority` orders items under the priority policy (highest first); `round` is the annotation
    round of the item.
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
        return cls(comparison.id, comparison.prompt_id, (comparison.a_id, comparison.b_id), comparison.origin, round)


@dataclass(frozen=True)
class Additions:
    """Result of `add_items`: numbers of new prompts, responses and items, and of items `known` already."""

    prompts: int
    responses: int
    items: int
    known: int


def add_items(
    store: Store,
    study_id: int,
    prompts: Iterable[Prompt],
    completions: Iterable[CompletionRecord],
    items: Iterable[Item | Comparison],
    *,
    images: Iterable[ImageFile] = (),
    actor: str = "owner",
) -> Additions:
    """Add items, all or none, and the images in their texts. Existing rows with the same content are left unchanged, so
    that a repeated import adds nothing; existing prompts and responses may be omitted. Raises TutelageError if a key
    belongs to different content, an item refers to an unknown prompt or response, compares a response with itself or
    one of another prompt, or is a gold item without an answer."""
    with store.write() as connection:
        return insert_items(connection, study_id, prompts, completions, items, store.now(), actor, images=images)


def insert_items(
    connection: Connection,
    study_id: int,
    prompts: Iterable[Prompt],
    completions: Iterable[CompletionRecord],
    items: Iterable[Item | Comparison],
    now: int,
    actor: str,
    *,
    images: Iterable[ImageFile] = (),
) -> Additions:
    """`add_items` within a transaction."""
    questions = [item if isinstance(item, Item) else Item.of(item) for item in items]
    prompts, completions = list(prompts), list(completions)
    _refuse_unstorable(prompts, completions, questions)
    lock(connection, schema.study, study_id)
    study = study_of(connection, study_id)
    for item in questions:
        _check_shape(item, study.kind)
    new_prompts = additions.add_prompts(connection, study_id, prompts, rubrics=study.kind.traits.rubrics)
    new_images = add_images(connection, study_id, images)
    new_responses = additions.add_responses(connection, study_id, completions)
    new = _add(connection, study, questions, now)
    added = Additions(new_prompts, new_responses, new, len(questions) - new)
    detail = {"prompts": new_prompts, "responses": new_responses, "items": new, "known": added.known}
    if new_images:
        detail["images"] = new_images
    record_event(connection, study_id, now, actor, "items_added", study.name, **detail)
    return added


def set_overlap(store: Store, study_id: int, overlap: int, keys: Sequence[str], *, actor: str = "owner") -> None:
    """Set the number of raters of these items, overriding the plan. Raises TutelageError for unknown items."""
    if not 1 <= overlap <= MOST_RATERS:
        raise TutelageError(f"overlap is {overlap}; each item needs between 1 and {MOST_RATERS} raters.")
    items, now = schema.item, store.now()
    values = {
        "overlap": overlap,
        "target": overlap,
        "room": room_for(sa.literal(overlap)),
        "touched": touched_from(now),
    }
    with store.write() as connection:
        for chunk in chunks(keys):
            mine = sa.and_(items.c.study_id == study_id, items.c.key.in_(chunk), items.c.pool == "production")
            changed = connection.execute(items.update().where(mine).values(**values)).rowcount
            if changed != len(set(chunk)):
                raise FieldError(
                    "items",
                    counted(
                        "One of the items is practice, a known answer, or not in this study.",
                        "%(count)s of the items are practice, known answers, or not in this study.",
                        count=len(set(chunk)) - changed,
                    ),
                )
        record_event(connection, study_id, now, actor, "overlap_set", several(len(keys), "items"), overlap=overlap)


def set_priorities(
    store: Store, study_id: int, priorities: Mapping[str, float], *, why: str, actor: str = "owner"
) -> None:
    """Set the priority of items for the policy `priority`. Raises TutelageError for unknown items."""
    items = schema.item
    change = items.update().where(items.c.study_id == study_id, items.c.key == sa.bindparam("item_key"))
    with store.write() as connection:
        for key, priority in priorities.items():
            values = {"item_key": key, "priority": float(priority)}
            if not connection.execute(change, values).rowcount:
                raise TutelageError(f"There is no item '{key}' in this study.")
        subject = several(len(priorities), "items")
        record_event(connection, study_id, store.now(), actor, "priorities_set", subject, why=why)


def _refuse_unstorable(
    prompts: Sequence[Prompt], completions: Sequence[CompletionRecord], items: Sequence[Item]
) -> None:
    for prompt in prompts:
        for text in (prompt.id, *_texts(prompt.messages)):
            refuse_unstorable(text, f"Prompt {prompt.id!r}")
    for completion in completions:
        steps = [step for each in completion.steps for step in ((each,) if isinstance(each, str) else _texts(each))]
        for text in (completion.id, completion.text, completion.sampler, completion.sampling, *steps):
            refuse_unstorable(text, f"Response {completion.id!r}")
    for item in items:
        for text in (item.key, item.origin, item.explanation):
            refuse_unstorable(text, f"Item {item.key!r}")


def _texts(messages: Messages) -> Iterator[str]:
    for message in messages:
        yield from (message.content, message.thinking, message.name, message.call_id, *message.tools)
        yield from (part for call in message.calls for part in (call.name, call.arguments, call.id))


def _check_shape(item: Item, kind: Kind) -> None:
    count, traits = len(item.responses), kind.traits
    if count not in traits.sizes:
        least, most = traits.sizes[0], traits.sizes[-1]
        raise TutelageError(
            f"Item '{item.key}' has {nouns.counted(count, 'response')}; in a study that {traits.does} it has "
            f"{least if least == most else f'{least} to {most}'}."
        )
    if len(set(item.responses)) < count:
        raise TutelageError(f"Item '{item.key}' compares a response with itself.")
    if count not in traits.golds and (item.gold is not None or item.pool != "production"):
        raise TutelageError(f"Item '{item.key}' has a known answer; only pairs can have one.")
    if item.pool != "production" and item.gold is None:
        raise TutelageError(f"Item '{item.key}' is in the pool {item.pool} but has no known answer; set gold.")
    if item.overlap is not None and not 1 <= item.overlap <= MOST_RATERS:
        raise TutelageError(
            f"Item '{item.key}' asks for {item.overlap} raters; overlap must be between 1 and {MOST_RATERS}."
        )


def _check_steps(item: Item, kind: Kind, steps: int) -> None:
    if kind.traits.steps and not 1 <= steps <= MOST_STEPS:
        raise TutelageError(
            f"Item '{item.key}' has a response with {nouns.counted(steps, 'step')}; in a study that "
            f"{kind.traits.does} it has 1 to {MOST_STEPS}."
        )
    if item.gold is not None:
        try:
            kind.gold_pairs(item.gold, steps)
        except TutelageError as error:
            raise TutelageError(f"Item '{item.key}': {error}.") from error


def _add(connection: Connection, study: Study, items: Sequence[Item], now: int) -> int:
    study_id = study.id
    prompts = additions.prompts_by_key(connection, study_id, [item.prompt for item in items])
    responses = additions.responses_by_key(connection, study_id, [key for item in items for key in item.responses])
    rows: dict[str, additions.NewItem] = {}
    for item in items:
        prompt_id = prompts.get(item.prompt)
        if prompt_id is None:
            raise TutelageError(f"Item '{item.key}' refers to the prompt '{item.prompt}', which is not in the study.")
        for key in item.responses:
            if key not in responses or responses[key].prompt_id != prompt_id:
                raise TutelageError(
                    f"Item '{item.key}' refers to '{key}', which is not a response to its prompt '{item.prompt}'."
                )
        item_responses = tuple(responses[key] for key in item.responses)
        _check_steps(item, study.kind, item_responses[0].steps)
        row = {
            "prompt_id": prompt_id, "origin": item.origin, "round": item.round, "pool": item.pool, "gold": item.gold,
            "explanation": item.explanation, "overlap": item.overlap, "priority": item.priority,
        }  # fmt: skip
        rows[item.key] = additions.NewItem(row, item_responses)
    return additions.add_item_rows(connection, study_id, rows, study.plan.overlap, now)


_items, _assignments, _judgements = schema.item, schema.assignment, schema.judgement


@dataclass(frozen=True)
class ItemCounts:
    """Number of an item's latest answers, and its votes for either side (`count_sides`)."""

    answered: int
    a_votes: int
    b_votes: int


@dataclass(frozen=True)
class LockedItem:
    """An item locked until the transaction ends. `room` is the number of raters still to assign, `lengths` the response
    lengths in characters, in canonical order."""

    id: int
    pool: str
    gold: str | None
    target: int
    lengths: tuple[int, ...]
    excluded: bool
    room: int
    started: bool


COLUMNS = (
    _items.c.id.label("item"),
    *(_items.c[name] for name in ("pool", "gold", "target", "lengths", "excluded", "room", "started")),
)
"""Columns to select in statements that find and lock an item, for `locked_item`."""

_ITEM = sa.select(*COLUMNS).where(_items.c.id == sa.bindparam("id")).with_for_update()
_COUNTS = (
    sa.select(_assignments.c.state, _assignments.c.counted, _judgements.c.verdict, sa.func.count().label("number"))
    .outerjoin(_judgements, sa.and_(_judgements.c.assignment_id == _assignments.c.id, _judgements.c.latest == 1))
    .where(_assignments.c.item_id == sa.bindparam("id"), _assignments.c.repeat == 0)
    .group_by(_assignments.c.state, _assignments.c.counted, _judgements.c.verdict)
)
_THIS = _items.update().where(_items.c.id == sa.bindparam("item"))
_TOUCH = _THIS.values(started=1, touched=sa.bindparam("now"))
_TAKE_PLACE = _TOUCH.values(leased=_items.c.leased + 1, room=sa.case((_items.c.room > 0, _items.c.room - 1), else_=0))


def lock_item(connection: Connection, item_id: int) -> LockedItem:
    """Lock the item until the transaction ends."""
    return locked_item(connection.execute(_ITEM, {"id": item_id}).one())


def locked_item(row: sa.Row) -> LockedItem:
    """Convert a locked row with `COLUMNS`."""
    lengths = tuple(json.loads(row.lengths))
    return LockedItem(
        row.item, row.pool, row.gold, row.target, lengths, row.excluded is not None, row.room, bool(row.started)
    )  # fmt: skip


def take_place(connection: Connection, item: LockedItem, now: int, *, counted: bool) -> None:
    """Count a reservation; one that does not count takes no room, but the item is no longer fresh."""
    connection.execute(_TAKE_PLACE if counted else _TOUCH, {"item": item.id, "now": now})


def recount(connection: Connection, item: LockedItem, now: int) -> ItemCounts:
    """Recompute the counters from the item's assignments. Repeats and assignments that do not count take no room."""
    rows = connection.execute(_COUNTS, {"id": item.id}).all()
    states, verdicts = Counter[str](), Counter[str]()
    for row in rows:
        if row.counted:
            states[row.state] += row.number
            verdicts[row.verdict or ""] += row.number
    a_votes, b_votes = count_sides(verdicts)
    values = {
        "answered": states["done"],
        "leased": states["leased"],
        "skipped": states["skipped"],
        "a_votes": a_votes,
        "b_votes": b_votes,
        "ties": verdicts["tie"],
        "both_bad": verdicts["both_bad"],
        "room": 0 if item.excluded else max(0, item.target - states["done"] - states["leased"]),
        "started": int(bool(rows)),
        "touched": now,
    }
    connection.execute(_THIS, values | {"item": item.id})
    return ItemCounts(states["done"], a_votes, b_votes)


def count_sides(verdicts: Mapping[str, int]) -> tuple[int, int]:
    """The votes for a and for b; of verdicts that are numbers of first wrong steps, those for the most frequent one and
    for all others."""
    numbers = sorted((count for verdict, count in verdicts.items() if verdict.isdecimal()), reverse=True)
    if numbers:
        return numbers[0], sum(numbers[1:])
    return verdicts.get("a", 0), verdicts.get("b", 0)
