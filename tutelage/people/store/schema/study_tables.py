"""Tables of a study: its consent texts, audit trail, exports and erasures, and its programs; its raters, their
invitations and sessions, and visits from recruiting platforms. First what all tables share: metadata, columns, checks
and indexes.

A version's `spans` are the categories of words that raters may mark; `corrections` is 1 if they may write a better
response. A study's `consent` is the number of its current consent text; 0 is the standard text. `languages` are those
of the raters' pages, the default first.

A `token` authorises a program to use the API; an `api_request` stores the reply to a change under its idempotency key.
An `alarm` is the minimum agreement of a study; `low` is set once the owners have been notified. A `webhook` receives
the notices with ids above `since`: each is a `delivery`, retried at `due`, which is NULL after the last attempt.

A rater's tallies are denormalised. `folded` is the normalised name used for comparisons (`data.vote_rows.fold_name`);
`agreed` is the number of the consent text that the rater agreed to. At the time `forgotten`, all identifying data of
the rater was erased. An invitation with a `rater_id` is a personal link of that rater. Owners and reviewers with
external sign-in have an `identity`, the identifier at the sign-in provider, and a `contact`, their e-mail address;
`removed` is the time at which their access was removed. A session's `device` is NULL until a browser uses it. A study
may recruit on a platform (`recruitment`, at most one row). A visit belongs to a rater from that platform; `worker`,
`task` and `submission` are the platform's identifiers and are stored in no other table.
"""

from collections.abc import Iterator
from typing import Any

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
)
from sqlalchemy.schema import SchemaItem
from sqlalchemy.types import TypeEngine

from tutelage.people.recruitment import PLATFORMS

metadata = MetaData()

Key: TypeEngine[int] = BigInteger().with_variant(Integer, "sqlite")


def id_table(name: str, *parts: SchemaItem, **more: Any) -> Table:
    """A table whose rows have ids, none of which is ever assigned again."""
    key = Column("id", Key, primary_key=True, autoincrement=True)
    return Table(name, metadata, key, *parts, sqlite_autoincrement=True, **more)


def study_table(name: str, *parts: SchemaItem, **more: Any) -> Table:
    """An `id_table` whose rows belong to a study each."""
    return id_table(name, Column("study_id", Key, ForeignKey("study.id"), nullable=False), *parts, **more)


def required(kind: type[TypeEngine], *names: str) -> Iterator[Column]:
    """Columns of a type that are NOT NULL."""
    return (Column(name, kind, nullable=False) for name in names)


def count(name: str) -> Column[int]:
    """An integer column with default 0."""
    return Column(name, Integer, nullable=False, server_default="0")


def one_of(column: str, *values: str) -> CheckConstraint:
    """Check constraint that a text column holds one of `values`."""
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=f"known_{column}")


def partial(name: str, where: ColumnElement[bool], *columns: Column) -> None:
    """Add a partial index of the rows that satisfy `where`."""
    Index(name, *columns, sqlite_where=where, postgresql_where=where)


study = id_table(
    "study",
    Column("name", Text, nullable=False, unique=True),
    *required(Text, "kind", "secret"),
    Column("state", Text, nullable=False, server_default="open"),
    Column("overlap", Integer, nullable=False),
    Column("policy", Text, nullable=False),
    *required(Float, "gold_rate", "repeat_rate", "training_pass"),
    Column("lease_seconds", Integer, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("consent", Integer, nullable=False, server_default="0"),
    Column("languages", Text, nullable=False, server_default='["en"]'),
    one_of("state", "open", "paused", "closed"),
    one_of("policy", "finish_first", "random", "priority"),
)

study_version = study_table(
    "study_version",
    Column("number", Integer, nullable=False),
    Column("question", Text, nullable=False),
    Column("scale", Integer, nullable=False),
    *required(Text, "criteria", "guidelines", "sha256"),
    Column("created", BigInteger, nullable=False),
    Column("corrections", Integer, nullable=False, server_default="0"),
    Column("spans", Text, nullable=False, server_default="[]"),
    UniqueConstraint("study_id", "number"),
)

consent = study_table(
    "consent",
    Column("number", Integer, nullable=False),
    *required(Text, "text", "votes"),
    Column("retention_days", Integer),
    Column("created", BigInteger, nullable=False),
    UniqueConstraint("study_id", "number"),
    one_of("votes", "keep", "erase"),
)

consent_text = study_table(
    "consent_text",
    *required(Text, "sha256", "text"),
    Column("created", BigInteger, nullable=False),
    UniqueConstraint("study_id", "sha256"),
)


revision = Table(
    "tutelage_revision",
    metadata,
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="tutelage_revision_pkc"),
)
"""Written by Alembic, under a name that does not collide with another program's Alembic in the same database."""

event = id_table(
    "event",
    Column("study_id", Key, ForeignKey("study.id")),
    Column("at", BigInteger, nullable=False),
    *required(Text, "actor", "action", "subject", "detail"),
)
Index("event_of_study", event.c.study_id, event.c.action, event.c.id)

export = study_table(
    "export",
    *required(BigInteger, "last_judgement", "last_event"),
    *required(Text, "settings", "manifest"),
    Column("created", BigInteger, nullable=False),
)

