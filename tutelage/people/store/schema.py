"""The tables. Everything a person said is append-only; whatever else changes, changes together with an `event`.

Times are milliseconds since the epoch, JSON is text (it is never searched), states are checked text. Integer keys are
internal; `key` and `name` columns hold the identifiers that files and people use.

Three things are kept beside what they could be computed from, always in the transaction that changes them: an item's
`answered`, `leased`, `skipped` and votes by verdict (and `room`, `started`, which follow from them), a rater's tallies,
and a judgement's `latest`. An assignment is `counted` among an item's unless it is extra, a model judge's, a simulated
rater's in a study that people take part in, or its rater or judgement is excluded.

A rater's `folded` name is what two names are compared by (`texts.folded`). An invite with a `rater_id` brings that
rater back. A notice is what an owner should look at; it is closed, never deleted.

A study may recruit on a platform (`recruitment`, one row at most). A visit is a stay of somebody who came from there;
`worker`, `task` and `submission` are the platform's identifiers, the only place where they are kept.

A version's `spans` are the categories of words that raters may mark, its `corrections` whether they may write a better
response. A judgement's `correction` and `spans` are canonical, and NULL where there is none.

A study's `consent` is the number of its present text about consent, and a rater's `agreed` that of the one agreed to;
0 is the standard text. A rater is `forgotten` at a time; what could tell who it was is erased then.

A study with a row in `live` lets raters talk to two models; the newest row is in force. A conversation is one rater's,
and only the newest of a rater may be open. A turn is a message of the rater, kept from the moment it was sent as the
last one of a `prompt`. Each model's answer is a `response` to it, and once both are there, the turn has an `item`.
"""

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
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    and_,
    literal_column,
)
from sqlalchemy.types import TypeEngine

from tutelage.people.platforms import PLATFORMS

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


revision = Table(
    "tutelage_revision",
    metadata,
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="tutelage_revision_pkc"),
)
"""Written by Alembic, under a name that no other program's Alembic uses in the same database."""
FORMER = ("schema_version",)
"""Tables of older versions."""

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
    Column("consent", Integer, nullable=False, server_default="0"),
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
    Column("corrections", Integer, nullable=False, server_default="0"),
    Column("spans", Text, nullable=False, server_default="[]"),
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
"""Conditions of the partial indexes; a query uses the index only if it repeats the condition word for word."""


def _partial(name: str, where: ColumnElement[bool], *columns: Column) -> None:
    Index(name, *columns, sqlite_where=where, postgresql_where=where)


_round = (item.c.study_id, item.c.pool, item.c.round)
_partial("item_started", STARTED, *_round, item.c.room, item.c.touched)
_partial("item_fresh", FRESH, *_round, item.c.shuffle)
_partial("item_fresh_priority", FRESH, *_round, item.c.priority, item.c.shuffle)
_partial("item_open_round", OPEN, *_round)
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
    Column("folded", Text, nullable=False, server_default=""),
    Column("agreed", Integer, nullable=False, server_default="0"),
    Column("forgotten", BigInteger),
    UniqueConstraint("study_id", "name"),
    _one_of("kind", "human", "llm", "simulated"),
    _one_of("role", "rater", "owner"),
    _one_of("state", "training", "active", "paused"),
    sqlite_autoincrement=True,
)
Index("rater_of_name", rater.c.study_id, rater.c.folded)

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
    Column("rater_id", _Key, ForeignKey("rater.id")),
    sqlite_autoincrement=True,
)
Index("invite_of_rater", invite.c.rater_id)

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
    Column("content", Text),
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

NOTICES = ("flag", "skip", "practice", "note", "reason", "disagreement", "model")

notice = Table(
    "notice",
    metadata,
    _id(),
    _study(),
    Column("kind", Text, nullable=False),
    Column("item_id", _Key, ForeignKey("item.id")),
    Column("rater_id", _Key, ForeignKey("rater.id")),
    Column("judgement_id", _Key, ForeignKey("judgement.id")),
    Column("text", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("closed", BigInteger),
    Column("closed_by", Text),
    _one_of("kind", *NOTICES),
    sqlite_autoincrement=True,
)
WAITING = notice.c.closed.is_(None)
_partial("notice_waiting", WAITING, notice.c.study_id, notice.c.kind, notice.c.id)
Index("notice_of_item", notice.c.item_id)
Index("notice_of_rater", notice.c.rater_id)

consent = Table(
    "consent",
    metadata,
    _id(),
    _study(),
    Column("number", Integer, nullable=False),
    Column("text", Text, nullable=False),
    Column("votes", Text, nullable=False),
    Column("retention_days", Integer),
    Column("created", BigInteger, nullable=False),
    UniqueConstraint("study_id", "number"),
    _one_of("votes", "keep", "erase"),
    sqlite_autoincrement=True,
)

recruitment = Table(
    "recruitment",
    metadata,
    _id(),
    Column("study_id", _Key, ForeignKey("study.id"), nullable=False, unique=True),
    Column("platform", Text, nullable=False),
    Column("entry", Text, nullable=False, unique=True),
    Column("code", Text, nullable=False),
    Column("screened_code", Text, nullable=False),
    Column("return_url", Text, nullable=False),
    Column("answers", Integer, nullable=False),
    Column("places", Integer),
    Column("again", Integer, nullable=False),
    Column("minutes", Integer, nullable=False),
    Column("pay", Float, nullable=False),
    Column("currency", Text, nullable=False),
    Column("fee", Float, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("created", BigInteger, nullable=False),
    _one_of("platform", *PLATFORMS),
    sqlite_autoincrement=True,
)

visit = Table(
    "visit",
    metadata,
    _id(),
    _study(),
    Column("rater_id", _Key, ForeignKey("rater.id"), nullable=False),
    Column("platform", Text, nullable=False),
    Column("worker", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("submission", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("base", BigInteger, nullable=False),
    Column("started", BigInteger, nullable=False),
    Column("ended", BigInteger),
    _one_of("platform", *PLATFORMS),
    _one_of("state", "active", "complete", "screened", "left"),
    sqlite_autoincrement=True,
)
Index("visit_of_worker", visit.c.study_id, visit.c.worker)
Index("visit_of_rater", visit.c.rater_id, visit.c.id)

live = Table(
    "live",
    metadata,
    _id(),
    _study(),
    Column("model", Text, nullable=False),
    Column("against", Text, nullable=False),
    Column("turns", Integer, nullable=False),
    Column("openings", Text, nullable=False),
    Column("sampling", Text, nullable=False),
    Column("round", Integer, nullable=False),
    Column("created", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)
Index("live_of_study", live.c.study_id, live.c.id)

conversation = Table(
    "conversation",
    metadata,
    _id(),
    _study(),
    Column("rater_id", _Key, ForeignKey("rater.id"), nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("ended", BigInteger),
    sqlite_autoincrement=True,
)
Index("conversation_of_rater", conversation.c.rater_id, conversation.c.id)

turn = Table(
    "turn",
    metadata,
    _id(),
    _study(),
    Column("conversation_id", _Key, ForeignKey("conversation.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("live_id", _Key, ForeignKey("live.id"), nullable=False),
    Column("prompt_id", _Key, ForeignKey("prompt.id"), nullable=False),
    Column("order", Text, nullable=False),
    Column("model_response_id", _Key, ForeignKey("response.id")),
    Column("against_response_id", _Key, ForeignKey("response.id")),
    Column("item_id", _Key, ForeignKey("item.id")),
    Column("idempotency_key", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    UniqueConstraint("conversation_id", "number"),
    UniqueConstraint("study_id", "idempotency_key"),
    sqlite_autoincrement=True,
)

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
