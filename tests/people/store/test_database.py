"""Opening: new, old, newer, foreign, damaged and missing databases; backups and migrations."""

import contextlib
import hashlib
import json
import re
import shutil
import sqlite3
import stat
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.config import Config
from alembic.script import ScriptDirectory
from forked import forking
from tiers import long_except

from tutelage.base.errors import TutelageError
from tutelage.commands.doctor.study_checks import check_study
from tutelage.people import Store, add_rater, backup, count_study, create_study, list_votes, open_store, open_study
from tutelage.people.export import export_study
from tutelage.people.store import database, migrations
from tutelage.people.store.backup import backups, newest_backup

from ..conftest import fresh_database
from ..worlds import Clock, open_and_read, raters_of, study_of, work

HERE = Path(__file__).parent
FIRST_STUDY = HERE.parent / "v1" / "study.sql"
COLOUR = "op.add_column('rater', sa.Column('colour', sa.Text))"
SHAPE = "op.add_column('rater', sa.Column('shape', sa.Text))"
BROKEN = "op.add_column('nothing', sa.Column('x', sa.Text))"
NEWEST = migrations.newest()


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


@pytest.fixture
def newer_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> "NewerProgram":
    return NewerProgram(monkeypatch, tmp_path)


class NewerProgram:
    """Pretends that this program has more revisions, which do what the statements say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.monkeypatch, self.scripts = monkeypatch, folder / "newer%20program"

    def __call__(self, *statements: str) -> None:
        shutil.copytree(migrations.FOLDER, self.scripts, ignore=shutil.ignore_patterns("__pycache__"))
        before = NEWEST
        for statement in statements:
            revision = f"r{migrations.number(before) + 1}_00000000"
            text = f"revision, down_revision = '{revision}', '{before}'\ndef upgrade():\n    {statement}\n"
            head = "import os\nimport sqlalchemy as sa\nfrom alembic import op\n"
            (self.scripts / "versions" / f"{revision}_test.py").write_text(head + text)
            before = revision
        self.monkeypatch.setattr(migrations, "FOLDER", self.scripts)

    def gone(self) -> None:
        self.monkeypatch.undo()
        shutil.rmtree(self.scripts)


def test_tables_of_an_earlier_release_are_migrated_after_a_backup(url: str, newer_program: NewerProgram) -> None:
    study_id = small_study(url)
    newer_program(COLOUR, SHAPE)
    store = open_store(url)
    assert {"colour", "shape"} <= columns(store, "rater")
    assert len(list_votes(store, study_id)) == 4
    if store.path is not None:
        (saved,) = backups(store.path)
        assert f"-{NEWEST}-" in saved.name
        newer_program.gone()
        assert len(list_votes(open_store(saved), study_id)) == 4
    else:
        with store.read() as connection:
            (saved_in,) = [
                n for n in sa.inspect(connection).get_schema_names() if n.startswith(f"tutelage_backup_{NEWEST}")
            ]
            count = connection.exec_driver_sql(f'SELECT count(*) FROM "{saved_in}".judgement').scalar()
        assert count == 4
    store.close()


def test_opening_again_migrates_nothing_and_makes_no_backup(folder: Path, newer_program: NewerProgram) -> None:
    path = folder / "study.sqlite"
    small_study(path)
    newer_program(COLOUR)
    for _ in range(3):
        open_store(path).close()
    assert len(backups(path)) == 1


def test_a_migration_that_fails_changes_nothing_and_names_the_backup(url: str, newer_program: NewerProgram) -> None:
    study_id = small_study(url)
    newer_program(COLOUR, BROKEN)
    with pytest.raises(TutelageError, match=rf"backup.*{NEWEST}"):
        open_store(url)
    newer_program.gone()
    store = open_store(url)
    assert "colour" not in columns(store, "rater")
    assert len(list_votes(store, study_id)) == 4
    store.close()


def test_a_migration_that_breaks_a_reference_changes_nothing(folder: Path, newer_program: NewerProgram) -> None:
    path = folder / "study.sqlite"
    study_id = small_study(path)
    newer_program("op.execute('DELETE FROM rater')")
    with pytest.raises(TutelageError, match="missing"):
        open_store(path)
    newer_program.gone()
    store = open_store(path)
    assert len(list_votes(store, study_id)) == 4
    store.close()


def test_a_newer_schema_is_refused_and_left_alone(url: str, newer_program: NewerProgram) -> None:
    study_id = small_study(url)
    newer_program(COLOUR)
    open_store(url).close()
    newer_program.gone()
    newer = f"r{migrations.number(NEWEST) + 1}_00000000"
    before = content(url)
    with pytest.raises(TutelageError, match=rf"newer.*{newer}.*{NEWEST}"):
        open_store(url)
    assert content(url) == before
    newer_program(COLOUR)
    store = open_store(url)
    assert len(list_votes(store, study_id)) == 4
    store.close()


def content(url: str) -> object:
    """What must not be altered: the bytes of a file, or the rows of every table, in whichever schema."""
    if "://" not in url:
        return Path(url).read_bytes()
    engine = sa.create_engine(url.replace("postgresql", "postgresql+psycopg"))
    with engine.connect() as connection:
        tables = connection.exec_driver_sql(
            "SELECT table_schema, table_name FROM information_schema.tables "
            "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2"
        ).all()
        rows = {
            (where, name): connection.exec_driver_sql(f'SELECT * FROM "{where}"."{name}" ORDER BY 1').all()
            for where, name in tables
        }
    engine.dispose()
    return rows


def unreleased(url: str, revision: str | None) -> None:
    """Let a database say that it is of a revision, or nothing at all, as versions did that were never released."""
    statements = [f"UPDATE tutelage_revision SET version_num = '{revision}'"]
    if revision is None:
        statements = ["DROP TABLE tutelage_revision", "CREATE TABLE schema_version (version INTEGER)"]
    address = url.replace("postgresql", "postgresql+psycopg") if "://" in url else f"sqlite:///{url}"
    engine = sa.create_engine(address)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()
    if "://" not in url:  # as a program left it that knew nothing of write-ahead logging
        with contextlib.closing(sqlite3.connect(url)) as file:
            file.execute("PRAGMA journal_mode=DELETE")


@pytest.mark.parametrize("revision", long_except(["v1", None], ["v1", "v12", "r1_00000000", "0", None]))
def test_tables_of_a_version_that_was_never_released_are_refused_and_left_alone(url: str, revision: str | None) -> None:
    """And the database loses nothing: with the revision that it had it opens, with all its votes."""
    study_id = small_study(url)
    unreleased(url, revision)
    before = content(url)
    what = "tutelage_revision" if revision is None else f"released.*{revision}.*{NEWEST}"
    for _ in range(2):
        for open_it in (open_store, database.database_revision):
            with pytest.raises(TutelageError, match=what) as refused:
                open_it(url)
            assert re.search("only that version opens|with the program that wrote it", str(refused.value))
    assert content(url) == before
    (check,) = check_study(url)
    assert (check.subject, check.state) == ("database", "fault")
    assert content(url) == before
    if revision is not None:
        unreleased(url, NEWEST)
        with contextlib.closing(open_store(url)) as store:
            assert len(list_votes(store, study_id)) == 4


def test_a_revision_is_named_by_the_tables_that_it_leads_to(folder: Path) -> None:
    """So that a database of a version between two releases is never taken for one of a release."""
    for revision in migrations.revisions(migrations.FOLDER):
        engine = sa.create_engine(f"sqlite:///{folder / revision}.sqlite")
        with engine.begin() as connection:
            migrations.upgrade(connection, revision)
        tables = json.dumps(described(engine.url), sort_keys=True, default=sorted)
        engine.dispose()
        digest = hashlib.sha256(tables.encode()).hexdigest()[:8]
        assert revision.partition("_")[2] == digest, f"name {revision} r{migrations.number(revision)}_{digest}"


def test_the_revisions_from_nothing_make_what_a_new_database_has(
    url: str, folder: Path, request: pytest.FixtureRequest
) -> None:
    engine = sa.create_engine(url.replace("postgresql", "postgresql+psycopg") if ":" in url else f"sqlite:///{url}")
    with engine.begin() as connection:
        migrations.upgrade(connection)
    migrated = described(engine.url)
    engine.dispose()
    new = other_url(url, folder, request)
    store = open_store(new)
    assert described(store.engine.url) == migrated
    store.close()


def other_url(url: str, folder: Path, request: pytest.FixtureRequest) -> str:
    """The address of another empty database of the same kind."""
    if "://" not in url:
        return str(folder / "other.sqlite")
    return fresh_database(request.getfixturevalue("postgres"))


def described(url: str | sa.URL) -> dict[str, object]:
    """Columns, keys, checks and indexes of every table."""
    engine = sa.create_engine(url)
    found: dict[str, object] = {}
    with engine.connect() as connection:
        inspector = sa.inspect(connection)
        for table in inspector.get_table_names():
            found[table] = [
                [(c["name"], str(c["type"]), c["nullable"], c["default"]) for c in inspector.get_columns(table)],
                *(
                    sorted(json.dumps(each, sort_keys=True, default=str) for each in look(table))
                    for look in (
                        inspector.get_unique_constraints,
                        inspector.get_foreign_keys,
                        inspector.get_check_constraints,
                        inspector.get_indexes,
                    )
                ),
                inspector.get_pk_constraint(table),
            ]
        if engine.dialect.name == "sqlite":
            rows = connection.exec_driver_sql("SELECT name, type, sql FROM sqlite_master").all()
            found["indexes"] = {name: re.sub(r"\s+", " ", sql) for name, what, sql in rows if what == "index" and sql}
            found["counted on"] = {name for name, what, sql in rows if what == "table" and "AUTOINCREMENT" in sql}
    engine.dispose()
    return found


def test_the_revisions_are_in_order_and_named_by_their_files() -> None:
    config = Config()
    config.set_main_option("script_location", str(migrations.FOLDER))
    walked = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert tuple(reversed(walked)) == migrations.revisions(migrations.FOLDER)
    assert walked[0] == NEWEST


def test_a_migration_that_is_killed_changes_nothing_and_is_done_by_the_next(
    folder: Path, newer_program: NewerProgram
) -> None:
    path = folder / "study.sqlite"
    study_id = small_study(path)
    newer_program(COLOUR, "os._exit(9)")
    killed = forking().Process(target=open_and_read, args=(str(path), str(newer_program.scripts)))
    killed.start()
    killed.join(120)
    assert killed.exitcode == 9
    newer_program.gone()
    with contextlib.closing(open_store(path)) as store:
        assert "colour" not in columns(store, "rater")
        assert len(list_votes(store, study_id)) == 4
    newer_program(COLOUR, SHAPE)
    with contextlib.closing(open_store(path)) as store:
        assert {"colour", "shape"} <= columns(store, "rater")
        assert len(list_votes(store, study_id)) == 4


def test_several_programs_migrate_a_database_at_once(folder: Path, newer_program: NewerProgram) -> None:
    path = folder / "study.sqlite"
    small_study(path)
    newer_program(COLOUR, SHAPE)
    arguments = (str(path), str(newer_program.scripts))
    programs = [forking().Process(target=open_and_read, args=arguments) for _ in range(3)]
    for program in programs:
        program.start()
    for program in programs:
        program.join(120)
    assert [program.exitcode for program in programs] == [0, 0, 0]
    assert [saved.name.split("-")[1] for saved in backups(path)] == [NEWEST]


@pytest.mark.parametrize("lock", ["", "IMMEDIATE", "EXCLUSIVE"])
def test_opening_waits_for_a_program_that_is_at_work_in_the_database(
    folder: Path, newer_program: NewerProgram, lock: str
) -> None:
    """Whatever lock that program holds while this one switches to write-ahead logging, and then migrates."""
    path = folder / "study.sqlite"
    small_study(path)
    with contextlib.closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA journal_mode=DELETE")
    newer_program(COLOUR)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute(f"BEGIN {lock}")
        other.execute("SELECT * FROM study").fetchall()
        release = threading.Timer(0.3, other.execute, ("COMMIT",))
        release.start()
        open_and_read(str(path))
        release.join()


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
    with pytest.raises(TutelageError, match=f"damaged.*newest sound backup is {re.escape(saved)}"):
        open_store(path)
    Path(saved).replace(path)
    store = open_store(path)
    assert len(list_votes(store, study_id)) == 4
    store.close()


def test_a_file_that_was_cut_off_is_refused(folder: Path) -> None:
    path = folder / "study.sqlite"
    small_study(path)
    path.write_bytes(path.read_bytes()[:6000])
    with pytest.raises(TutelageError, match=r"damaged.*backup"):
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
    ("content", "complaint"), [(b"prompt,chosen,rejected\n", "SQLite"), (b"\x00" * 5000, "SQLite")]
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
    with pytest.raises(TutelageError, match=r"photo"):
        open_store(path)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [("mysql://somewhere/db", "mysql"), (":memory:", "lose"), ("sqlite://", "lose"), (".", "folder")],
)
def test_addresses_that_make_no_sense_are_refused(url: str, complaint: str) -> None:
    with pytest.raises(TutelageError, match=complaint):
        open_store(url)


def test_a_network_drive_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_file_system", lambda _: "nfs4")
    with pytest.raises(TutelageError, match=r"nfs4.*PostgreSQL"):
        open_store(folder / "study.sqlite")
    assert not list(folder.iterdir())


def test_nothing_is_made_where_something_should_be(folder: Path) -> None:
    with pytest.raises(TutelageError, match="no database"):
        open_store(folder / "typo.sqlite", create=False)
    assert not list(folder.iterdir())


def test_the_revision_of_a_database_is_told_and_nothing_is_migrated(
    url: str, newer_program: NewerProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_study(url)
    newer_program(COLOUR)
    for _ in range(2):
        assert database.database_revision(url)[1] == NEWEST
        (check,) = check_study(url)
        assert (check.subject, check.state) == ("database", "warning")
    open_store(url, create=False).close()
    assert database.database_revision(url)[1] == migrations.newest() != NEWEST
    assert {"database", "backup"} <= {check.subject for check in check_study(url)}


def test_the_newest_backup_is_that_with_the_latest_time_in_its_name(store: Store, clock: Clock) -> None:
    assert newest_backup(store) is None
    backup(store, "zebra")
    clock.seconds += 3_600
    made, now = backup(store, "apple"), store.now()
    found = newest_backup(store)
    assert found is not None
    assert found[0] in made
    assert "apple" in found[0]
    assert 0 <= now - found[1] < 2_000


def test_a_missing_or_ambiguous_study_is_named(lite: Store) -> None:
    with pytest.raises(TutelageError, match="0 studies"):
        open_study(lite)
    study_of(lite, 1, name="one")
    study_of(lite, 1, name="two")
    with pytest.raises(TutelageError, match=r"2 studies.*one, two"):
        open_study(lite)
    with pytest.raises(TutelageError, match="'three'"):
        open_study(lite, "three")
    assert open_study(lite, "two").name == "two"


def test_the_address_never_shows_a_password() -> None:
    engine = sa.create_engine("postgresql+psycopg://anna:secret@localhost/study")
    assert Store(engine).address == "postgresql://anna:***@localhost/study"


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


def test_files_with_personal_data_are_the_owners_own(folder: Path) -> None:
    path = folder / "new" / "study.sqlite"
    with closing(open_store(path)) as store:
        study = create_study(store, "private")
        add_rater(store, study.id, "Ann")
        backup(store)
        export_study(store, study.id, folder / "named", names=True)
        export_study(store, study.id, folder / "plain")
        written = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert {"study.sqlite", "study.sqlite-wal"} <= written.keys()
    assert any("backup" in name for name in written)
    assert set(written.values()) == {0o600}
    assert stat.S_IMODE((folder / "named").stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "named" / "raters.jsonl").stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "plain").stat().st_mode) & 0o055