erasure = study_table(
    "erasure",
    Column("rater_id", Key, ForeignKey("rater.id"), nullable=False),
    *required(Text, "mark", "name", "actor"),
    *required(Integer, "votes_too", "backups_too"),
    Column("since", BigInteger, nullable=False),
    Column("exports", Integer, nullable=False),
    Column("created", BigInteger, nullable=False),
)
"""Raters erased from the database, but not yet from its backups. `mark` stands in for the erased name."""


token = study_table(
    "token",
    *required(Text, "name", "rights"),
    Column("token_sha256", Text, nullable=False, unique=True),
    Column("expires", BigInteger),
    Column("revoked", BigInteger),
    Column("used", BigInteger),
    Column("created", BigInteger, nullable=False),
)
Index("token_of_study", token.c.study_id, token.c.id)

api_request = id_table(
    "api_request",
    Column("token_id", Key, ForeignKey("token.id"), nullable=False),
    *required(Text, "idempotency_key", "sha256", "reply"),
    Column("created", BigInteger, nullable=False),
    UniqueConstraint("token_id", "idempotency_key"),
)

alarm = id_table(
    "alarm",
    Column("study_id", Key, ForeignKey("study.id"), nullable=False, unique=True),
    Column("agreement", Float, nullable=False),
    Column("low", Integer, nullable=False),
)

webhook = study_table(
    "webhook",
    *required(Text, "url", "secret", "topics"),
    *required(BigInteger, "since", "created"),
    Column("removed", BigInteger),
    Column("former_secret", Text, nullable=False, server_default=""),
    Column("former_until", BigInteger),
)
Index("webhook_of_study", webhook.c.study_id, webhook.c.id)

delivery = id_table(
    "delivery",
    Column("webhook_id", Key, ForeignKey("webhook.id"), nullable=False),
    Column("notice_id", Key, ForeignKey("notice.id"), nullable=False),
    Column("message", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due", BigInteger),
    Column("delivered", BigInteger),
    Column("error", Text, nullable=False),
    UniqueConstraint("webhook_id", "notice_id"),
)
partial("delivery_due", delivery.c.due.is_not(None), delivery.c.webhook_id, delivery.c.due)


TALLIES = (
    "answered", "skipped", "left_chosen", "right_chosen", "ties", "longer_chosen", "shorter_chosen",
    "gold_seen", "gold_right", "repeat_seen", "repeat_same", "flagged", "timed", "active_ms",
)  # fmt: skip

rater = study_table(
    "rater",
    *required(Text, "name", "kind", "role", "state", "detail"),
    Column("quota", Integer),
    Column("consented", BigInteger),
    Column("excluded", Text),
    Column("created", BigInteger, nullable=False),
    Column("seen", BigInteger),
    count("asked"),
    *(Column(name, BigInteger, nullable=False, server_default="0") for name in TALLIES),
    Column("folded", Text, nullable=False, server_default=""),
    Column("agreed", Integer, nullable=False, server_default="0"),
    Column("forgotten", BigInteger),
    Column("identity", Text),
    Column("contact", Text, nullable=False, server_default=""),
    Column("removed", BigInteger),
    UniqueConstraint("study_id", "name"),
    one_of("kind", "human", "llm", "simulated"),
    one_of("role", "rater", "reviewer", "owner"),
    one_of("state", "training", "active", "paused"),
)
Index("rater_of_name", rater.c.study_id, rater.c.folded)
Index("rater_of_identity", rater.c.study_id, rater.c.identity, unique=True)

invite = study_table(
    "invite",
    Column("role", Text, nullable=False),
    Column("token_sha256", Text, nullable=False, unique=True),
    Column("note", Text, nullable=False),
    Column("max_uses", Integer, nullable=False),
    count("uses"),
    Column("expires", BigInteger, nullable=False),
    Column("revoked", BigInteger),
    Column("created", BigInteger, nullable=False),
    Column("rater_id", Key, ForeignKey("rater.id")),
)
Index("invite_of_rater", invite.c.rater_id)

session = study_table(
    "session",
    Column("rater_id", Key, ForeignKey("rater.id"), nullable=False),
    Column("token_sha256", Text, nullable=False, unique=True),
    Column("expires", BigInteger, nullable=False),
    Column("revoked", BigInteger),
    Column("created", BigInteger, nullable=False),
    Column("device", Text),
    Column("seen", BigInteger),
)
Index("session_of_rater", session.c.rater_id)


recruitment = id_table(
    "recruitment",
    Column("study_id", Key, ForeignKey("study.id"), nullable=False, unique=True),
    Column("platform", Text, nullable=False),
    Column("entry", Text, nullable=False, unique=True),
    *required(Text, "code", "screened_code", "return_url"),
    Column("answers", Integer, nullable=False),
    Column("places", Integer),
    *required(Integer, "again", "minutes"),
    Column("pay", Float, nullable=False),
    Column("currency", Text, nullable=False),
    *required(Float, "fee", "seconds"),
    Column("created", BigInteger, nullable=False),
    one_of("platform", *PLATFORMS),
)

visit = study_table(
    "visit",
    Column("rater_id", Key, ForeignKey("rater.id"), nullable=False),
    *required(Text, "platform", "worker", "task", "submission", "state"),
    *required(BigInteger, "base", "started"),
    Column("ended", BigInteger),
    one_of("platform", *PLATFORMS),
    one_of("state", "active", "complete", "screened", "left"),
)
Index("visit_of_worker", visit.c.study_id, visit.c.worker)
Index("visit_of_rater", visit.c.rater_id, visit.c.id)
