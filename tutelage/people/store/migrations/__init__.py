"""Schema migrations with Alembic.

`schema` describes the current tables. A new database is created from `schema` and stamped with the newest revision; a
database of an earlier release is migrated by the files in `versions/`, in one transaction and after a backup. The tests
compare a migrated database with a new one.

A revision is named like `r1_1a2b3c4d`: its number, and a digest of the resulting tables, so that databases of
unreleased versions can be distinguished from those of releases. Its file is `versions/r1_1a2b3c4d_baseline.py`.

Until the release of 0.1.0, the only revision is the baseline, which creates the tables of `schema`; after a change of
these, rename it. Afterwards, write the tables of 0.1.0 out in the baseline, change `schema`, and add
`versions/r2_DIGEST_what_changes.py` with an `upgrade()` that runs on SQLite and PostgreSQL (`op.batch_alter_table`
where SQLite has to recreate a table). The tests report the digest. Only the newest revision may import `schema`, which
keeps changing; no revision is edited once a later one is released.
"""

import re
import threading
from functools import cache
from pathlib import Path

import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.people.store import schema

FOLDER = Path(__file__).parent
_ONE_AT_A_TIME = threading.Lock()
"""Alembic's `op` and `context` are process-global."""


@cache
def revisions(folder: Path) -> tuple[str, ...]:
    """Known revisions, oldest first, from the file names. Opening a database does not import Alembic."""
    names = ["_".join(path.stem.split("_")[:2]) for path in (folder / "versions").glob("r*_*_*.py")]
    return tuple(sorted(names, key=number))


def number(revision: str) -> int:
    """Number of a revision; 0 if the name does not follow the scheme of releases."""
    match = re.fullmatch(r"r(\d+)_[0-9a-f]{8}", revision)
    return int(match[1]) if match else 0


def check_revision(revision: str, what: str) -> None:
    """Check that this version supports the revision of `what`, a database or a backup. Raises TutelageError if it was
    written by a newer or an unreleased version."""
    supported = revisions(FOLDER)
    if revision in supported:
        return
    tables = f"schema revision {revision}, supported: {', '.join(supported)}"
    if number(revision) > number(supported[-1]):
        raise TutelageError(
            f"{what} was written by a newer version of Tutelage ({tables}); upgrade Tutelage. Nothing was changed."
        )
    raise TutelageError(
        f"{what} was written by a version of Tutelage that was never released ({tables}), and only that version opens "
        "it. Nothing was changed."
    )


def newest() -> str:
    """Revision that `schema` describes."""
    return revisions(FOLDER)[-1]


def upgrade(connection: sa.Connection, to: str = "head") -> None:
    """Run the missing migrations within the transaction of this connection."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    with _ONE_AT_A_TIME:
        command.upgrade(config, to)


def stamp(connection: sa.Connection, revision: str) -> None:
    """Record the schema revision."""
    schema.revision.create(connection, checkfirst=True)
    connection.execute(schema.revision.insert(), {"version_num": revision})
