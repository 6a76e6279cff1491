"""Opening: new, old, newer, foreign, damaged and missing databases; backups and migrations."""

import contextlib
import json
import multiprocessing
import re
import shutil
import sqlite3
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.config import Config
from alembic.script import ScriptDirectory

from tutelage.base.errors import TutelageError
from tutelage.commands.doctor.study import check_study
from tutelage.people import (
    Selection,
    Store,
    add_items,
    add_rater,
    backup,
    consent,
    count_study,
    get_rater,
    label_study,
    list_events,
    list_raters,
    list_studies,
    list_votes,
    open_store,
    open_study,
    set_overlap,
    submit,
)
from tutelage.people.export_rows import preference_row
from tutelage.people.platforms import Visitor
from tutelage.people.recruiting import Recruitment
from tutelage.people.store import migrations, opening, schema
from tutelage.people.store.backup import backups, newest_backup
from tutelage.people.store.consents import Consent, ask_consent, consent_of
from tutelage.people.store.migrations.versions import v1_baseline
from tutelage.people.store.recruitments import recruit
from tutelage.people.store.visits import enter, list_visits
from tutelage.people.store.votes import vote_row

from ..conftest import fresh_database
from ..worlds import Clock, asked, better, item_rows, raters_of, records, study_of, work

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
        self.monkeypatch, self.folder = monkeypatch, folder

    def __call__(self, *statements: str) -> None:
        scripts = self.folder / "newer%20program"
        shutil.copytree(migrations.FOLDER, scripts, ignore=shutil.ignore_patterns("__pycache__"))
        number = int(NEWEST[1:])
        for statement in statements:
            text = (
                f"revision, down_revision = 'v{number + 1}', 'v{number}'\ndef upgrade():\n    {statement}\n"
            )
            number += 1
            head = "import sqlalchemy as sa\nfrom alembic import op\n"
            (scripts / "versions" / f"v{number}_test.py").write_text(head + text)
        self.monkeypatch.setattr(migrations, "FOLDER", scripts)

    def gone(self) -> None:
        self.monkeypatch.undo()
        shutil.rmtree(self.folder / "newer%20program")


def test_an_older_schema_is_migrated_after_a_backup(url: str, newer_program: NewerProgram) -> None:
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
                n
                for n in sa.inspect(connection).get_schema_names()
                if n.startswith(f"tutelage_backup_{NEWEST}")
            ]
            count = connection.exec_driver_sql(f'SELECT count(*) FROM "{saved_in}".judgement').scalar()
        assert count == 4
    store.close()


def test_opening_again_migrates_nothing_and_makes_no_backup(
    folder: Path, newer_program: NewerProgram
) -> None:
    path = folder / "study.sqlite"
    small_study(path)
    newer_program(COLOUR)
    for _ in range(3):
        open_store(path).close()
    assert len(backups(path)) == 1


def test_a_migration_that_fails_changes_nothing_and_names_the_backup(
    url: str, newer_program: NewerProgram
) -> None:
    study_id = small_study(url)
    newer_program(COLOUR, BROKEN)
    with pytest.raises(TutelageError, match=rf"nothing was changed. Its backup is .*{NEWEST}"):
        open_store(url)
    newer_program.gone()
    store = open_store(url)
    assert "colour" not in columns(store, "rater")
    assert len(list_votes(store, study_id)) == 4
    store.close()


def test_a_migration_that_breaks_a_reference_changes_nothing(
    folder: Path, newer_program: NewerProgram
) -> None:
    path = folder / "study.sqlite"
    study_id = small_study(path)
    newer_program("op.execute('DELETE FROM rater')")
    with pytest.raises(TutelageError, match="refer to rows that are not there"):
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
    newer = f"v{int(NEWEST[1:]) + 1}"
    with pytest.raises(TutelageError, match=rf"newer version of Tutelage.*version {newer}.*knows {NEWEST}"):
        open_store(url)
    newer_program(COLOUR)
    store = open_store(url)
    assert len(list_votes(store, study_id)) == 4
    store.close()


def test_the_first_schema_and_its_migrations_make_what_a_new_database_has(folder: Path) -> None:
    """`v1/study.sql` is frozen: a change of the tables is a new migration, never a changed line in that file."""
    old = folder / "old.sqlite"
    first_version(str(old))
    open_store(old).close()
    open_store(folder / "new.sqlite").close()
    assert described(f"sqlite:///{old}") == described(f"sqlite:///{folder / 'new.sqlite'}")


def test_the_baseline_is_the_first_schema(folder: Path) -> None:
    first_version(str(folder / "frozen.sqlite"))
    engine = sa.create_engine(f"sqlite:///{folder / 'baseline.sqlite'}")
    v1_baseline.metadata.create_all(engine)
    engine.dispose()
    frozen, baseline = (described(f"sqlite:///{folder / name}.sqlite") for name in ("frozen", "baseline"))
    assert baseline == frozen


