"""Tables of version 0.1.0.

Until the release of 0.1.0, this file is edited together with `schema` and renamed after its digest, which a test
reports.
"""

from functools import partial
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "r1_a71beada"
down_revision = None

_KEY: sa.types.TypeEngine[int] = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_metadata = sa.MetaData()
_TALLIES = (
    "answered", "skipped", "left_chosen", "right_chosen", "ties", "longer_chosen", "shorter_chosen",
    "gold_seen", "gold_right", "repeat_seen", "repeat_same", "flagged", "timed", "active_ms",
)  # fmt: skip


def upgrade() -> None:
    _metadata.create_all(op.get_bind())


def _table(name: str, *parts: sa.schema.SchemaItem) -> None:
    key = sa.Column("id", _KEY, primary_key=True, autoincrement=True)
    sa.Table(name, _metadata, key, *parts, sqlite_autoincrement=True)


def _key(table: str, name: str = "", *, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name or f"{table}_id", _KEY, sa.ForeignKey(f"{table}.id"), nullable=nullable)


def _columns(
    type_: type[sa.types.TypeEngine[Any]], *names: str, nullable: bool = False, default: str | None = None
) -> list[sa.Column[Any]]:
    return [sa.Column(name, type_, nullable=nullable, server_default=default) for name in names]


_texts = partial(_columns, sa.Text)
_integers = partial(_columns, sa.Integer)
_bigints = partial(_columns, sa.BigInteger)
_reals = partial(_columns, sa.Float)


def _one_of(column: str, *values: str) -> sa.CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return sa.CheckConstraint(f"{column} IN ({listed})", name=f"known_{column}")


def _index(name: str, *columns: str, where: str | None = None, unique: bool = False) -> sa.Index:
    rows = None if where is None else sa.text(where)
    return sa.Index(name, *columns, unique=unique, sqlite_where=rows, postgresql_where=rows)


