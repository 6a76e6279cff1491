"""Opening: new, old, newer, foreign, damaged and missing databases; backups and migrations."""

import re
import sqlite3
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from tutelage.errors import TutelageError
from tutelage.people import Store, backup, count_study, list_votes, open_store, open_study
from tutelage.people.migrations import MIGRATIONS, Migration
from tutelage.people.store import opening, schema
from tutelage.people.store.backup import backups

from .worlds import Clock, raters_of, study_of, work

FIRST_SCHEMA = Path(__file__).with_name("schema_v1.sql")
COLOUR = Migration(2, "a colour for raters", ("ALTER TABLE rater ADD COLUMN colour TEXT",))


def small_study(url: str | Path) -> int:
    """A database with four votes in it; its study."""
    store = open_store(url, clock=Clock())
    study = study_of(store, 2)
    work(store, raters_of(store, study, 2))
    store.close()
    return study.id


def columns(store: Store, table: str) -> set[str]:
    with store.read() as connection:
        return {column["name"] for column in sa.inspect(connection).get_columns(table)}


def newer_program(monkeypatch: pytest.MonkeyPatch, *steps: Migration) -> None:
    """Pretend that this program is of the version that the last step leads to."""
    monkeypatch.setattr(opening, "MIGRATIONS", steps)
    monkeypatch.setattr(schema, "VERSION", steps[-1].version)


def test_an_older_schema_is_migrated_after_a_backup(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    study_id = small_study(url)
    newer_program(
        monkeypatch, COLOUR, Migration(3, "and a shape", ("ALTER TABLE rater ADD COLUMN shape TEXT",))
    )
    store = open_store(url)
    assert {"colour", "shape"} <= columns(store, "rater")
    assert len(list_votes(store, study_id)) == 4
    if store.path is not None:
        (saved,) = backups(store.path)
        assert "-v1-" in saved.name
        monkeypatch.undo()
        assert len(list_votes(open_store(saved), study_id)) == 4
    else:
        with store.read() as connection:
            (saved_in,) = [
                n for n in sa.inspect(connection).get_schema_names() if n.startswith("tutelage_backup_v1")
            ]
            count = connection.exec_driver_sql(f'SELECT count(*) FROM "{saved_in}".judgement').scalar()
        assert count == 4
    store.close()


def test_opening_again_migrates_nothing_and_makes_no_backup(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / "study.sqlite"
    small_study(path)
    newer_program(monkeypatch, COLOUR)
    for _ in range(3):
        open_store(path).close()
    assert len(backups(path)) == 1


def test_a_migration_that_fails_changes_nothing_and_names_the_backup(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study_id = small_study(url)
    newer_program(monkeypatch, COLOUR, Migration(3, "broken", ("ALTER TABLE nothing ADD COLUMN x TEXT",)))
    with pytest.raises(TutelageError, match=r"nothing was changed. Its backup is .*v1"):
        open_store(url)
    monkeypatch.undo()
    store = open_store(url)
    assert "colour" not in columns(store, "rater")
    assert len(list_votes(store, study_id)) == 4
    store.close()


def test_a_newer_schema_is_refused_and_left_alone(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    study_id = small_study(url)
    with monkeypatch.context() as newer:
        newer_program(newer, COLOUR)
        open_store(url).close()
    with pytest.raises(TutelageError, match=r"newer version of Tutelage.*version 2.*knows 1"):
        open_store(url)
    newer_program(monkeypatch, COLOUR)
    store = open_store(url)
    assert len(list_votes(store, study_id)) == 4
    store.close()


def test_the_first_schema_and_its_migrations_make_what_a_new_database_has(folder: Path) -> None:
    """`schema_v1.sql` is frozen: whoever changes the tables adds a migration, not a line to that file."""
    old = folder / "old.sqlite"
    with sqlite3.connect(old) as connection:
        connection.executescript(FIRST_SCHEMA.read_text(encoding="utf-8"))
        connection.execute("INSERT INTO schema_version VALUES (1, 0)")
    connection.close()
    open_store(old).close()
    open_store(folder / "new.sqlite").close()
    assert described(old) == described(folder / "new.sqlite")


def described(path: Path) -> dict[str, object]:
    """Columns, keys and indexes of every table."""
    engine = sa.create_engine(f"sqlite:///{path}")
    found: dict[str, object] = {}
    with engine.connect() as connection:
        inspector = sa.inspect(connection)
        for table in inspector.get_table_names():
            found[table] = [
                [
                    (c["name"], str(c["type"]), c["nullable"], c["default"])
                    for c in inspector.get_columns(table)
                ],
                sorted(str(sorted(key.items(), key=str)) for key in inspector.get_unique_constraints(table)),
                sorted(str(sorted(key.items(), key=str)) for key in inspector.get_foreign_keys(table)),
            ]
        indexes = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE type = 'index'").all()
    engine.dispose()
    found["indexes"] = {name: re.sub(r"\s+", " ", sql) for name, sql in indexes if sql}
    return found


def test_the_migrations_are_in_order_and_end_at_the_present() -> None:
    assert [step.version for step in MIGRATIONS] == list(range(2, schema.VERSION + 1))


def test_a_damaged_file_is_refused_with_the_name_of_its_backup(folder: Path) -> None:
    path = folder / "study.sqlite"
    study_id = small_study(path)
    store = open_store(path)
    saved = backup(store)
    store.close()
    content = bytearray(path.read_bytes())
    for page in range(3, len(content) // 4096):
        content[page * 4096 : page * 4096 + 200] = b"\xff" * 200
    path.write_bytes(bytes(content))
    with pytest.raises(TutelageError, match=f"damaged.*newest backup is {re.escape(saved)}"):
        open_store(path)
    Path(saved).replace(path)
    store = open_store(path)
    assert len(list_votes(store, study_id)) == 4
    store.close()


def test_a_file_that_was_cut_off_is_refused(folder: Path) -> None:
    path = folder / "study.sqlite"
    small_study(path)
    path.write_bytes(path.read_bytes()[:6000])
    with pytest.raises(TutelageError, match=r"damaged.*no backup"):
        open_store(path)


def test_a_database_that_went_missing_is_not_begun_afresh(folder: Path) -> None:
    path = folder / "study.sqlite"
    small_study(path)
    store = open_store(path)
    saved = backup(store)
    store.close()
    path.unlink()
    with pytest.raises(TutelageError, match=f"there was one.*{re.escape(saved)}"):
        open_store(path)
    assert not path.exists()


def test_a_backup_holds_everything_while_others_write(folder: Path) -> None:
    store = open_store(folder / "study.sqlite", clock=time.time)
    study = study_of(store, 2)
    work(store, raters_of(store, study, 2))
    with store.write():
        saved = backup(store, "busy")
    store.close()
    copy = open_store(saved)
    assert count_study(copy, open_study(copy).id).judgements == 4
    copy.close()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(b"prompt,chosen,rejected\n", "not a SQLite database"), (b"\x00" * 5000, "not a SQLite database")],
)
def test_another_kind_of_file_is_refused(folder: Path, content: bytes, complaint: str) -> None:
    path = folder / "study.csv"
    path.write_bytes(content)
    with pytest.raises(TutelageError, match=complaint):
        open_store(path)
    assert path.read_bytes() == content


def test_another_programs_database_is_refused(folder: Path) -> None:
    path = folder / "photos.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE photo (id INTEGER)")
    connection.close()
    with pytest.raises(TutelageError, match=r"holds tables .photo"):
        open_store(path)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("mysql://somewhere/db", "not supported"),
        (":memory:", "lose every vote"),
        ("sqlite://", "lose every vote"),
        (".", "is a folder"),
    ],
)
def test_addresses_that_make_no_sense_are_refused(url: str, complaint: str) -> None:
    with pytest.raises(TutelageError, match=complaint):
        open_store(url)


