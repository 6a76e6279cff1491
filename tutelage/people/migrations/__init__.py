"""Bringing an older database up to date.

`schema` describes the tables as they are now, and a new database is made from it. What an older database lacks is
written here, one step per version, in order; a step is never changed once it has been released. The steps run in one
transaction, after a backup; the tests hold a migrated database against a new one.

A step says what it needs in plain SQL that both SQLite and PostgreSQL understand, without importing `schema`, which
will have moved on when the step is run:

    MIGRATIONS = (
        Migration(2, "a colour for raters", ("ALTER TABLE rater ADD COLUMN colour TEXT",)),
    )
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Migration:
    """One step: what a database of `version - 1` needs to become one of `version`."""

    version: int
    what: str
    statements: tuple[str, ...]


MIGRATIONS: tuple[Migration, ...] = ()
