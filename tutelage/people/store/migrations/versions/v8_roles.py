"""Version 8: reviewers, owners who sign in elsewhere or are removed, and sessions that can be told apart."""

import sqlalchemy as sa
from alembic import op

revision = "v8"
down_revision = "v7"


def upgrade() -> None:
    with op.batch_alter_table("rater", table_kwargs={"sqlite_autoincrement": True}) as batch:
        batch.drop_constraint("known_role", type_="check")
        batch.create_check_constraint("known_role", "role IN ('rater', 'reviewer', 'owner')")
        batch.add_column(sa.Column("identity", sa.Text))
        batch.add_column(sa.Column("contact", sa.Text, nullable=False, server_default=""))
        batch.add_column(sa.Column("removed", sa.BigInteger))
    op.create_index("rater_of_identity", "rater", ["study_id", "identity"], unique=True)
    op.add_column("session", sa.Column("device", sa.Text))
    op.add_column("session", sa.Column("seen", sa.BigInteger))
