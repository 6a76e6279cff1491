"""Revisions of the tables, kept by Alembic.

`schema` describes the tables as they are now. A new database is made from `schema` and stamped with the newest
revision; an older one is brought there by the files in `versions/`, in one transaction and after a backup. The tests
hold a migrated database against a new one.

To change the tables: change `schema`, and add `versions/v3_what_changes.py` with `revision = "v3"`,
`down_revision = "v2"` and an `upgrade()` that runs on SQLite and on PostgreSQL (`op.batch_alter_table` where SQLite
has to make a table anew). A revision never imports `schema`, which goes on changing, and is never edited once it was
released.
"""

import threading
from functools import cache
from pathlib import Path

import sqlalchemy as sa

from tutelage.people.store import schema

FOLDER = Path(__file__).parent
_ONE_AT_A_TIME = threading.Lock()
"""Alembic's `op` and `context` are global to the process."""


@cache
def revisions(folder: Path) -> tuple[str, ...]:
    """The known revisions, oldest first, from the file names `v1_….py`. Opening a database does not load Alembic."""
    names = [path.name.partition("_")[0] for path in (folder / "versions").glob("v*_*.py")]
    return tuple(sorted(names, key=lambda name: int(name[1:])))


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