def test_the_revisions_from_nothing_make_what_a_new_database_has(
    url: str, folder: Path, request: pytest.FixtureRequest
) -> None:
    engine = sa.create_engine(
        url.replace("postgresql", "postgresql+psycopg") if ":" in url else f"sqlite:///{url}"
    )
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
                [
                    (c["name"], str(c["type"]), c["nullable"], c["default"])
                    for c in inspector.get_columns(table)
                ],
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
            found["indexes"] = {
                name: re.sub(r"\s+", " ", sql) for name, what, sql in rows if what == "index" and sql
            }
            found["counted on"] = {
                name for name, what, sql in rows if what == "table" and "AUTOINCREMENT" in sql
            }
    engine.dispose()
    return found


def test_the_revisions_are_in_order_and_named_by_their_files() -> None:
    config = Config()
    config.set_main_option("script_location", str(migrations.FOLDER))
    walked = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert tuple(reversed(walked)) == migrations.revisions(migrations.FOLDER)
    assert walked[0] == NEWEST


def first_version(url: str) -> None:
    """Make the database of `v1/study.sql`, which the program with version 1 of the tables wrote, at `url`."""
    memory = sqlite3.connect(":memory:")
    memory.executescript(FIRST_STUDY.read_text(encoding="utf-8"))
    if "://" not in url:
        with sqlite3.connect(url) as file:
            memory.backup(file)
        file.close()
        return
    engine = sa.create_engine(url.replace("postgresql", "postgresql+psycopg"))
    with engine.begin() as connection:
        v1_baseline.metadata.create_all(connection)
        for table in v1_baseline.metadata.sorted_tables:
            names = [column.name for column in table.columns]
            listed = ", ".join(f'"{name}"' for name in names)
            rows = [
                dict(zip(names, row, strict=True))
                for row in memory.execute(f'SELECT {listed} FROM "{table.name}"')
            ]
            if rows:
                connection.execute(table.insert(), rows)
            if "id" in names:
                last = f'(SELECT max(id) FROM "{table.name}")'
                connection.exec_driver_sql(
                    f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), {last})"
                )
    engine.dispose()


def test_a_study_of_version_1_says_what_it_said_then(url: str) -> None:
    """`v1/expected.json` holds what the program of version 1 read from `v1/study.sql`."""
    first_version(url)
    store = open_store(url, clock=Clock(1_700_001_000.0))
    expected = json.loads((HERE.parent / "v1" / "expected.json").read_text(encoding="utf-8"))
    assert list_studies(store) == ("tutoring", "ranks")
    for name, then in expected.items():
        study = open_study(store, name)
        labelled = label_study(store, study.id, Selection(ties="keep"))
        votes = [
            vote_row(vote) | {"rater": vote.rater}
            for vote in list_votes(store, study.id, every_revision=True)
        ]
        assert plain([as_then(row) for row in votes]) == then["votes"]
        assert plain([preference_row(row, name) for row in labelled.rows]) == then["preferences"]
        assert dict(labelled.fates) == then["fates"]
        assert plain(asdict(count_study(store, study.id))) == then["counts"]
        raters = plain([asdict(rater) for rater in list_raters(store, study.id)])
        assert [as_then(row) for row in raters] == then["raters"]
    store.close()


def test_practice_is_taken_out_of_the_counts_of_an_older_study(url: str) -> None:
    """Two raters have practised: one from a platform, with a visit of three answers, and one with a quota."""
    store = open_store(url, clock=Clock())
    study = study_of(store, 6)
    practice = [replace(row, key=f"practice {row.key}") for row in item_rows(2, pool="training", gold="b")]
    add_items(store, study.id, *records(2)[:2], practice)
    recruit(store, study.id, Recruitment("mturk", answers=3))
    visitor, _ = enter(store, study.id, Visitor("W1", "task", "submission"))
    local = add_rater(store, study.id, "local", training=True, quota=4)
    raters = (visitor.id, local.id)
    for rater in (*raters, *raters, *raters):
        question = asked(store, rater)
        submit(store, question.id, replace(better(question), flags=("other",), reason="x", active_ms=100))
    said = {rater: list_votes(store, study.id, rater=rater) for rater in raters}
    after, visits = list_raters(store, study.id), list_visits(store, study.id)
    assert [rater.tallies.answered for rater in after] == [1, 1]
    with store.write(alone=True) as connection:
        for rater in raters:
            left = [vote.displayed["choice"] for vote in said[rater] if vote.pool == "training"].count("left")
            more = {"answered": 2, "left_chosen": left, "right_chosen": 2 - left, "shorter_chosen": 2}
            more |= {"flagged": 2, "timed": 2, "active_ms": 200} | (
                {"quota": 2} if rater == visitor.id else {}
            )
            values = {name: schema.rater.c[name] + count for name, count in more.items()}
            connection.execute(schema.rater.update().where(schema.rater.c.id == rater).values(values))
        connection.execute(schema.visit.update().values(base=schema.visit.c.base + 2))
        connection.execute(schema.revision.update().values(version_num="v10"))
    store.close()
    store = open_store(url, clock=Clock())
    assert list_raters(store, study.id) == after
    assert list_visits(store, study.id) == visits
    store.close()


