"""Metadata of the tables, and columns, checks and indexes that several tables share."""

from collections.abc import Iterator

from sqlalchemy import BigInteger, CheckConstraint, Column, ColumnElement, ForeignKey, Index, Integer, MetaData
from sqlalchemy.types import TypeEngine

metadata = MetaData()

Key: TypeEngine[int] = BigInteger().with_variant(Integer, "sqlite")


def id_() -> Column[int]:
    """Primary key of a table."""
    return Column("id", Key, primary_key=True, autoincrement=True)


def of_study() -> Column[int]:
    """Foreign key to the study of a row."""
    return Column("study_id", Key, ForeignKey("study.id"), nullable=False)


def required(kind: type[TypeEngine], *names: str) -> Iterator[Column]:
    """Columns of a type that are NOT NULL."""
    return (Column(name, kind, nullable=False) for name in names)


def count(name: str) -> Column[int]:
    """An integer column with default 0."""
    return Column(name, Integer, nullable=False, server_default="0")


def one_of(column: str, *values: str) -> CheckConstraint:
    """Check constraint that a text column holds one of `values`."""
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=f"known_{column}")


def partial(name: str, where: ColumnElement[bool], *columns: Column) -> None:
    """Add a partial index of the rows that satisfy `where`."""
    Index(name, *columns, sqlite_where=where, postgresql_where=where)
