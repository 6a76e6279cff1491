"""Tables of raters, their invitations and sessions, and of visits from recruiting platforms.

A rater's tallies are denormalised. `folded` is the normalised name used for comparisons (`data.vote_rows.fold_name`);
`agreed` is the number of the consent text that the rater agreed to. At the time `forgotten`, all identifying data of
the rater was erased. An invitation with a `rater_id` is a personal link of that rater. Owners and reviewers with
external sign-in have an `identity`, the identifier at the sign-in provider, and a `contact`, their e-mail address;
`removed` is the time at which their access was removed. A session's `device` is NULL until a browser uses it. A study
may recruit on a platform (`recruitment`, at most one row). A visit belongs to a rater from that platform; `worker`,
`task` and `submission` are the platform's identifiers and are stored in no other table.
"""

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Index, Integer, Table, Text, UniqueConstraint

from tutelage.people.recruitment import PLATFORMS
from tutelage.people.store.schema.shared_columns import Key, count, id_, metadata, of_study, one_of, required

TALLIES = (
    "answered", "skipped", "left_chosen", "right_chosen", "ties", "longer_chosen", "shorter_chosen",
    "gold_seen", "gold_right", "repeat_seen", "repeat_same", "flagged", "timed", "active_ms",
)  # fmt: skip

rater = Table(
    "rater",
    metadata,
    id_(),
    of_study(),
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
    sqlite_autoincrement=True,
)
Index("rater_of_name", rater.c.study_id, rater.c.folded)
Index("rater_of_identity", rater.c.study_id, rater.c.identity, unique=True)

invite = Table(
    "invite",
    metadata,
    id_(),
    of_study(),
    Column("role", Text, nullable=False),
    Column("token_sha256", Text, nullable=False, unique=True),
    Column("note", Text, nullable=False),
    Column("max_uses", Integer, nullable=False),
    count("uses"),
    Column("expires", BigInteger, nullable=False),
    Column("revoked", BigInteger),
    Column("created", BigInteger, nullable=False),
    Column("rater_id", Key, ForeignKey("rater.id")),
    sqlite_autoincrement=True,
)
Index("invite_of_rater", invite.c.rater_id)

session = Table(
    "session",
    metadata,
    id_(),
    of_study(),
    Column("rater_id", Key, ForeignKey("rater.id"), nullable=False),
    Column("token_sha256", Text, nullable=False, unique=True),
    Column("expires", BigInteger, nullable=False),
    Column("revoked", BigInteger),
    Column("created", BigInteger, nullable=False),
    Column("device", Text),
    Column("seen", BigInteger),
    sqlite_autoincrement=True,
)
Index("session_of_rater", session.c.rater_id)


recruitment = Table(
    "recruitment",
    metadata,
    id_(),
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
    sqlite_autoincrement=True,
)

visit = Table(
    "visit",
    metadata,
    id_(),
    of_study(),
    Column("rater_id", Key, ForeignKey("rater.id"), nullable=False),
    *required(Text, "platform", "worker", "task", "submission", "state"),
    *required(BigInteger, "base", "started"),
    Column("ended", BigInteger),
    one_of("platform", *PLATFORMS),
    one_of("state", "active", "complete", "screened", "left"),
    sqlite_autoincrement=True,
)
Index("visit_of_worker", visit.c.study_id, visit.c.worker)
Index("visit_of_rater", visit.c.rater_id, visit.c.id)
