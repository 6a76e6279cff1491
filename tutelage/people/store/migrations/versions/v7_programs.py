"""Version 7: tokens of programs, webhooks with their deliveries, and notices of full rounds and of low agreement."""

import sqlalchemy as sa
from alembic import op

revision = "v7"
down_revision = "v6"

_Key = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_KINDS = ("flag", "skip", "practice", "note", "reason", "disagreement", "model")


def upgrade() -> None:
    _make_tables_of_programs()
    _make_tables_of_webhooks()
    with op.batch_alter_table("notice", copy_from=_notice()) as batch:
        batch.drop_constraint("known_kind", type_="check")
        batch.create_check_constraint("known_kind", _known(*_KINDS, "round", "agreement"))


def _known(*kinds: str) -> str:
    return f"kind IN ({', '.join(repr(kind) for kind in kinds)})"


def _id() -> sa.Column:
    return sa.Column("id", _Key, primary_key=True, autoincrement=True)


def _of(table: str, *, unique: bool | None = None) -> sa.Column:
    return sa.Column(f"{table}_id", _Key, sa.ForeignKey(f"{table}.id"), nullable=False, unique=unique)


def _make_tables_of_programs() -> None:
    op.create_table(
        "token",
        _id(),
        _of("study"),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("rights", sa.Text, nullable=False),
        sa.Column("token_sha256", sa.Text, nullable=False, unique=True),
        sa.Column("expires", sa.BigInteger),
        sa.Column("revoked", sa.BigInteger),
        sa.Column("used", sa.BigInteger),
        sa.Column("created", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("token_of_study", "token", ["study_id", "id"])
    op.create_table(
        "api_request",
        _id(),
        _of("token"),
        sa.Column("idempotency_key", sa.Text, nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("reply", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("token_id", "idempotency_key"),
        sqlite_autoincrement=True,
    )


def _make_tables_of_webhooks() -> None:
    op.create_table(
        "alarm",
        _id(),
        _of("study", unique=True),
        sa.Column("agreement", sa.Float, nullable=False),
        sa.Column("low", sa.Integer, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "webhook",
        _id(),
        _of("study"),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("secret", sa.Text, nullable=False),
        sa.Column("topics", sa.Text, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.Column("removed", sa.BigInteger),
        sqlite_autoincrement=True,
    )
    op.create_index("webhook_of_study", "webhook", ["study_id", "id"])
    op.create_table(
        "delivery",
        _id(),
        _of("webhook"),
        _of("notice"),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due", sa.BigInteger),
        sa.Column("delivered", sa.BigInteger),
        sa.Column("error", sa.Text, nullable=False),
        sa.UniqueConstraint("webhook_id", "notice_id"),
        sqlite_autoincrement=True,
    )
    waiting = sa.text("due IS NOT NULL")
    op.create_index(
        "delivery_due", "delivery", ["webhook_id", "due"], sqlite_where=waiting, postgresql_where=waiting
    )


def _notice() -> sa.Table:
    """The table as it was: SQLite has to make it anew."""
    metadata = sa.MetaData()
    for other in ("study", "item", "rater", "judgement"):
        sa.Table(other, metadata, sa.Column("id", _Key, primary_key=True))
    found = sa.Table(
        "notice",
        metadata,
        _id(),
        _of("study"),
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
    columns = found.c.study_id, found.c.kind, found.c.id
    sa.Index("notice_waiting", *columns, sqlite_where=waiting, postgresql_where=waiting)
    sa.Index("notice_of_item", found.c.item_id)
    sa.Index("notice_of_rater", found.c.rater_id)
    return found
