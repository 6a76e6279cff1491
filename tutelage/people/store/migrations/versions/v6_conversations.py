"""Version 6: live conversations with two models, and notices of models that do not answer."""

import sqlalchemy as sa
from alembic import op

revision = "v6"
down_revision = "v5"

_Key = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_KINDS = ("flag", "skip", "practice", "note", "reason", "disagreement")


def upgrade() -> None:
    _make_tables()
    with op.batch_alter_table("notice", copy_from=_notice()) as batch:
        batch.drop_constraint("known_kind", type_="check")
        batch.create_check_constraint("known_kind", _known(*_KINDS, "model"))


def _known(*kinds: str) -> str:
    return f"kind IN ({', '.join(repr(kind) for kind in kinds)})"


def _notice() -> sa.Table:
    """The table as it was: SQLite has to make it anew."""
    metadata = sa.MetaData()
    for other in ("study", "item", "rater", "judgement"):
        sa.Table(other, metadata, sa.Column("id", _Key, primary_key=True))
    found = sa.Table(
        "notice",
        metadata,
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
        sa.CheckConstraint(_known(*_KINDS), name="known_kind"),
        sqlite_autoincrement=True,
    )
    waiting = found.c.closed.is_(None)
    sa.Index(
        "notice_waiting",
        found.c.study_id,
        found.c.kind,
        found.c.id,
        sqlite_where=waiting,
        postgresql_where=waiting,
    )
    sa.Index("notice_of_item", found.c.item_id)
    sa.Index("notice_of_rater", found.c.rater_id)
    return found


def _make_tables() -> None:
    op.create_table(
        "live",
        sa.Column("id", _Key, primary_key=True, autoincrement=True),
        sa.Column("study_id", _Key, sa.ForeignKey("study.id"), nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("against", sa.Text, nullable=False),
        sa.Column("turns", sa.Integer, nullable=False),
        sa.Column("openings", sa.Text, nullable=False),
        sa.Column("sampling", sa.Text, nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("live_of_study", "live", ["study_id", "id"])
    op.create_table(
        "conversation",
        sa.Column("id", _Key, primary_key=True, autoincrement=True),
        sa.Column("study_id", _Key, sa.ForeignKey("study.id"), nullable=False),
        sa.Column("rater_id", _Key, sa.ForeignKey("rater.id"), nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("ended", sa.BigInteger),
        sqlite_autoincrement=True,
    )
    op.create_index("conversation_of_rater", "conversation", ["rater_id", "id"])
    op.create_table(
        "turn",
        sa.Column("id", _Key, primary_key=True, autoincrement=True),
        sa.Column("study_id", _Key, sa.ForeignKey("study.id"), nullable=False),
        sa.Column("conversation_id", _Key, sa.ForeignKey("conversation.id"), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("live_id", _Key, sa.ForeignKey("live.id"), nullable=False),
        sa.Column("prompt_id", _Key, sa.ForeignKey("prompt.id"), nullable=False),
        sa.Column("order", sa.Text, nullable=False),
        sa.Column("model_response_id", _Key, sa.ForeignKey("response.id")),
        sa.Column("against_response_id", _Key, sa.ForeignKey("response.id")),
        sa.Column("item_id", _Key, sa.ForeignKey("item.id")),
        sa.Column("idempotency_key", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("conversation_id", "number"),
        sa.UniqueConstraint("study_id", "idempotency_key"),
        sqlite_autoincrement=True,
    )
