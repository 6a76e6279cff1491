"""Tables of live conversations with two models.

A study with a row in `live` lets raters talk to two models; the newest row is in force. A conversation is one rater's,
and only the newest of a rater may be open. A turn is a message of the rater, kept from the moment it was sent as the
last one of a `prompt`. Each model's answer is a `response` to it, and once both are there, the turn has an `item`.
"""

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, Table, Text, UniqueConstraint

from tutelage.people.store.schema.columns import Key, id_, metadata, of_study

live = Table(
    "live",
    metadata,
    id_(),
    of_study(),
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
    id_(),
    of_study(),
    Column("rater_id", Key, ForeignKey("rater.id"), nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("ended", BigInteger),
    sqlite_autoincrement=True,
)
Index("conversation_of_rater", conversation.c.rater_id, conversation.c.id)

turn = Table(
    "turn",
    metadata,
    id_(),
    of_study(),
    Column("conversation_id", Key, ForeignKey("conversation.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("live_id", Key, ForeignKey("live.id"), nullable=False),
    Column("prompt_id", Key, ForeignKey("prompt.id"), nullable=False),
    Column("order", Text, nullable=False),
    Column("model_response_id", Key, ForeignKey("response.id")),
    Column("against_response_id", Key, ForeignKey("response.id")),
    Column("item_id", Key, ForeignKey("item.id")),
    Column("idempotency_key", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    UniqueConstraint("conversation_id", "number"),
    UniqueConstraint("study_id", "idempotency_key"),
    sqlite_autoincrement=True,
)
