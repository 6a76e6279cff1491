"""Version 2: the tables no longer list the kinds of questions.

`judgement.content` (JSON; NULL where verdict and strength say everything) takes the place of `judgement.ranking`, and
Alembic's table of the revision that of `schema_version`.
"""

import sqlalchemy as sa
from alembic import op

from tutelage.people.store.migrations.versions.v1_baseline import metadata

revision = "v2"
down_revision = "v1"


def upgrade() -> None:
    with op.batch_alter_table("study", copy_from=metadata.tables["study"]) as batch:
        batch.drop_constraint("known_kind", type_="check")
    with op.batch_alter_table("judgement", copy_from=metadata.tables["judgement"]) as batch:
        batch.drop_constraint("known_verdict", type_="check")
        batch.alter_column("ranking", new_column_name="content")
    judgement = sa.table("judgement", sa.column("content", sa.Text))
    named = sa.literal('{"ranking": ') + judgement.c.content + sa.literal("}")
    op.execute(judgement.update().where(judgement.c.content.is_not(None)).values(content=named))
    op.drop_table("schema_version")
