"""Backups as files, on both databases and from each to the other: what is restored is what was written."""

import json
import stat
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.people import (
    Answer,
    Store,
    add_rater,
    exclude,
    next_assignment,
    open_store,
    personal_link,
    rater_of_session,
    start_session,
    submit,
)
from tutelage.people.export import export_study
from tutelage.people.settings import Consent
from tutelage.people.store import migrations, schema
from tutelage.people.store.archive import restore_archive, write_archive
from tutelage.people.store.consents import ask_consent
from tutelage.people.store.rater_erasure import forget

from ..conftest import fresh_database
from ..worlds import Clock, raters_of, study_of, work


@pytest.fixture(params=["sqlite", "postgresql"])
def elsewhere(request: pytest.FixtureRequest, folder: Path) -> str:
    """The address of another database, of either kind, that does not exist yet."""
    if request.param == "sqlite":
        return str(folder / "restored" / "study.sqlite")
    return fresh_database(request.getfixturevalue("postgres"))


def lived(store: Store) -> int:
    """A study in which much has happened; its number."""
    study = study_of(store, 6)
    anna, bert, carl = raters_of(store, study, 3)
    work(store, [anna, bert])
    exclude(store, study.id, "rater", "rater 1", 'He said: "é\u2028\n=1+1"')
    question = next_assignment(store, carl)
    assert question is not None or carl
    add_rater(store, study.id, "olga", role="owner")
    personal_link(store, anna)
    return study.id


def everything(store: Store) -> dict[str, list[tuple[object, ...]]]:
    with store.read() as connection:
        return {
            table.name: [
                tuple(row) for row in connection.execute(sa.select(table).order_by(*table.primary_key.columns))
            ]
            for table in schema.metadata.sorted_tables
        }


def exported(store: Store, study_id: int, folder: Path) -> dict[str, bytes]:
    export_study(store, study_id, folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_restored_study_is_the_same_and_exports_the_same(store: Store, folder: Path, elsewhere: str) -> None:
    study_id = lived(store)
    session = start_session(store, 1)
    backup = folder / "study.backup"
    written = write_archive(store, backup)
    assert stat.S_IMODE(backup.stat().st_mode) == 0o600
    restored = restore_archive(elsewhere, backup)
    assert restored == written
    with closing(open_store(elsewhere, create=False, clock=Clock())) as again:
        assert everything(again) == everything(store)
        assert rater_of_session(again, session) == rater_of_session(store, session)
        store.clock = Clock()
        assert exported(again, study_id, folder / "two") == exported(store, study_id, folder / "one")


def test_what_comes_after_restoring_gets_new_numbers(store: Store, folder: Path, elsewhere: str) -> None:
    """Also where the rows with the greatest numbers were erased: a frozen moment goes by numbers."""
    study = study_of(store, 4)
    ask_consent(store, study.id, Consent("text", "erase", None))
    first, second = raters_of(store, study, 2)
    with store.write() as connection:
        connection.execute(schema.rater.update().values(agreed=1))
    work(store, [first, second])
    with store.read() as connection:
        greatest = connection.scalar(sa.select(sa.func.max(schema.judgement.c.id)))
    forget(store, first)
    forget(store, second)
    write_archive(store, folder / "study.backup")
    restore_archive(elsewhere, folder / "study.backup")
    with closing(open_store(elsewhere, create=False, clock=Clock())) as again:
        rater = add_rater(again, study.id, "new")
        question = next_assignment(again, rater.id)
        assert question is not None
        assert submit(again, question.id, Answer("left", 1)).judgement > greatest


def test_nothing_is_written_over(store: Store, url: str, folder: Path, elsewhere: str) -> None:
    study_of(store, 2)
    backup = folder / "study.backup"
    write_archive(store, backup)
    before = backup.read_bytes()
    with pytest.raises(TutelageError, match="exists"):
        write_archive(store, backup)
    assert backup.read_bytes() == before
    known = everything(store)
    with pytest.raises(TutelageError, match="already"):
        restore_archive(url, backup)
    assert everything(store) == known
    restore_archive(elsewhere, backup)
    with pytest.raises(TutelageError, match="already"):
        restore_archive(elsewhere, backup)


def changed(backup: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    """Exchange a part of a backup."""
    with zipfile.ZipFile(backup) as archive:
        parts = {each: archive.read(each) for each in archive.namelist()}
    parts[name] = change(parts[name])
    with zipfile.ZipFile(backup, "w") as archive:
        for each, content in parts.items():
            archive.writestr(each, content)


REVISION = f'"{migrations.newest()}"'.encode()
FAULTS: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "a row": ("rater.jsonl", lambda text: text.replace(b"rater 0", b"rater X"), "match"),
    "a row less": ("rater.jsonl", lambda text: text.split(b"\n", 1)[1], "match"),
    "the format": ("manifest.json", lambda text: text.replace(b"backup/1", b"backup/9"), "format"),
    "a newer version": ("manifest.json", lambda text: text.replace(b'"r1_', b'"r999_'), "newer"),
    "an older revision": ("manifest.json", lambda text: text.replace(REVISION, b'"v12"'), "released"),
    "no revision": ("manifest.json", lambda text: text.replace(REVISION, b"null"), "released"),
    "manifest": ("manifest.json", lambda text: b"nothing", "manifest"),
    "a count": ("manifest.json", lambda text: json.dumps(_counted(json.loads(text))).encode(), "instead"),
}


def _counted(manifest: dict[str, dict[str, dict[str, int]]]) -> object:
    manifest["tables"]["rater"]["rows"] += 1
    return manifest


@pytest.mark.parametrize("fault", FAULTS)
def test_a_backup_that_was_changed_is_refused_and_nothing_is_made(lite: Store, folder: Path, fault: str) -> None:
    study = study_of(lite, 2)
    raters_of(lite, study, 2)
    backup, target = folder / "study.backup", folder / "new.sqlite"
    write_archive(lite, backup)
    name, change, complaint = FAULTS[fault]
    changed(backup, name, change)
    before = backup.read_bytes()
    with pytest.raises(TutelageError, match=complaint):
        restore_archive(str(target), backup)
    assert list(folder.glob("new.sqlite*")) == []
    assert backup.read_bytes() == before


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0"])
def test_another_file_is_no_backup(folder: Path, content: bytes) -> None:
    path = folder / "other"
    path.write_bytes(content)
    with pytest.raises(TutelageError, match="Tutelage"):
        restore_archive(str(folder / "new.sqlite"), path)
    assert not (folder / "new.sqlite").exists()


def test_a_file_that_cannot_be_read_is_not_called_something_else(folder: Path) -> None:
    with pytest.raises(TutelageError, match=r"study.backup"):
        restore_archive(str(folder / "new.sqlite"), folder / "study.backup")
