"""Votes and items as rows of numbers, for statistics over millions of them; only new rows are read."""

from collections.abc import Sequence

import sqlalchemy as sa

from tutelage.people.store import schema
from tutelage.people.store.engine import Store
from tutelage.people.store.raters import DECIDING

VERDICTS = ("a", "b", "tie", "both_bad", "skip")
POOLS = ("production", "gold", "training")
ANSWERS = ("a", "b", "tie")

_said, _given, _items = schema.judgement, schema.assignment, schema.item


def read_ballots(store: Store, study_id: int, after: int) -> Sequence[tuple[int, ...]]:
    """Judgements numbered above `after`, in order: id, assignment, item, rater, verdict (its place in `VERDICTS`, or
    their number where the answer is all in its content), strength, the canonical index of the response on the left,
    repeat, whether it is an adjudication, version, active milliseconds (-1 unknown), time (milliseconds since the
    epoch), flagged. Several revisions of an answer may be among them: the last one is in force."""
    left = sa.cast(sa.func.substr(_said.c.order, 2, 1), sa.Integer)
    query = (
        sa.select(
            _said.c.id,
            _said.c.assignment_id,
            _said.c.item_id,
            _said.c.rater_id,
            _code(_said.c.verdict, VERDICTS, len(VERDICTS)),
        )
        .add_columns(
            _said.c.strength, left, _said.c.repeat, sa.case((_given.c.chosen_by.in_(DECIDING), 1), else_=0)
        )
        .add_columns(_said.c.version_id, sa.func.coalesce(_said.c.active_ms, -1), _said.c.created)
        .add_columns(sa.case((_said.c.flags == "[]", 0), else_=1))
        .join(_given, _given.c.id == _said.c.assignment_id)
        .where(_said.c.study_id == study_id, _said.c.id > after)
        .order_by(_said.c.id)
    )
    with store.read() as connection:
        return [tuple(row) for row in connection.execute(query)]


def read_items(store: Store, study_id: int, after: int) -> Sequence[tuple[int, ...]]:
    """Items numbered above `after`: id, prompt, pool (its place in `POOLS`), known answer (its place in `ANSWERS`, -1
    for none), round."""
    gold = sa.case((_items.c.gold.is_(None), -1), else_=_code(_items.c.gold, ANSWERS))
    query = (
        sa.select(_items.c.id, _items.c.prompt_id, _code(_items.c.pool, POOLS), gold, _items.c.round)
        .where(_items.c.study_id == study_id, _items.c.id > after)
        .order_by(_items.c.id)
    )
    with store.read() as connection:
        return [tuple(row) for row in connection.execute(query)]


def item_keys(store: Store, study_id: int, ids: Sequence[int]) -> dict[int, str]:
    """The keys of some items, by number."""
    query = sa.select(_items.c.id, _items.c.key).where(_items.c.study_id == study_id, _items.c.id.in_(ids))
    with store.read() as connection:
        return {row.id: row.key for row in connection.execute(query)}


def excluded_numbers(store: Store, study_id: int) -> tuple[frozenset[int], frozenset[int]]:
    """The numbers of the items and of the raters that are excluded at present."""
    with store.read() as connection:
        found = []
        for table in (_items, schema.rater):
            query = sa.select(table.c.id).where(table.c.study_id == study_id, table.c.excluded.is_not(None))
            found.append(frozenset(connection.scalars(query)))
    return found[0], found[1]


def _code(column: sa.Column, words: Sequence[str], other: int = -1) -> sa.Case[int]:
    return sa.case({word: place for place, word in enumerate(words)}, value=column, else_=other)
