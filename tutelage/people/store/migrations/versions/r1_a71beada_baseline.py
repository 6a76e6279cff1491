"""Tables of version 0.1.0: those of `schema`, until a later release changes them.

Until the release of 0.1.0, this file is renamed after the digest of the tables, which a test reports. The first change
after the release writes the tables of 0.1.0 out here, because `schema` then describes newer ones.
"""

from alembic import op

from tutelage.people.store import schema

revision = "r1_a71beada"
down_revision = None


def upgrade() -> None:
    schema.metadata.create_all(op.get_bind())
