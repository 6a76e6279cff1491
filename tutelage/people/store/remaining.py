"""Counts of what a rater may still be asked.

They grow with the items of the study and with the rater's own answers, not with the answers of others, and read no
table but by an index.
"""

import sqlalchemy as sa

from tutelage.people.store import schema
from tutelage.people.store.engine import Connection

_items, _given = schema.item, schema.assignment
_study: sa.BindParameter[int] = sa.bindparam("study")
_rater: sa.BindParameter[int] = sa.bindparam("rater")
_own = sa.and_(_given.c.rater_id == _rater, _given.c.repeat == 0)
_with_items = _given.join(_items, _items.c.id == _given.c.item_id)


def _open(pool: str) -> sa.ColumnElement[bool]:
    return sa.and_(_items.c.study_id == _study, _items.c.pool == pool, schema.OPEN)


def _number(source: sa.FromClause, *conditions: sa.ColumnElement[bool]) -> sa.ScalarSelect[int]:
    return sa.select(sa.func.count()).select_from(source).where(*conditions).scalar_subquery()


_HELD = _number(_with_items, _own, schema.LEASED, _items.c.pool == "production")
_KNOWN = _number(_with_items, _own, _given.c.state.in_(("leased", "done", "skipped")), _open("production"))
_LEFT = sa.select(_number(_items, _open("production")) - _KNOWN + _HELD)
_PRACTISED = _number(_with_items, _own, _given.c.state.in_(("done", "skipped")), _open("training"))
_PRACTICE_LEFT = sa.select(_number(_items, _open("training")) - _PRACTISED)


def count_left(connection: Connection, study_id: int, rater_id: int) -> int:
    """The number of items that the rater holds or may still be asked: those with an open place that the rater has
    neither answered nor skipped. Practice and questions with a known answer are not among them."""
    return connection.scalar(_LEFT, {"study": study_id, "rater": rater_id}) or 0


def count_practice_left(connection: Connection, study_id: int, rater_id: int) -> int:
    """The number of practice questions that the rater has not answered."""
    return connection.scalar(_PRACTICE_LEFT, {"study": study_id, "rater": rater_id}) or 0