_table(
    "study",
    *_texts("name", "kind", "secret"),
    *_texts("state", default="open"),
    *_integers("overlap"),
    *_texts("policy"),
    *_reals("gold_rate", "repeat_rate", "training_pass"),
    *_integers("lease_seconds"),
    *_bigints("created"),
    *_integers("consent", default="0"),
    *_texts("languages", default='["en"]'),
    sa.UniqueConstraint("name"),
    _one_of("policy", "finish_first", "random", "priority"),
    _one_of("state", "open", "paused", "closed"),
)
_table(
    "study_version",
    _key("study"),
    *_integers("number"),
    *_texts("question"),
    *_integers("scale"),
    *_texts("criteria", "guidelines", "sha256"),
    *_bigints("created"),
    *_integers("corrections", default="0"),
    *_texts("spans", default="[]"),
    sa.UniqueConstraint("study_id", "number"),
)
_table(
    "consent",
    _key("study"),
    *_integers("number"),
    *_texts("text", "votes"),
    *_integers("retention_days", nullable=True),
    *_bigints("created"),
    sa.UniqueConstraint("study_id", "number"),
    _one_of("votes", "keep", "erase"),
)
_table(
    "consent_text",
    _key("study"),
    *_texts("sha256", "text"),
    *_bigints("created"),
    sa.UniqueConstraint("study_id", "sha256"),
)
_table(
    "rater",
    _key("study"),
    *_texts("name", "kind", "role", "state", "detail"),
    *_integers("quota", nullable=True),
    *_bigints("consented", nullable=True),
    *_texts("excluded", nullable=True),
    *_bigints("created"),
    *_bigints("seen", nullable=True),
    *_integers("asked", default="0"),
    *_bigints(*_TALLIES, default="0"),
    *_texts("folded", default=""),
    *_integers("agreed", default="0"),
    *_bigints("forgotten", nullable=True),
    *_texts("identity", nullable=True),
    *_texts("contact", default=""),
    *_bigints("removed", nullable=True),
    sa.UniqueConstraint("study_id", "name"),
    _one_of("kind", "human", "llm", "simulated"),
    _one_of("role", "rater", "reviewer", "owner"),
    _one_of("state", "training", "active", "paused"),
    _index("rater_of_identity", "study_id", "identity", unique=True),
    _index("rater_of_name", "study_id", "folded"),
)
_table(
    "invite",
    _key("study"),
    *_texts("role", "token_sha256", "note"),
    *_integers("max_uses"),
    *_integers("uses", default="0"),
    *_bigints("expires"),
    *_bigints("revoked", nullable=True),
    *_bigints("created"),
    _key("rater", nullable=True),
    sa.UniqueConstraint("token_sha256"),
    _index("invite_of_rater", "rater_id"),
)
_table(
    "session",
    _key("study"),
    _key("rater"),
    *_texts("token_sha256"),
    *_bigints("expires"),
    *_bigints("revoked", nullable=True),
    *_bigints("created"),
    *_texts("device", nullable=True),
    *_bigints("seen", nullable=True),
    sa.UniqueConstraint("token_sha256"),
    _index("session_of_rater", "rater_id"),
)
_table(
    "prompt",
    _key("study"),
    *_texts("key", "messages", "split"),
    *_texts("rubric", nullable=True),
    sa.UniqueConstraint("study_id", "key"),
    _one_of("split", "train", "held_out"),
)
_table(
    "response",
    _key("study"),
    _key("prompt"),
    *_texts("key", "text", "sampler", "sampling"),
    *_integers("finished"),
    *_texts("steps", nullable=True),
    sa.UniqueConstraint("study_id", "key"),
)
_table(
    "image",
    _key("study"),
    *_texts("name", "content"),
    *_integers("width", "height"),
    sa.UniqueConstraint("study_id", "name"),
)
_table(
    "item",
    _key("study"),
    *_texts("key"),
    _key("prompt"),
    *_texts("lengths", "samplers", "origin"),
    *_integers("round"),
    *_texts("pool"),
    *_texts("gold", "explanation", nullable=True),
    *_integers("overlap", nullable=True),
    *_integers("second", "target"),
    *_reals("priority"),
    *_bigints("shuffle"),
    *_texts("excluded", nullable=True),
    *_bigints("created"),
    *_integers("answered", "leased", "skipped", "a_votes", "b_votes", "ties", "both_bad", default="0"),
    *_integers("room"),
    *_integers("started", default="0"),
    *_bigints("touched"),
    sa.UniqueConstraint("study_id", "key"),
    _one_of("pool", "production", "gold", "training"),
    _index("item_fresh", "study_id", "pool", "round", "shuffle", where="started = 0"),
    _index("item_fresh_priority", "study_id", "pool", "round", "priority", "shuffle", where="started = 0"),
    _index("item_of_round", "study_id", "pool", "round"),
    _index("item_open", "study_id", "pool", "shuffle", where="room > 0"),
    _index("item_open_round", "study_id", "pool", "round", where="room > 0"),
    _index("item_started", "study_id", "pool", "round", "room", "touched", where="started = 1 AND room > 0"),
)
sa.Table(
    "item_response",
    _metadata,
    sa.Column("item_id", _KEY, sa.ForeignKey("item.id"), primary_key=True, autoincrement=False),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    _key("response"),
)
_table(
    "assignment",
    _key("study"),
    _key("item"),
    _key("rater"),
    *_integers("repeat"),
    *_texts("chosen_by", "state"),
    *_integers("extra", "counted"),
    _key("study_version", "version_id"),
    *_texts("order"),
    *_bigints("lease_ends", "created"),
    *_bigints("closed", nullable=True),
    sa.UniqueConstraint("item_id", "rater_id", "repeat"),
    _one_of("state", "leased", "done", "skipped", "expired", "released"),
    _index("assignment_by_item", "rater_id", "item_id"),
    _index("assignment_held", "rater_id", where="state = 'leased'"),
    _index("assignment_leased", "study_id", "lease_ends", where="state = 'leased'"),
    _index("assignment_of_rater", "rater_id", "state", "closed"),
)
_table(
    "judgement",
    _key("study"),
    _key("assignment"),
    _key("item"),
    _key("rater"),
    _key("study_version", "version_id"),
    *_integers("revision", "latest"),
    *_texts("displayed", "order", "verdict"),
    *_integers("strength"),
    *_texts("content", nullable=True),
    *_texts("criteria", "flags", "reason"),
    *_integers("repeat", "extra"),
    *_bigints("active_ms", "wall_ms", nullable=True),
    *_integers("changes"),
    *_texts("client", "idempotency_key"),
    *_texts("excluded", nullable=True),
    *_bigints("created"),
    *_texts("correction", "spans", nullable=True),
    sa.UniqueConstraint("study_id", "idempotency_key"),
    sa.UniqueConstraint("assignment_id", "revision"),
    sa.CheckConstraint("strength BETWEEN 0 AND 3", name="known_strength"),
    _index("judgement_of_item", "item_id"),
    _index("judgement_of_rater", "rater_id", "id"),
    _index("judgement_of_study", "study_id", "id"),
)
_table(
    "notice",
    _key("study"),
    *_texts("kind"),
    _key("item", nullable=True),
    _key("rater", nullable=True),
    _key("judgement", nullable=True),
    *_texts("text"),
    *_bigints("created"),
    *_bigints("closed", nullable=True),
    *_texts("closed_by", nullable=True),
    _one_of("kind", "flag", "skip", "practice", "note", "reason", "disagreement", "model", "round", "agreement"),
    _index("notice_of_item", "item_id"),
    _index("notice_of_rater", "rater_id"),
    _index("notice_waiting", "study_id", "kind", "id", where="closed IS NULL"),
)
_table(
    "recruitment",
    _key("study"),
    *_texts("platform", "entry", "code", "screened_code", "return_url"),
    *_integers("answers"),
    *_integers("places", nullable=True),
    *_integers("again", "minutes"),
    *_reals("pay"),
    *_texts("currency"),
    *_reals("fee", "seconds"),
    *_bigints("created"),
    sa.UniqueConstraint("study_id"),
    sa.UniqueConstraint("entry"),
    _one_of("platform", "prolific", "mturk", "sona"),
)
_table(
    "visit",
    _key("study"),
    _key("rater"),
    *_texts("platform", "worker", "task", "submission", "state"),
    *_bigints("base", "started"),
    *_bigints("ended", nullable=True),
    _one_of("platform", "prolific", "mturk", "sona"),
    _one_of("state", "active", "complete", "screened", "left"),
    _index("visit_of_rater", "rater_id", "id"),
    _index("visit_of_worker", "study_id", "worker"),
)
_table(
    "token",
    _key("study"),
    *_texts("name", "rights", "token_sha256"),
    *_bigints("expires", "revoked", "used", nullable=True),
    *_bigints("created"),
    sa.UniqueConstraint("token_sha256"),
    _index("token_of_study", "study_id", "id"),
)
_table(
    "api_request",
    _key("token"),
    *_texts("idempotency_key", "sha256", "reply"),
    *_bigints("created"),
    sa.UniqueConstraint("token_id", "idempotency_key"),
)
_table("alarm", _key("study"), *_reals("agreement"), *_integers("low"), sa.UniqueConstraint("study_id"))
_table(
    "webhook",
    _key("study"),
    *_texts("url", "secret", "topics"),
    *_bigints("since", "created"),
    *_bigints("removed", nullable=True),
    *_texts("former_secret", default=""),
    *_bigints("former_until", nullable=True),
    _index("webhook_of_study", "study_id", "id"),
)
_table(
    "delivery",
    _key("webhook"),
    _key("notice"),
    *_texts("message"),
    *_integers("attempts"),
    *_bigints("due", "delivered", nullable=True),
    *_texts("error"),
    sa.UniqueConstraint("webhook_id", "notice_id"),
    _index("delivery_due", "webhook_id", "due", where="due IS NOT NULL"),
)
_table(
    "live",
    _key("study"),
    *_texts("model", "against"),
    *_integers("turns"),
    *_texts("openings", "sampling"),
    *_integers("round"),
    *_bigints("created"),
    _index("live_of_study", "study_id", "id"),
)
_table(
    "conversation", _key("study"), _key("rater"), *_bigints("created"), *_bigints("ended", nullable=True),
    _index("conversation_of_rater", "rater_id", "id"),
)  # fmt: skip
_table(
    "turn",
    _key("study"),
    _key("conversation"),
    *_integers("number"),
    _key("live"),
    _key("prompt"),
    *_texts("order"),
    _key("response", "model_response_id", nullable=True),
    _key("response", "against_response_id", nullable=True),
    _key("item", nullable=True),
    *_texts("idempotency_key"),
    *_bigints("created"),
    sa.UniqueConstraint("study_id", "idempotency_key"),
    sa.UniqueConstraint("conversation_id", "number"),
)
_table(
    "completion", _key("study"), *_texts("key"), _key("rater"), *_texts("messages", "text", nullable=True),
    *_texts("sampler"), *_integers("finished"), *_texts("trial", "arm"), *_integers("failed"), *_reals("seconds"),
    *_reals("outcome", nullable=True), *_bigints("said", nullable=True), _key("response", nullable=True),
    *_bigints("created"),
    _one_of("arm", "", "a", "b"), sa.UniqueConstraint("study_id", "key"), _index("completion_of_rater", "rater_id"),
    _index("completion_of_trial", "study_id", "trial", "id"),
    _index("completion_kept", "study_id", "created", where="text IS NOT NULL"),
)  # fmt: skip
_table(
    "event",
    _key("study", nullable=True),
    *_bigints("at"),
    *_texts("actor", "action", "subject", "detail"),
    _index("event_of_study", "study_id", "action", "id"),
)
_table(
    "export",
    _key("study"),
    *_bigints("last_judgement", "last_event"),
    *_texts("settings", "manifest"),
    *_bigints("created"),
)
_table(
    "erasure",
    _key("study"),
    _key("rater"),
    *_texts("mark", "name", "actor"),
    *_integers("votes_too", "backups_too"),
    *_bigints("since"),
    *_integers("exports"),
    *_bigints("created"),
)
