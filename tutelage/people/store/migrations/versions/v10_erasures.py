"""Version 10: forgetting that is not finished, texts about consent as they were shown, former secrets of webhooks."""

import sqlalchemy as sa
from alembic import op

revision = "v10"
down_revision = "v9"

_KEY = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "erasure",
        sa.Column("id", _KEY, primary_key=True, autoincrement=True),
        sa.Column("study_id", _KEY, sa.ForeignKey("study.id"), nullable=False),
        sa.Column("rater_id", _KEY, sa.ForeignKey("rater.id"), nullable=False),
        sa.Column("mark", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("votes_too", sa.Integer, nullable=False),
        sa.Column("backups_too", sa.Integer, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("exports", sa.Integer, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "consent_text",
        sa.Column("id", _KEY, primary_key=True, autoincrement=True),
        sa.Column("study_id", _KEY, sa.ForeignKey("study.id"), nullable=False),
        sa.Column("sha256", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("created", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("study_id", "sha256"),
        sqlite_autoincrement=True,
    )
    op.add_column("webhook", sa.Column("former_secret", sa.Text, nullable=False, server_default=""))
    op.add_column("webhook", sa.Column("former_until", sa.BigInteger))
