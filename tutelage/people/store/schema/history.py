"""Tables of what happened: the version of the tables, events, exports; and of what is not finished: erasures."""

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
)

from tutelage.people.store.schema.columns import Key, id_, metadata, of_study

revision = Table(
    "tutelage_revision",
    metadata,
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="tutelage_revision_pkc"),
)
"""Written by Alembic, under a name that no other program's Alembic uses in the same database."""

event = Table(
    "event",
    metadata,
    id_(),
    Column("study_id", Key, ForeignKey("study.id")),
    Column("at", BigInteger, nullable=False),
    Column("actor", Text, nullable=False),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("detail", Text, nullable=False),
    sqlite_autoincrement=True,
)
Index("event_of_study", event.c.study_id, event.c.action, event.c.id)

export = Table(
    "export",
    metadata,
    id_(),
    of_study(),
    Column("last_judgement", BigInteger, nullable=False),
    Column("last_event", BigInteger, nullable=False),
    Column("settings", Text, nullable=False),
    Column("manifest", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)

erasure = Table(
    "erasure",
    metadata,
    id_(),
    of_study(),
    Column("rater_id", Key, ForeignKey("rater.id"), nullable=False),
    Column("mark", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("votes_too", Integer, nullable=False),
    Column("backups_too", Integer, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("exports", Integer, nullable=False),
    Column("created", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)
"""Raters who are forgotten in the database, and not yet in its backups. The mark stands for the name that is gone."""