def test_who_agreed_to_the_former_standard_text_is_asked_again(url: str) -> None:
    """Under the rules about votes and retention that there were; a text of the study's own stays, and so does a
    standard text to which nobody agreed."""
    store = open_store(url, clock=Clock())
    asks = {"plain": None, "ruled": Consent("", "erase", 90), "own": Consent("Ours."), "nobody": None}
    raters = {}
    for name, asked_for in asks.items():
        study = study_of(store, 1, name=name)
        if asked_for is not None:
            ask_consent(store, study.id, asked_for)
        raters[name] = add_rater(store, study.id, f"{name} rater").id
        if name != "nobody":
            consent(store, raters[name])
    with store.write(alone=True) as connection:
        connection.execute(schema.revision.update().values(version_num="v11"))
    store.close()
    for _ in range(2):
        store = open_store(url, clock=Clock())
        found = {name: open_study(store, name) for name in asks}
        assert {name: study.consent for name, study in found.items()} == {
            "plain": 1, "ruled": 2, "own": 1, "nobody": 0,
        }  # fmt: skip
        assert {name: get_rater(store, rater).agreed for name, rater in raters.items()} == {
            "plain": 0, "ruled": 1, "own": 1, "nobody": 0,
        }  # fmt: skip
        for number in (1, 2):
            assert consent_of(store, found["ruled"].id, number) == asks["ruled"]
        assert [
            event.subject for event in list_events(store, found["ruled"].id, action="consent_version")
        ] == ["2", "1"]
        store.close()


def as_then(row: dict[str, Any]) -> dict[str, Any]:
    """The row of a vote or a rater without what later versions say besides."""
    of_raters = ("fills_places", "agreed", "forgotten", "identity", "contact", "removed")
    later = of_raters if "tallies" in row else ("kind", "ratings", "correction", "spans")
    return {name: value for name, value in row.items() if name not in later}


def plain(value: object) -> Any:
    return json.loads(json.dumps(value))


def test_a_study_of_version_1_goes_on(url: str) -> None:
    first_version(url)
    store = open_store(url, clock=time.time)
    study = open_study(store, "tutoring")
    before = {vote.id for vote in list_votes(store, study.id)}
    set_overlap(store, study.id, 5, ["c0"])
    (question,) = work(store, raters_of(store, study, 1, start=7))
    assert question.item == "c0"
    (new,) = {vote.id for vote in list_votes(store, study.id)} - before
    assert new > max(before)
    store.close()


def test_several_programs_open_an_old_database_at_once(folder: Path) -> None:
    path = folder / "study.sqlite"
    first_version(str(path))
    context = multiprocessing.get_context("spawn")
    programs = [context.Process(target=open_and_read, args=(str(path),)) for _ in range(3)]
    for program in programs:
        program.start()
    for program in programs:
        program.join(120)
    assert [program.exitcode for program in programs] == [0, 0, 0]
    assert [saved.name.split("-")[1] for saved in backups(path)] == ["v1"]


def open_and_read(path: str) -> None:
    store = open_store(path)
    assert list_votes(store, open_study(store, "ranks").id)
    store.close()


@pytest.mark.parametrize("lock", ["", "IMMEDIATE", "EXCLUSIVE"])
def test_opening_waits_for_a_program_that_is_at_work_in_an_old_database(folder: Path, lock: str) -> None:
    """Whatever lock that program holds while this one switches to write-ahead logging."""
    path = folder / "study.sqlite"
    first_version(str(path))
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


def test_the_revision_of_an_older_database_is_told_and_nothing_is_migrated(url: str) -> None:
    first_version(url)
    for _ in range(2):
        assert opening.database_revision(url)[1] == "v1"
        (check,) = check_study(url)
        assert (check.subject, check.state) == ("database", "warning")
    open_store(url, create=False).close()
    assert opening.database_revision(url)[1] == NEWEST
    subjects = [check.subject for check in check_study(url)]
    assert {"database", "backup"} <= set(subjects)
    assert any(subject.endswith(": inbox") for subject in subjects)  # it holds several studies


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
