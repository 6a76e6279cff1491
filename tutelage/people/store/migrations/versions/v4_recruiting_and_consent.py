"""Version 4: recruiting on platforms, visits from there, texts that raters agree to, and raters who are forgotten."""

import sqlalchemy as sa
from alembic import op

revision = "v4"
down_revision = "v3"

_Key = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_PLATFORMS = "platform IN ('prolific', 'mturk', 'sona')"


def upgrade() -> None:
    op.add_column("study", sa.Column("consent", sa.Integer, nullable=False, server_default="0"))
    op.add_column("rater", sa.Column("agreed", sa.Integer, nullable=False, server_default="0"))
    op.add_column("rater", sa.Column("forgotten", sa.BigInteger))
    op.create_table(
        "consent",
        sa.Column("id", _Key, primary_key=True, autoincrement=True),
        sa.Column("study_id", _Key, sa.ForeignKey("study.id"), nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("votes", sa.Text, nullable=False),
        sa.Column("retention_days", sa.Integer),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("study_id", "number"),
        sa.CheckConstraint("votes IN ('keep', 'erase')", name="known_votes"),
        sqlite_autoincrement=True,
    )
    _make_recruiting()


def _make_recruiting() -> None:
    op.create_table(
        "recruitment",
        sa.Column("id", _Key, primary_key=True, autoincrement=True),
        sa.Column("study_id", _Key, sa.ForeignKey("study.id"), nullable=False, unique=True),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("entry", sa.Text, nullable=False, unique=True),
        sa.Column("code", sa.Text, nullable=False),
        sa.Column("screened_code", sa.Text, nullable=False),
        sa.Column("return_url", sa.Text, nullable=False),
        sa.Column("answers", sa.Integer, nullable=False),
        sa.Column("places", sa.Integer),
        sa.Column("again", sa.Integer, nullable=False),
        sa.Column("minutes", sa.Integer, nullable=False),
        sa.Column("pay", sa.Float, nullable=False),
        sa.Column("currency", sa.Text, nullable=False),
        sa.Column("fee", sa.Float, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.CheckConstraint(_PLATFORMS, name="known_platform"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "visit",
        sa.Column("id", _Key, primary_key=True, autoincrement=True),
        sa.Column("study_id", _Key, sa.ForeignKey("study.id"), nullable=False),
        sa.Column("rater_id", _Key, sa.ForeignKey("rater.id"), nullable=False),
        sa.Column("platform", sa.Text, nullable=False),
        sa.Column("worker", sa.Text, nullable=False),
        sa.Column("task", sa.Text, nullable=False),
        sa.Column("submission", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("base", sa.BigInteger, nullable=False),
        sa.Column("started", sa.BigInteger, nullable=False),
        sa.Column("ended", sa.BigInteger),
        sa.CheckConstraint(_PLATFORMS, name="known_platform"),
        sa.CheckConstraint("state IN ('active', 'complete', 'screened', 'left')", name="known_state"),
        sqlite_autoincrement=True,
    )
    op.create_index("visit_of_worker", "visit", ["study_id", "worker"])
    op.create_index("visit_of_rater", "visit", ["rater_id", "id"])