def test_a_network_drive_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_file_system", lambda _: "nfs4")
    with pytest.raises(TutelageError, match=r"network drive .nfs4.*PostgreSQL"):
        open_store(folder / "study.sqlite")
    assert not list(folder.iterdir())


def test_nothing_is_made_where_something_should_be(folder: Path) -> None:
    with pytest.raises(TutelageError, match="no database at"):
        open_store(folder / "typo.sqlite", create=False)
    assert not list(folder.iterdir())


def test_a_missing_or_ambiguous_study_is_named(lite: Store) -> None:
    with pytest.raises(TutelageError, match="holds 0 studies"):
        open_study(lite)
    study_of(lite, 1, name="one")
    study_of(lite, 1, name="two")
    with pytest.raises(TutelageError, match=r"holds 2 studies .one, two."):
        open_study(lite)
    with pytest.raises(TutelageError, match="no study 'three'"):
        open_study(lite, "three")
    assert open_study(lite, "two").name == "two"


def test_the_address_never_shows_a_password() -> None:
    engine = sa.create_engine("postgresql+psycopg://anna:secret@localhost/study")
    assert "secret" not in Store(engine).address


def test_votes_wait_for_the_disk_and_leases_do_not(lite: Store, folder: Path) -> None:
    """SQLite's documentation: with a log, 2 (FULL) syncs at every commit and 1 (NORMAL) keeps the order only."""

    def waits(store: Store, **asked: bool) -> int:
        with store.write(**asked) as connection:
            return int(connection.exec_driver_sql("PRAGMA synchronous").scalar_one())

    assert [waits(lite, lasting=lasting) for lasting in (False, True, False)] == [1, 2, 1]
    assert waits(lite) == 2
    fleeting = open_store(folder / "simulated.sqlite", lasting=False)
    assert waits(fleeting) == 1
    fleeting.close()
