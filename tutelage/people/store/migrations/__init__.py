"""Revisions of the tables, kept by Alembic.

`schema` describes the tables as they are now. A new database is made from `schema` and stamped with the newest
revision; one of an earlier release is migrated by the files in `versions/`, in one transaction and after a backup. The
tests hold a migrated database against a new one.

A revision is called `r1_1a2b3c4d`: its number, and the digest of the tables that it leads to, so that databases of
versions that were never released are told from those of a release. Its file is `versions/r1_1a2b3c4d_baseline.py`.

Until 0.1.0 is released the only revision is the baseline. To change the tables before that, change `schema` and the
baseline alike; afterwards change `schema`, and add `versions/r2_DIGEST_what_changes.py` with an `upgrade()` that runs
on SQLite and on PostgreSQL (`op.batch_alter_table` where SQLite has to make a table anew). The tests say the digest. A
revision never imports `schema`, which goes on changing, and is never edited once it was released.
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
"""Alembic's `op` and `context` are global to the process."""


@cache
def revisions(folder: Path) -> tuple[str, ...]:
    """The known revisions, oldest first, from the names of their files. Opening a database does not load Alembic."""
    names = ["_".join(path.stem.split("_")[:2]) for path in (folder / "versions").glob("r*_*_*.py")]
    return tuple(sorted(names, key=number))


def number(revision: str) -> int:
    """The number of a revision; 0 where the name is none of a released version."""
    found = re.fullmatch(r"r(\d+)_[0-9a-f]{8}", revision)
    return int(found[1]) if found else 0


def check_revision(revision: str, what: str) -> None:
    """Check that this program knows the revision of `what`, a database or a backup.

    Raises:
        TutelageError: it was written by a newer version, or by one that was never released.
    """
    known = revisions(FOLDER)
    if revision in known:
        return
    tables = f"its tables are of revision {revision}, this program knows {', '.join(known)}"
    if number(revision) > number(known[-1]):
        raise TutelageError(
            f"{what} was written by a newer version of Tutelage ({tables}); upgrade Tutelage. Nothing was changed."
        )
    raise TutelageError(
        f"{what} was written by a version of Tutelage that was never released ({tables}), and only that version opens "
        "it. Nothing was changed."
    )


def newest() -> str:
    """The revision that `schema` describes."""
    return revisions(FOLDER)[-1]


def upgrade(connection: sa.Connection, to: str = "head") -> None:
    """Run the missing revisions within the transaction of this connection."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    with _ONE_AT_A_TIME:
        command.upgrade(config, to)


def stamp(connection: sa.Connection, revision: str) -> None:
    """Write down that the tables are of this revision."""
    schema.revision.create(connection, checkfirst=True)
    connection.execute(schema.revision.insert(), {"version_num": revision})
