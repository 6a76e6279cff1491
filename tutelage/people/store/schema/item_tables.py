"""Tables of items and answers: prompts, responses, their images, items, live conversations with two models, completions
of a served model; assignments, judgements and notices to the owners.

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

An assignment is `counted` towards the overlap unless it is extra, belongs to a model judge or to a simulated rater in a
study with people, or its rater or judgement is excluded. A judgement's `latest` is denormalised; its `correction` and
`spans` are in canonical order, or NULL. A notice is an entry in the owners' inbox; it is closed, never deleted.
"""

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
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

from tutelage.people.store.schema.study_tables import Key, count, metadata, one_of, partial, required, study_table

prompt = study_table(
    "prompt",
    *required(Text, "key", "messages", "split"),
    Column("rubric", Text),
    UniqueConstraint("study_id", "key"),
    one_of("split", "train", "held_out"),
)

response = study_table(
    "response",
    Column("prompt_id", Key, ForeignKey("prompt.id"), nullable=False),
    *required(Text, "key", "text", "sampler", "sampling"),
    Column("finished", Integer, nullable=False),
    Column("steps", Text),
    UniqueConstraint("study_id", "key"),
)

image = study_table(
    "image",
    *required(Text, "name", "content"),
    *required(Integer, "width", "height"),
    UniqueConstraint("study_id", "name"),
    info={"rows_at_once": 10},
)

VERDICTS = ("a_votes", "b_votes", "ties", "both_bad")

item = study_table(
    "item",
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


live = study_table(
    "live",
    *required(Text, "model", "against"),
    Column("turns", Integer, nullable=False),
    *required(Text, "openings", "sampling"),
    Column("round", Integer, nullable=False),
    Column("created", BigInteger, nullable=False),
)
Index("live_of_study", live.c.study_id, live.c.id)

conversation = study_table(
    "conversation",
    Column("rater_id", Key, ForeignKey("rater.id"), nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("ended", BigInteger),
)
Index("conversation_of_rater", conversation.c.rater_id, conversation.c.id)

turn = study_table(
    "turn",
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
)

completion = study_table(
    "completion",
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
)
Index("completion_of_rater", completion.c.rater_id)
Index("completion_of_trial", completion.c.study_id, completion.c.trial, completion.c.id)
KEPT = completion.c.text.is_not(None)
partial("completion_kept", KEPT, completion.c.study_id, completion.c.created)


assignment = study_table(
    "assignment",
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
)
LEASED = assignment.c.state == literal_column("'leased'")
partial("assignment_leased", LEASED, assignment.c.study_id, assignment.c.lease_ends)
partial("assignment_held", LEASED, assignment.c.rater_id)
Index("assignment_of_rater", assignment.c.rater_id, assignment.c.state, assignment.c.closed)
Index("assignment_by_item", assignment.c.rater_id, assignment.c.item_id)

judgement = study_table(
    "judgement",
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
)
Index("judgement_of_study", judgement.c.study_id, judgement.c.id)
Index("judgement_of_item", judgement.c.item_id)
Index("judgement_of_rater", judgement.c.rater_id, judgement.c.id)

NOTICES = ("flag", "skip", "practice", "note", "reason", "disagreement", "model", "round", "agreement")

notice = study_table(
    "notice",
    Column("kind", Text, nullable=False),
    Column("item_id", Key, ForeignKey("item.id")),
    Column("rater_id", Key, ForeignKey("rater.id")),
    Column("judgement_id", Key, ForeignKey("judgement.id")),
    Column("text", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("closed", BigInteger),
    Column("closed_by", Text),
    one_of("kind", *NOTICES),
)
WAITING = notice.c.closed.is_(None)
partial("notice_waiting", WAITING, notice.c.study_id, notice.c.kind, notice.c.id)
Index("notice_of_item", notice.c.item_id)
Index("notice_of_rater", notice.c.rater_id)
