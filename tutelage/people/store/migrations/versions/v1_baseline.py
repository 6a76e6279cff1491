"""Version 1: the tables as the first release made them. A database of that release is stamped with this revision."""

from alembic import op
from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ColumnElement,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    and_,
    literal_column,
)
from sqlalchemy.types import TypeEngine

revision = "v1"
down_revision = None

metadata = MetaData()

_Key: TypeEngine[int] = BigInteger().with_variant(Integer, "sqlite")


def _id() -> Column[int]:
    return Column("id", _Key, primary_key=True, autoincrement=True)


def _study() -> Column[int]:
    return Column("study_id", _Key, ForeignKey("study.id"), nullable=False)


def _count(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default="0")


def _one_of(column: str, *values: str) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=f"known_{column}")


schema_version = Table(
    "schema_version",
    metadata,
    Column("version", Integer, primary_key=True),
    Column("applied", BigInteger, nullable=False),
)

study = Table(
    "study",
    metadata,
    _id(),
    Column("name", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("secret", Text, nullable=False),
    Column("state", Text, nullable=False, server_default="open"),
    Column("overlap", Integer, nullable=False),
    Column("policy", Text, nullable=False),
    Column("gold_rate", Float, nullable=False),
    Column("repeat_rate", Float, nullable=False),
    Column("training_pass", Float, nullable=False),
    Column("lease_seconds", Integer, nullable=False),
    Column("created", BigInteger, nullable=False),
    _one_of("kind", "pair", "ranking"),
    _one_of("state", "open", "paused", "closed"),
    _one_of("policy", "finish_first", "random", "priority"),
    sqlite_autoincrement=True,
)

study_version = Table(
    "study_version",
    metadata,
    _id(),
    _study(),
    Column("number", Integer, nullable=False),
    Column("question", Text, nullable=False),
    Column("scale", Integer, nullable=False),
    Column("criteria", Text, nullable=False),
    Column("guidelines", Text, nullable=False),
    Column("sha256", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    UniqueConstraint("study_id", "number"),
    sqlite_autoincrement=True,
)

prompt = Table(
    "prompt",
    metadata,
    _id(),
    _study(),
    Column("key", Text, nullable=False),
    Column("messages", Text, nullable=False),
    Column("split", Text, nullable=False),
    UniqueConstraint("study_id", "key"),
    _one_of("split", "train", "held_out"),
    sqlite_autoincrement=True,
)

response = Table(
    "response",
    metadata,
    _id(),
    _study(),
    Column("prompt_id", _Key, ForeignKey("prompt.id"), nullable=False),
    Column("key", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("sampler", Text, nullable=False),
    Column("sampling", Text, nullable=False),
    Column("finished", Integer, nullable=False),
    UniqueConstraint("study_id", "key"),
    sqlite_autoincrement=True,
)

VERDICTS = ("a_votes", "b_votes", "ties", "both_bad")

item = Table(
    "item",
    metadata,
    _id(),
    _study(),
    Column("key", Text, nullable=False),
    Column("prompt_id", _Key, ForeignKey("prompt.id"), nullable=False),
    Column("lengths", Text, nullable=False),
    Column("samplers", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("round", Integer, nullable=False),
    Column("pool", Text, nullable=False),
    Column("gold", Text),
    Column("explanation", Text),
    Column("overlap", Integer),
    Column("second", Integer, nullable=False),
    Column("target", Integer, nullable=False),
    Column("priority", Float, nullable=False),
    Column("shuffle", BigInteger, nullable=False),
    Column("excluded", Text),
    Column("created", BigInteger, nullable=False),
    _count("answered"),
    _count("leased"),
    _count("skipped"),
    *(_count(name) for name in VERDICTS),
    Column("room", Integer, nullable=False),
    _count("started"),
    Column("touched", BigInteger, nullable=False),
    UniqueConstraint("study_id", "key"),
    _one_of("pool", "production", "gold", "training"),
    sqlite_autoincrement=True,
)
FRESH = item.c.started == literal_column("0")
STARTED = and_(item.c.started == literal_column("1"), item.c.room > literal_column("0"))
OPEN = item.c.room > literal_column("0")


def _partial(name: str, where: ColumnElement[bool], *columns: Column) -> None:
    Index(name, *columns, sqlite_where=where, postgresql_where=where)


_partial("item_started", STARTED, item.c.study_id, item.c.pool, item.c.room, item.c.touched)
_partial("item_fresh", FRESH, item.c.study_id, item.c.pool, item.c.shuffle)
_partial("item_fresh_priority", FRESH, item.c.study_id, item.c.pool, item.c.priority, item.c.shuffle)
_partial("item_open", OPEN, item.c.study_id, item.c.pool, item.c.shuffle)
Index("item_of_round", item.c.study_id, item.c.pool, item.c.round)

item_response = Table(
    "item_response",
    metadata,
    Column("item_id", _Key, ForeignKey("item.id"), primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("response_id", _Key, ForeignKey("response.id"), nullable=False),
)

TALLIES = (
    "answered", "skipped", "left_chosen", "right_chosen", "ties", "longer_chosen", "shorter_chosen",
    "gold_seen", "gold_right", "repeat_seen", "repeat_same", "flagged", "timed", "active_ms",
)  # fmt: skip

rater = Table(
    "rater",
    metadata,
    _id(),
    _study(),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("detail", Text, nullable=False),
    Column("quota", Integer),
    Column("consented", BigInteger),
    Column("excluded", Text),
    Column("created", BigInteger, nullable=False),
    Column("seen", BigInteger),
    _count("asked"),
    *(Column(name, BigInteger, nullable=False, server_default="0") for name in TALLIES),
    UniqueConstraint("study_id", "name"),
    _one_of("kind", "human", "llm", "simulated"),
    _one_of("role", "rater", "owner"),
    _one_of("state", "training", "active", "paused"),
    sqlite_autoincrement=True,
)

invite = Table(
    "invite",
    metadata,
    _id(),
    _study(),
    Column("role", Text, nullable=False),
    Column("token_sha256", Text, nullable=False, unique=True),
    Column("note", Text, nullable=False),
    Column("max_uses", Integer, nullable=False),
    _count("uses"),
    Column("expires", BigInteger, nullable=False),
    Column("revoked", BigInteger),
    Column("created", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)

session = Table(
    "session",
    metadata,
    _id(),
    _study(),
    Column("rater_id", _Key, ForeignKey("rater.id"), nullable=False),
    Column("token_sha256", Text, nullable=False, unique=True),
    Column("expires", BigInteger, nullable=False),
    Column("revoked", BigInteger),
    Column("created", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)
Index("session_of_rater", session.c.rater_id)

assignment = Table(
    "assignment",
    metadata,
    _id(),
    _study(),
    Column("item_id", _Key, ForeignKey("item.id"), nullable=False),
    Column("rater_id", _Key, ForeignKey("rater.id"), nullable=False),
    Column("repeat", Integer, nullable=False),
    Column("chosen_by", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("extra", Integer, nullable=False),
    Column("counted", Integer, nullable=False),
    Column("version_id", _Key, ForeignKey("study_version.id"), nullable=False),
    Column("order", Text, nullable=False),
    Column("lease_ends", BigInteger, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("closed", BigInteger),
    UniqueConstraint("item_id", "rater_id", "repeat"),
    _one_of("state", "leased", "done", "skipped", "expired", "released"),
    sqlite_autoincrement=True,
)
LEASED = assignment.c.state == literal_column("'leased'")
_partial("assignment_leased", LEASED, assignment.c.study_id, assignment.c.lease_ends)
_partial("assignment_held", LEASED, assignment.c.rater_id)
Index("assignment_of_rater", assignment.c.rater_id, assignment.c.state, assignment.c.closed)
Index("assignment_by_item", assignment.c.rater_id, assignment.c.item_id)

judgement = Table(
    "judgement",
    metadata,
    _id(),
    _study(),
    Column("assignment_id", _Key, ForeignKey("assignment.id"), nullable=False),
    Column("item_id", _Key, ForeignKey("item.id"), nullable=False),
    Column("rater_id", _Key, ForeignKey("rater.id"), nullable=False),
    Column("version_id", _Key, ForeignKey("study_version.id"), nullable=False),
    Column("revision", Integer, nullable=False),
    Column("latest", Integer, nullable=False),
    Column("displayed", Text, nullable=False),
    Column("order", Text, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("strength", Integer, nullable=False),
    Column("ranking", Text),
    Column("criteria", Text, nullable=False),
    Column("flags", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("repeat", Integer, nullable=False),
    Column("extra", Integer, nullable=False),
    Column("active_ms", BigInteger),
    Column("wall_ms", BigInteger),
    Column("changes", Integer, nullable=False),
    Column("client", Text, nullable=False),
    Column("idempotency_key", Text, nullable=False),
    Column("excluded", Text),
    Column("created", BigInteger, nullable=False),
    UniqueConstraint("assignment_id", "revision"),
    UniqueConstraint("study_id", "idempotency_key"),
    _one_of("verdict", "a", "b", "tie", "both_bad", "skip", "ranked"),
    CheckConstraint("strength BETWEEN 0 AND 3", name="known_strength"),
    sqlite_autoincrement=True,
)
Index("judgement_of_study", judgement.c.study_id, judgement.c.id)
Index("judgement_of_item", judgement.c.item_id)
Index("judgement_of_rater", judgement.c.rater_id, judgement.c.id)

event = Table(
    "event",
    metadata,
    _id(),
    Column("study_id", _Key, ForeignKey("study.id")),
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
    _id(),
    _study(),
    Column("last_judgement", BigInteger, nullable=False),
    Column("last_event", BigInteger, nullable=False),
    Column("settings", Text, nullable=False),
    Column("manifest", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)


def upgrade() -> None:
    metadata.create_all(op.get_bind())
