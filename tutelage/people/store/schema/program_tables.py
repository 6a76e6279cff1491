"""Tables for programs: API tokens, webhooks and their deliveries.

A `token` authorises a program to use the API; an `api_request` stores the reply to a change under its idempotency key.
An `alarm` is the minimum agreement of a study; `low` is set once the owners have been notified. A `webhook` receives
the notices with ids above `since`: each is a `delivery`, retried at `due`, which is NULL after the last attempt.
"""

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Index, Integer, Table, Text, UniqueConstraint

from tutelage.people.store.schema.shared_columns import Key, id_, metadata, of_study, partial, required

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
