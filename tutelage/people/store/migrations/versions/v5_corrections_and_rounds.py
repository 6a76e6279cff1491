"""Version 5: better responses that raters write, words that they mark as wrong, and items found round by round."""

import sqlalchemy as sa
from alembic import op

revision = "v5"
down_revision = "v4"

_FRESH = sa.text("started = 0")
_STARTED = sa.text("started = 1 AND room > 0")
_OPEN = sa.text("room > 0")
_BY_ROUND = {
    "item_started": (_STARTED, ["room", "touched"]),
    "item_fresh": (_FRESH, ["shuffle"]),
    "item_fresh_priority": (_FRESH, ["priority", "shuffle"]),
}


def upgrade() -> None:
    op.add_column("study_version", sa.Column("corrections", sa.Integer, nullable=False, server_default="0"))
    op.add_column("study_version", sa.Column("spans", sa.Text, nullable=False, server_default="[]"))
    op.add_column("judgement", sa.Column("correction", sa.Text))
    op.add_column("judgement", sa.Column("spans", sa.Text))
    for name, (where, columns) in _BY_ROUND.items():
        op.drop_index(name, "item")
        _make_index(name, where, columns)
    _make_index("item_open_round", _OPEN, [])


def _make_index(name: str, where: sa.TextClause, columns: list[str]) -> None:
    named = ["study_id", "pool", "round", *columns]
    op.create_index(name, "item", named, sqlite_where=where, postgresql_where=where)
