"""Tables of a study: its consent texts, audit trail, exports and erasures, and its programs.

A version's `spans` are the categories of words that raters may mark; `corrections` is 1 if they may write a better
response. A study's `consent` is the number of its current consent text; 0 is the standard text. `languages` are those
of the raters' pages, the default first.

A `token` authorises a program to use the API; an `api_request` stores the reply to a change under its idempotency key.
An `alarm` is the minimum agreement of a study; `low` is set once the owners have been notified. A `webhook` receives
the notices with ids above `since`: each is a `delivery`, retried at `due`, which is NULL after the last attempt.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from tutelage.people.store.schema.shared_columns import Key, id_, metadata, of_study, one_of, partial, required

study = Table(
    "study",
    metadata,
    id_(),
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
    sqlite_autoincrement=True,
)

study_version = Table(
    "study_version",
    metadata,
    id_(),
    of_study(),
    Column("number", Integer, nullable=False),
    Column("question", Text, nullable=False),
    Column("scale", Integer, nullable=False),
    *required(Text, "criteria", "guidelines", "sha256"),
    Column("created", BigInteger, nullable=False),
    Column("corrections", Integer, nullable=False, server_default="0"),
    Column("spans", Text, nullable=False, server_default="[]"),
    UniqueConstraint("study_id", "number"),
    sqlite_autoincrement=True,
)

consent = Table(
    "consent",
    metadata,
    id_(),
    of_study(),
    Column("number", Integer, nullable=False),
    *required(Text, "text", "votes"),
    Column("retention_days", Integer),
    Column("created", BigInteger, nullable=False),
    UniqueConstraint("study_id", "number"),
    one_of("votes", "keep", "erase"),
    sqlite_autoincrement=True,
)

consent_text = Table(
    "consent_text",
    metadata,
    id_(),
    of_study(),
    *required(Text, "sha256", "text"),
    Column("created", BigInteger, nullable=False),
    UniqueConstraint("study_id", "sha256"),
    sqlite_autoincrement=True,
)


revision = Table(
    "tutelage_revision",
    metadata,
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="tutelage_revision_pkc"),
)
"""Written by Alembic, under a name that does not collide with another program's Alembic in the same database."""

event = Table(
    "event",
    metadata,
    id_(),
    Column("study_id", Key, ForeignKey("study.id")),
    Column("at", BigInteger, nullable=False),
    *required(Text, "actor", "action", "subject", "detail"),
    sqlite_autoincrement=True,
)
Index("event_of_study", event.c.study_id, event.c.action, event.c.id)

export = Table(
    "export",
    metadata,
    id_(),
    of_study(),
    *required(BigInteger, "last_judgement", "last_event"),
    *required(Text, "settings", "manifest"),
    Column("created", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)

erasure = Table(
    "erasure",
    metadata,
    id_(),
    of_study(),
    Column("rater_id", Key, ForeignKey("rater.id"), nullable=False),
    *required(Text, "mark", "name", "actor"),
    *required(Integer, "votes_too", "backups_too"),
    Column("since", BigInteger, nullable=False),
    Column("exports", Integer, nullable=False),
    Column("created", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)
"""Raters erased from the database, but not yet from its backups. `mark` stands in for the erased name."""


token = Table(
    "token",
    metadata,
    id_(),
    of_study(),
    *required(Text, "name", "rights"),
    Column("token_sha256", Text, nullable=False, unique=True),
    Column("expires", BigInteger),
    Column("revoked", BigInteger),
    Column("used", BigInteger),
    Column("created", BigInteger, nullable=False),
    sqlite_autoincrement=True,
)
Index("token_of_study", token.c.study_id, token.c.id)

api_request = Table(
    "api_request",
    metadata,
    id_(),
    Column("token_id", Key, ForeignKey("token.id"), nullable=False),
    *required(Text, "idempotency_key", "sha256", "reply"),
    Column("created", BigInteger, nullable=False),
    UniqueConstraint("token_id", "idempotency_key"),
    sqlite_autoincrement=True,
)

alarm = Table(
    "alarm",
    metadata,
    id_(),
    Column("study_id", Key, ForeignKey("study.id"), nullable=False, unique=True),
    Column("agreement", Float, nullable=False),
    Column("low", Integer, nullable=False),
    sqlite_autoincrement=True,
)

webhook = Table(
    "webhook",
    metadata,
    id_(),
    of_study(),
    *required(Text, "url", "secret", "topics"),
    *required(BigInteger, "since", "created"),
    Column("removed", BigInteger),
    Column("former_secret", Text, nullable=False, server_default=""),
    Column("former_until", BigInteger),
    sqlite_autoincrement=True,
)
Index("webhook_of_study", webhook.c.study_id, webhook.c.id)

delivery = Table(
    "delivery",
    metadata,
    id_(),
    Column("webhook_id", Key, ForeignKey("webhook.id"), nullable=False),
    Column("notice_id", Key, ForeignKey("notice.id"), nullable=False),
    Column("message", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due", BigInteger),
    Column("delivered", BigInteger),
    Column("error", Text, nullable=False),
    UniqueConstraint("webhook_id", "notice_id"),
    sqlite_autoincrement=True,
)
partial("delivery_due", delivery.c.due.is_not(None), delivery.c.webhook_id, delivery.c.due)
