"""Version 11: practice is not counted among the answers of a rater, nor among those of a visit.

The quota of a visitor was counted from the answers before it, practice included, and goes down by as much. Any other
quota stays: it is the number of answers that an owner wants.
"""

import json
from collections import Counter
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "v11"
down_revision = "v10"

_COUNTED = (
    "answered", "skipped", "left_chosen", "right_chosen", "ties", "longer_chosen", "shorter_chosen", "flagged",
    "timed", "active_ms",
)  # fmt: skip
_PRACTICE = sa.text(
    'SELECT j.rater_id, j.verdict, j."order", j.flags, j.active_ms, i.lengths FROM judgement j '
    "JOIN item i ON i.id = j.item_id WHERE i.pool = 'training' AND j.latest = 1"
)


def upgrade() -> None:
    connection = op.get_bind()
    rater = sa.table("rater", sa.column("id"), sa.column("quota"), *map(sa.column, _COUNTED))
    visit = sa.table("visit", sa.column("id"), sa.column("rater_id"), sa.column("base"))
    practice: dict[int, Counter[str]] = {}
    for row in connection.execute(_PRACTICE):
        practice.setdefault(row.rater_id, Counter()).update(dict(_counts(row)))
    for rater_id, counts in practice.items():
        mine = rater.c.id == rater_id
        less = {name: rater.c[name] - counts[name] for name in _COUNTED}
        connection.execute(rater.update().where(mine).values(less))
        after = sa.and_(visit.c.rater_id == rater_id, visit.c.base >= counts["answered"])
        if connection.scalar(sa.select(visit.c.id).where(after).limit(1)) is not None:
            connection.execute(visit.update().where(after).values(base=visit.c.base - counts["answered"]))
            connection.execute(rater.update().where(mine).values(quota=rater.c.quota - counts["answered"]))


def _counts(row: sa.Row) -> Iterator[tuple[str, int]]:
    """What a judgement was counted as."""
    yield ("skipped" if row.verdict == "skip" else "answered"), 1
    yield "flagged", int(row.flags != "[]")
    if row.verdict == "tie":
        yield "ties", 1
    if row.verdict in ("a", "b"):
        chosen, lengths = "ab".index(row.verdict), json.loads(row.lengths)
        yield ("left_chosen" if json.loads(row.order)[0] == chosen else "right_chosen"), 1
        yield "longer_chosen", int(lengths[chosen] > lengths[1 - chosen])
        yield "shorter_chosen", int(lengths[chosen] < lengths[1 - chosen])
    if row.active_ms is not None:
        yield "timed", 1
        yield "active_ms", row.active_ms
