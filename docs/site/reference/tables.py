"""The page about the database of a study, from the definitions of its tables and their dictionary."""

from sqlalchemy import CheckConstraint, Column, Table, UniqueConstraint

from reference.markdown import page, table
from tutelage.people.store.schema import metadata
from tutelage.people.store.schema.dictionary import TABLES, meaning

INTRODUCTION = """\
A study is one database, SQLite in a file or PostgreSQL, with the same tables. To read it, an export is the better
way ([collecting](../collecting.md#for-owners)): the tables change with releases, by migrations that run when a
database is opened. Do not write to it.

Times are milliseconds since the epoch; JSON is stored as text. Columns are NOT NULL unless they are marked with `?`.
Keys named `id` are internal; files and people use `key` and `name`. Answers of people are only ever added; every other
change comes with an `event`. Redundant counts change in the same transaction as the rows that they count."""


def pages() -> dict[str, str]:
    parts = [part for each in metadata.sorted_tables for part in about(each)]
    return {"reference/database.md": page("Database of a study", INTRODUCTION, *parts)}


def about(each: Table) -> list[str]:
    rows = [
        (
            f"`{column.name}`",
            type_of(column) + ("" if not column.nullable else " ?"),
            " ".join(filter(None, (meaning(each.name, column.name), leads_to(column)))),
        )
        for column in each.columns
    ]
    return [
        f"## {each.name}",
        TABLES[each.name],
        table(("column", "type", "meaning"), rows),
        "\n".join(constraints(each)),
    ]


def type_of(column: Column) -> str:
    return str(column.type).lower()


def leads_to(column: Column) -> str:
    return ", ".join(
        f"→ [{key.column.table.name}](#{key.column.table.name})" for key in sorted(column.foreign_keys, key=str)
    )


def constraints(each: Table) -> list[str]:
    """What the database itself refuses, and its indexes, in a fixed order."""
    unique = [[column.name for column in one.columns] for one in each.constraints if isinstance(one, UniqueConstraint)]
    checks = [str(one.sqltext) for one in each.constraints if isinstance(one, CheckConstraint)]
    indexes = [[column.name for column in index.columns] for index in each.indexes]
    return [
        *(f"- unique: {quoted(names)}" for names in sorted(unique)),
        *(f"- check: `{text}`" for text in sorted(checks)),
        *(f"- index: {quoted(names)}" for names in sorted(indexes)),
    ]


def quoted(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
