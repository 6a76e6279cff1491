"""Tables of studies: a study, the versions of its question, its texts about consent.

A version's `spans` are the categories of words that raters may mark, its `corrections` whether they may write a better
response. A study's `consent` is the number of its present text about consent; 0 is the standard text. Its `languages`
are those in which raters may see its pages, the usual one first.
"""

from sqlalchemy import BigInteger, Column, Float, Integer, Table, Text, UniqueConstraint

from tutelage.people.store.schema.columns import id_, metadata, of_study, one_of

study = Table(
    "study",
    metadata,
    id_(),
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
    Column("criteria", Text, nullable=False),
    Column("guidelines", Text, nullable=False),
    Column("sha256", Text, nullable=False),
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
    Column("text", Text, nullable=False),
    Column("votes", Text, nullable=False),
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
    Column("sha256", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    UniqueConstraint("study_id", "sha256"),
    sqlite_autoincrement=True,
)
