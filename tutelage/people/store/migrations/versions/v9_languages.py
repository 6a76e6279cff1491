"""Version 9: the languages in which raters may see the pages of a study."""

import sqlalchemy as sa
from alembic import op

revision = "v9"
down_revision = "v8"


def upgrade() -> None:
    op.add_column("study", sa.Column("languages", sa.Text, nullable=False, server_default='["en"]'))
