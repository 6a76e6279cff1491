"""Tables of recruiting: the platform of a study, and the visits of raters from there.

A study may recruit on a platform (`recruitment`, one row at most). A visit is a stay of somebody who came from there;
`worker`, `task` and `submission` are the platform's identifiers, the only place where they are kept.
"""

from sqlalchemy import BigInteger, Column, Float, ForeignKey, Index, Integer, Table, Text

from tutelage.people.platforms import PLATFORMS
from tutelage.people.store.schema.columns import Key, id_, metadata, of_study, one_of

recruitment = Table(
    "recruitment",
    metadata,
    id_(),
    Column("study_id", Key, ForeignKey("study.id"), nullable=False, unique=True),
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
    one_of("platform", *PLATFORMS),
    sqlite_autoincrement=True,
)

visit = Table(
    "visit",
    metadata,
    id_(),
    of_study(),
    Column("rater_id", Key, ForeignKey("rater.id"), nullable=False),
    Column("platform", Text, nullable=False),
    Column("worker", Text, nullable=False),
    Column("task", Text, nullable=False),
    Column("submission", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("base", BigInteger, nullable=False),
    Column("started", BigInteger, nullable=False),
    Column("ended", BigInteger),
    one_of("platform", *PLATFORMS),
    one_of("state", "active", "complete", "screened", "left"),
    sqlite_autoincrement=True,
)
Index("visit_of_worker", visit.c.study_id, visit.c.worker)
Index("visit_of_rater", visit.c.rater_id, visit.c.id)
