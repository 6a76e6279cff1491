"""Counts of what raters may still be asked.

Those of one rater grow with the items of the study and with the rater's own answers, not with the answers of others,
and read no table but by an index.
"""

from collections.abc import Mapping
from dataclasses import dataclass

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
_taken = _given.alias("taken")
_NEW = ~sa.exists().where(
    _taken.c.item_id == _given.c.item_id,
    _taken.c.rater_id == _rater,
    _taken.c.repeat == 0,
    _taken.c.state.in_(("leased", "done", "skipped")),
)
_MAY_COME_BACK = (
    sa.select(_given.c.id)
    .select_from(_with_items)
    .where(
        schema.LEASED, _given.c.study_id == _study, _given.c.rater_id != _rater, _given.c.counted == 1, _NEW
    )
    .where(_given.c.repeat == 0, _items.c.pool == "production", _items.c.excluded.is_(None))
    .limit(1)
)
_PRACTISED = _number(_with_items, _own, _given.c.state.in_(("done", "skipped")), _open("training"))
_PRACTICE_LEFT = sa.select(_number(_items, _open("training")) - _PRACTISED)


def count_left(connection: Connection, study_id: int, rater_id: int) -> int:
    """The number of items that the rater holds or may still be asked: those with an open place that the rater has
    neither answered nor skipped. Practice and questions with a known answer are not among them."""
    return connection.scalar(_LEFT, {"study": study_id, "rater": rater_id}) or 0


def may_come_back(connection: Connection, study_id: int, rater_id: int) -> bool:
    """Whether other raters hold an item that the rater may be asked if they give it back."""
    return connection.scalar(_MAY_COME_BACK, {"study": study_id, "rater": rater_id}) is not None


@dataclass(frozen=True)
class Room:
    """The answers that the items of a study still take from all raters together, those of questions on screens
    included, and `items`, the number of items with an open place. `known` has by rater the number of those that the
    rater was asked, but for what is on the rater's screen."""

    answers: int
    items: int
    known: Mapping[int, int]

    def left_of(self, rater_id: int) -> int:
        """`count_left` of the rater."""
        return max(0, self.items - self.known.get(rater_id, 0))


def room_of(connection: Connection, study_id: int) -> Room:
    """The room of a study for answers, in two passes over its open items."""
    room = sa.select(sa.func.count(), sa.func.sum(_items.c.room)).where(_open("production"))
    items, places = connection.execute(room, {"study": study_id}).one()
    leased = sa.case((schema.LEASED, 1), else_=0)
    closed = sa.and_(_open("production"), _given.c.state.in_(("leased", "done", "skipped")))
    known = sa.func.sum(sa.case((closed, 1), else_=0)) - sa.func.sum(leased)
    taken = sa.func.sum(leased * _given.c.counted)
    by_rater = (
        sa.select(_given.c.rater_id, known, taken)
        .select_from(_with_items)
        .where(_items.c.study_id == _study, _items.c.pool == "production", _given.c.repeat == 0)
        .where(sa.or_(schema.OPEN, schema.LEASED))
        .group_by(_given.c.rater_id)
    )
    rows = connection.execute(by_rater, {"study": study_id}).all()
    answers = int(places or 0) + sum(int(row[2]) for row in rows)
    return Room(answers, items, {row[0]: int(row[1]) for row in rows})


def count_practice_left(connection: Connection, study_id: int, rater_id: int) -> int:
    """The number of practice questions that the rater has not answered."""
    return connection.scalar(_PRACTICE_LEFT, {"study": study_id, "rater": rater_id}) or 0
