"""Tables of items: prompts, responses, their images, items, live conversations with two models, and completions of a
served model.

Denormalised columns of an item: `answered`, `leased`, `skipped`, the votes by verdict, and `room` and `started`, which
follow from them.

The content of an image is base64, at most 14 MB; texts refer to it as images/NAME.

A response's `steps` are those of a trace, or of a text whose steps are judged, as JSON: texts, or lists of messages;
its `text` is then the whole to read.

A study with a row in `live` lets raters chat with two models; the newest row is in force. Only the newest conversation
of a rater may be open. A turn is a message of the rater, stored as soon as it is sent, as the last message of a
`prompt`. Each model's reply is a `response` to it; once both are complete, the turn has an `item`.

A `completion` was served to a user who agreed that it is kept. With the first feedback on it, it becomes a `response`.
Its texts are NULL once they may no longer be kept; what a split test needs stays.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Float,
    ForeignKey,
    FromClause,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    and_,
    literal_column,
)

from tutelage.people.store.schema.shared_columns import Key, count, id_, metadata, of_study, one_of, partial, required

prompt = Table(
    "prompt",
    metadata,
    id_(),
    of_study(),
    *required(Text, "key", "messages", "split"),
    Column("rubric", Text),
    UniqueConstraint("study_id", "key"),
    one_of("split", "train", "held_out"),
    sqlite_autoincrement=True,
)

response = Table(
    "response",
    metadata,
    id_(),
    of_study(),
    Column("prompt_id", Key, ForeignKey("prompt.id"), nullable=False),
    *required(Text, "key", "text", "sampler", "sampling"),
    Column("finished", Integer, nullable=False),
    Column("steps", Text),
    UniqueConstraint("study_id", "key"),
    sqlite_autoincrement=True,
)

image = Table(
    "image",
    metadata,
    id_(),
    of_study(),
    *required(Text, "name", "content"),
    *required(Integer, "width", "height"),
    UniqueConstraint("study_id", "name"),
    sqlite_autoincrement=True,
    info={"rows_at_once": 10},
)

VERDICTS = ("a_votes", "b_votes", "ties", "both_bad")

item = Table(
    "item",
    metadata,
    id_(),
    of_study(),
    Column("key", Text, nullable=False),
    Column("prompt_id", Key, ForeignKey("prompt.id"), nullable=False),
    *required(Text, "lengths", "samplers", "origin"),
    Column("round", Integer, nullable=False),
    Column("pool", Text, nullable=False),
    Column("gold", Text),
    Column("explanation", Text),
    Column("overlap", Integer),
    *required(Integer, "second", "target"),
    Column("priority", Float, nullable=False),
    Column("shuffle", BigInteger, nullable=False),
    Column("excluded", Text),
    Column("created", BigInteger, nullable=False),
    count("answered"),
    count("leased"),
    count("skipped"),
    *(count(name) for name in VERDICTS),
    Column("room", Integer, nullable=False),
    count("started"),
    Column("touched", BigInteger, nullable=False),
    UniqueConstraint("study_id", "key"),
    one_of("pool", "production", "gold", "training"),
    sqlite_autoincrement=True,
)


def started(items: FromClause) -> ColumnElement[bool]:
    """Condition for items that have been assigned and are open, for the table or an alias of it."""
    return and_(items.c.started == literal_column("1"), items.c.room > literal_column("0"))


FRESH = item.c.started == literal_column("0")
STARTED = started(item)
OPEN = item.c.room > literal_column("0")
"""Conditions of the partial indexes; an index is used only by queries that repeat its condition verbatim."""

_round = (item.c.study_id, item.c.pool, item.c.round)
partial("item_started", STARTED, *_round, item.c.room, item.c.touched)
partial("item_fresh", FRESH, *_round, item.c.shuffle)
partial("item_fresh_priority", FRESH, *_round, item.c.priority, item.c.shuffle)
partial("item_open_round", OPEN, *_round)
partial("item_open", OPEN, item.c.study_id, item.c.pool, item.c.shuffle)
Index("item_of_round", item.c.study_id, item.c.pool, item.c.round)

item_response = Table(
    "item_response",
    metadata,
    Column("item_id", Key, ForeignKey("item.id"), primary_key=True, autoincrement=False),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("response_id", Key, ForeignKey("response.id"), nullable=False),
)


live = Table(
    "live",
    metadata,
    id_(),
    of_study(),
    *required(Text, "model", "against"),
    Column("turns", Integer, nullable=False),
    *required(Text, "openings", "sampling"),
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

completion = Table(
    "completion",
    metadata,
    id_(),
    of_study(),
    Column("key", Text, nullable=False),
    Column("rater_id", Key, ForeignKey("rater.id"), nullable=False),
    Column("messages", Text),
    Column("text", Text),
    Column("sampler", Text, nullable=False),
    Column("finished", Integer, nullable=False),
    *required(Text, "trial", "arm"),
    Column("failed", Integer, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("outcome", Float),
    Column("said", BigInteger),
    Column("response_id", Key, ForeignKey("response.id")),
    Column("created", BigInteger, nullable=False),
    UniqueConstraint("study_id", "key"),
    one_of("arm", "", "a", "b"),
    sqlite_autoincrement=True,
)
Index("completion_of_rater", completion.c.rater_id)
Index("completion_of_trial", completion.c.study_id, completion.c.trial, completion.c.id)
KEPT = completion.c.text.is_not(None)
partial("completion_kept", KEPT, completion.c.study_id, completion.c.created)
