"""Tables of answers: assignments, judgements and notices to the owners.

An assignment is `counted` towards the overlap unless it is extra, belongs to a model judge or to a simulated rater in a
study with people, or its rater or judgement is excluded. A judgement's `latest` is denormalised; its `correction` and
`spans` are in canonical order, or NULL. A notice is an entry in the owners' inbox; it is closed, never deleted.
"""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    literal_column,
)

from tutelage.people.store.schema.shared_columns import Key, id_, metadata, of_study, one_of, partial, required

assignment = Table(
    "assignment",
    metadata,
    id_(),
    of_study(),
    Column("item_id", Key, ForeignKey("item.id"), nullable=False),
    Column("rater_id", Key, ForeignKey("rater.id"), nullable=False),
    Column("repeat", Integer, nullable=False),
    *required(Text, "chosen_by", "state"),
    *required(Integer, "extra", "counted"),
    Column("version_id", Key, ForeignKey("study_version.id"), nullable=False),
    Column("order", Text, nullable=False),
    *required(BigInteger, "lease_ends", "created"),
    Column("closed", BigInteger),
    UniqueConstraint("item_id", "rater_id", "repeat"),
    one_of("state", "leased", "done", "skipped", "expired", "released"),
    sqlite_autoincrement=True,
)
LEASED = assignment.c.state == literal_column("'leased'")
partial("assignment_leased", LEASED, assignment.c.study_id, assignment.c.lease_ends)
partial("assignment_held", LEASED, assignment.c.rater_id)
Index("assignment_of_rater", assignment.c.rater_id, assignment.c.state, assignment.c.closed)
Index("assignment_by_item", assignment.c.rater_id, assignment.c.item_id)

judgement = Table(
    "judgement",
    metadata,
    id_(),
    of_study(),
    Column("assignment_id", Key, ForeignKey("assignment.id"), nullable=False),
    Column("item_id", Key, ForeignKey("item.id"), nullable=False),
    Column("rater_id", Key, ForeignKey("rater.id"), nullable=False),
    Column("version_id", Key, ForeignKey("study_version.id"), nullable=False),
    *required(Integer, "revision", "latest"),
    *required(Text, "displayed", "order", "verdict"),
    Column("strength", Integer, nullable=False),
    Column("content", Text),
    *required(Text, "criteria", "flags", "reason"),
    *required(Integer, "repeat", "extra"),
    Column("active_ms", BigInteger),
    Column("wall_ms", BigInteger),
    Column("changes", Integer, nullable=False),
    *required(Text, "client", "idempotency_key"),
    Column("excluded", Text),
    Column("created", BigInteger, nullable=False),
    Column("correction", Text),
    Column("spans", Text),
    UniqueConstraint("assignment_id", "revision"),
    UniqueConstraint("study_id", "idempotency_key"),
    CheckConstraint("strength BETWEEN 0 AND 3", name="known_strength"),
    sqlite_autoincrement=True,
)
Index("judgement_of_study", judgement.c.study_id, judgement.c.id)
Index("judgement_of_item", judgement.c.item_id)
Index("judgement_of_rater", judgement.c.rater_id, judgement.c.id)

NOTICES = ("flag", "skip", "practice", "note", "reason", "disagreement", "model", "round", "agreement")

notice = Table(
    "notice",
    metadata,
    id_(),
    of_study(),
    Column("kind", Text, nullable=False),
    Column("item_id", Key, ForeignKey("item.id")),
    Column("rater_id", Key, ForeignKey("rater.id")),
    Column("judgement_id", Key, ForeignKey("judgement.id")),
    Column("text", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("closed", BigInteger),
    Column("closed_by", Text),
    one_of("kind", *NOTICES),
    sqlite_autoincrement=True,
)
WAITING = notice.c.closed.is_(None)
partial("notice_waiting", WAITING, notice.c.study_id, notice.c.kind, notice.c.id)
Index("notice_of_item", notice.c.item_id)
Index("notice_of_rater", notice.c.rater_id)
