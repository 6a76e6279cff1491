"""Version 3: the owner's inbox, links that belong to a rater, and names that are compared without capitals.

The inbox begins with what people flagged, skipped and wrote so far, and with the practice they failed. Votes that were
imported are left out of it.
"""

import unicodedata

import sqlalchemy as sa
from alembic import op

revision = "v3"
down_revision = "v2"

_Key = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_KINDS = ("flag", "skip", "practice", "note", "reason", "disagreement")


def upgrade() -> None:
    op.add_column("rater", sa.Column("folded", sa.Text, nullable=False, server_default=""))
    _fold_names()
    op.create_index("rater_of_name", "rater", ["study_id", "folded"])
    key = _Key.compile(op.get_bind().dialect)
    op.execute(f"ALTER TABLE invite ADD COLUMN rater_id {key} REFERENCES rater (id)")
    op.create_index("invite_of_rater", "invite", ["rater_id"])
    _make_inbox()
    _fill_inbox()


def _fold_names() -> None:
    rater = sa.table("rater", sa.column("id"), sa.column("name"), sa.column("folded"))
    connection = op.get_bind()
    change = rater.update().where(rater.c.id == sa.bindparam("rater"))
    for row in connection.execute(sa.select(rater.c.id, rater.c.name)).all():
        folded = unicodedata.normalize("NFKC", " ".join(row.name.split())).casefold()
        connection.execute(change, {"rater": row.id, "folded": folded})


def _make_inbox() -> None:
    listed = ", ".join(f"'{kind}'" for kind in _KINDS)
    op.create_table(
        "notice",
        sa.Column("id", _Key, primary_key=True, autoincrement=True),
        sa.Column("study_id", _Key, sa.ForeignKey("study.id"), nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("item_id", _Key, sa.ForeignKey("item.id")),
        sa.Column("rater_id", _Key, sa.ForeignKey("rater.id")),
        sa.Column("judgement_id", _Key, sa.ForeignKey("judgement.id")),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("closed", sa.BigInteger),
        sa.Column("closed_by", sa.Text),
        sa.CheckConstraint(f"kind IN ({listed})", name="known_kind"),
        sqlite_autoincrement=True,
    )
    waiting = sa.text("closed IS NULL")
    op.create_index(
        "notice_waiting", "notice", ["study_id", "kind", "id"], sqlite_where=waiting, postgresql_where=waiting
    )
    op.create_index("notice_of_item", "notice", ["item_id"])
    op.create_index("notice_of_rater", "notice", ["rater_id"])


def _fill_inbox() -> None:
    op.execute(
        "INSERT INTO notice (study_id, kind, item_id, rater_id, judgement_id, text, created) "
        "SELECT j.study_id, "
        "CASE WHEN j.flags <> '[]' THEN 'flag' WHEN j.verdict = 'skip' THEN 'skip' ELSE 'reason' END, "
        "j.item_id, j.rater_id, j.id, '', j.created FROM judgement j "
        "JOIN rater r ON r.id = j.rater_id JOIN assignment a ON a.id = j.assignment_id "
        "WHERE j.latest = 1 AND r.kind = 'human' AND a.chosen_by NOT IN ('owner', 'import') "
        "AND (j.flags <> '[]' OR j.verdict = 'skip' OR j.reason <> '') ORDER BY j.id"
    )
    op.execute(
        "INSERT INTO notice (study_id, kind, rater_id, text, created) "
        "SELECT e.study_id, 'practice', r.id, e.detail, e.at FROM event e "
        "JOIN rater r ON r.study_id = e.study_id AND r.name = e.subject "
        "WHERE e.action = 'training_failed' AND r.kind = 'human' AND r.state = 'paused' ORDER BY e.id"
    )
