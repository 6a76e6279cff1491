"""Forgetting, on both databases: nothing that tells who it was is left, in tables, trail, exports, file or backups."""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from tiers import long_except

from tutelage.base.errors import TutelageError
from tutelage.people import (
    Answer,
    Presentation,
    Store,
    Unavailable,
    add_rater,
    backup,
    consent,
    count_study,
    create_study,
    exclude,
    get_rater,
    list_events,
    list_raters,
    list_votes,
    new_key,
    open_store,
    personal_link,
    preferences,
    present,
    start_session,
    write_note,
)
from tutelage.people.answers import Correction, Span
from tutelage.people.export import export_study
from tutelage.people.recruitment import Recruitment, Visitor
from tutelage.people.settings import Consent
from tutelage.people.store import migrations, rater_erasure, schema
from tutelage.people.store.consents import ask_consent, raters_due
from tutelage.people.store.rater_erasure import Retention, finish_forgetting, forget, forget_due
from tutelage.people.store.visits import enter, list_visits, recruit

from ..worlds import Clock, raters_of, study_of, work

WORDS = ("Persephone", "PERSEPHONE", "persephone", "pomegranate")
"""The name, and a word that stands in every text."""


def everything(store: Store) -> str:
    """All cells of all tables."""
    with store.read() as connection:
        rows = [row for table in schema.metadata.sorted_tables for row in connection.execute(sa.select(table))]
    return "\n".join(str(cell) for row in rows for cell in row)


def everything_in_backup(store: Store, saved: str) -> str:
    """All cells of all tables of a backup."""
    if store.path is not None:
        with closing(open_store(saved, create=False)) as copy:
            return everything(copy)
    with store.read() as connection:
        connection.exec_driver_sql(f'SET LOCAL search_path TO "{saved.rpartition(" ")[2]}"')
        rows = [row for table in schema.metadata.sorted_tables for row in connection.execute(sa.select(table))]
    return "\n".join(str(cell) for row in rows for cell in row)


def spoke(store: Store, study_id: int) -> int:
    """A rater who has left a trace everywhere; the number."""
    rater = add_rater(store, study_id, "Persephone", detail={"mail": "pomegranate@example.org"}).id
    consent(store, rater)
    said = Answer("left", 1, reason="pomegranate", flags=("broken",), client="pomegranate")
    said = replace(said, correction=Correction("pomegranate"), spans=(Span(0, 0, 3, "fact"),))
    work(store, [rater], lambda question: replace(said, key=new_key()))
    exclude(store, study_id, "judgement", str(list_votes(store, study_id, rater=rater)[0].id), "pomegranate")
    write_note(store, rater, "pomegranate!")
    personal_link(store, rater, note="for Persephone")
    start_session(store, rater)
    exclude(store, study_id, "rater", "Persephone", "pomegranate")
    return rater


@pytest.mark.parametrize("votes", ["keep", "erase"])
def test_nothing_that_tells_who_it_was_is_left(store: Store, folder: Path, votes: str) -> None:
    study = study_of(store, 6)
    present(store, study.id, Presentation(corrections=True, spans=("fact",)))
    ask_consent(store, study.id, Consent("We keep it.", votes))  # type: ignore[arg-type]
    others = raters_of(store, study, 2)
    work(store, others[:1])
    untouched = list(list_votes(store, study.id))
    rater = spoke(store, study.id)
    export_study(store, study.id, folder / "export")
    saved = backup(store)
    done = forget(store, rater)
    assert (done.erased, done.exports, done.rewritten) == (votes == "erase", 1, True)
    assert done.backups == ()
    assert [word for word in WORDS if word in everything_in_backup(store, saved)] == []
    found = everything(store)
    assert [word for word in WORDS if word in found] == []
    if store.path is not None:
        files = list(store.path.parent.glob(f"{store.path.name}*"))
        assert sum("backup" in path.name for path in files) == 1
        stored = b"".join(path.read_bytes() for path in files)
        assert [word for word in WORDS if word.encode() in stored] == []
    left = list_votes(store, study.id)
    assert [vote for vote in left if vote.rater != done.name] == untouched
    assert len([vote for vote in left if vote.rater == done.name]) == (0 if votes == "erase" else 6)
    kept = [vote for vote in left if vote.rater == done.name]
    assert {(vote.correction, len(vote.spans)) for vote in kept} == ({(None, 1)} if votes == "keep" else set())
    (event,) = list_events(store, study.id, action="forgotten")
    assert (event.subject, event.detail) == (done.name, {"votes": "erased" if votes == "erase" else "kept"})
    with pytest.raises(TutelageError, match="already"):
        forget(store, rater)
    work(store, others[1:])  # the study goes on, and counts what is there
    assert count_study(store, study.id).answered == len(
        [vote for vote in list_votes(store, study.id) if vote.rater != done.name]
    )


class Killed(BaseException):
    """The end of the program, which nothing catches."""


@pytest.mark.parametrize(
    "dies_in",
    long_except(["_rewrite", "erase_in_backups"], ["_rewrite", "backups_since", "erase_in_backups", "copies_beside"]),
)
def test_forgetting_that_was_interrupted_is_finished_at_the_next_start(
    store: Store, monkeypatch: pytest.MonkeyPatch, dies_in: str
) -> None:
    study = study_of(store, 4)
    present(store, study.id, Presentation(corrections=True, spans=("fact",)))
    rater = spoke(store, study.id)
    saved = backup(store)

    def die(*args: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(rater_erasure, dies_in, die)
        with pytest.raises(Killed):
            forget(store, rater)
    found = everything(store)
    assert [word for word in WORDS if word in found] == []  # what is left to do names nobody
    (done,) = finish_forgetting(store, study.id)
    assert (done.backups, done.rewritten, done.erased) == ((), True, False)
    assert [word for word in WORDS if word in everything_in_backup(store, saved)] == []
    if store.path is not None:
        files = b"".join(path.read_bytes() for path in store.path.parent.glob(f"{store.path.name}*"))
        assert [word for word in WORDS if word.encode() in files] == []
    assert finish_forgetting(store, study.id) == ()
    assert get_rater(store, rater).name == done.name


def test_backups_that_cannot_be_deleted_now_are_deleted_at_the_next_start(
    lite: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(lite, 2)
    (rater,) = raters_of(lite, study, 1)
    saved = Path(backup(lite))

    def refuse(*args: object) -> None:
        raise Unavailable("not now")

    with monkeypatch.context() as patched:
        patched.setattr(rater_erasure, "delete_backups", refuse)
        with pytest.raises(Unavailable):
            forget(lite, rater, backups_too=True)
    assert saved.exists()
    Retention(lite, study.id).look()
    assert not saved.exists()
    assert finish_forgetting(lite, study.id) == ()


def test_kept_votes_decide_what_they_decided(store: Store) -> None:
    study = study_of(store, 4)
    raters = raters_of(store, study, 2)
    work(store, raters)
    before, counted = preferences(store, study.id), count_study(store, study.id)
    forget(store, raters[0])
    assert count_study(store, study.id) == counted
    assert [(row.chosen, row.p_chosen) for row in preferences(store, study.id)] == [
        (row.chosen, row.p_chosen) for row in before
    ]


def test_backups_are_deleted_where_that_is_asked_for(store: Store, clock: Clock) -> None:
    study = study_of(store, 2)
    older = backup(store, "older")
    clock.seconds += 10
    (rater,) = raters_of(store, study, 1)
    clock.seconds += 10
    backup(store, "newer")
    assert forget(store, rater, backups_too=True).backups == ()
    if store.path is not None:
        assert [str(path) for path in store.path.parent.glob("*backup*")] == [older]
        with closing(sqlite3.connect(older)) as file:
            assert file.execute("PRAGMA quick_check").fetchone() == ("ok",)
    else:
        with store.read() as connection:
            names = [name for name in sa.inspect(connection).get_schema_names() if "backup" in name]
        assert len(names) == 1
        assert names[0] in older


def test_identifiers_of_platforms_are_erased_and_the_place_comes_back(store: Store) -> None:
    study = study_of(store, 2)
    recruit(store, study.id, Recruitment("mturk", places=1))
    rater, _ = enter(store, study.id, Visitor("Persephone", "hit", "pomegranate"))
    forget(store, rater.id)
    assert [word for word in WORDS if word in everything(store)] == []
    (visit,) = list_visits(store, study.id)
    assert (visit.state, visit.worker) == ("left", "")
    assert enter(store, study.id, Visitor("Persephone", "hit", "again"))[0].id != rater.id


def test_owners_and_models_are_not_forgotten(store: Store) -> None:
    study = study_of(store, 2)
    for more in ({"role": "owner"}, {"kind": "llm"}):
        rater = add_rater(store, study.id, str(more), **more)  # type: ignore[arg-type]
        with pytest.raises(TutelageError, match="raters"):
            forget(store, rater.id)


def test_retention_counts_from_the_last_sign_of_life_by_the_text_agreed_to(store: Store, clock: Clock) -> None:
    study = study_of(store, 4)
    early, late = raters_of(store, study, 2)
    consent(store, early)  # the standard text keeps people
    ask_consent(store, study.id, Consent("", "erase", 30))
    consent(store, late)
    clock.seconds += 29 * 86_400
    assert raters_due(store, study.id) == ()
    clock.seconds += 2 * 86_400
    assert [rater.id for rater in raters_due(store, study.id)] == [late]
    (done,) = forget_due(store, study.id)
    assert get_rater(store, late).name == done.name
    assert forget_due(store, study.id) == ()
    assert get_rater(store, early).forgotten is None


def test_a_backup_that_cannot_be_changed_is_named_and_not_touched(lite: Store, clock: Clock) -> None:
    """Damaged, of another version, a copy by hand, a dump: each stays byte for byte as it is."""
    study = study_of(lite, 2)
    present(lite, study.id, Presentation(corrections=True, spans=("fact",)))
    rater = spoke(lite, study.id)
    assert lite.path is not None
    kept = {}
    for label in ("damaged", "older", "sound"):
        clock.seconds += 2
        kept[label] = Path(backup(lite, label))
    broken = bytearray(kept["damaged"].read_bytes())
    broken[5000:9000] = b"x" * 4000
    kept["damaged"].write_bytes(broken)
    with closing(sqlite3.connect(kept["older"])) as file, file:
        file.execute("UPDATE tutelage_revision SET version_num = 'v1'")
    kept["copy"] = lite.path.with_name("by hand.db")
    shutil.copy(kept["sound"], kept["copy"])
    kept["dump"] = lite.path.with_name("study.dump")
    kept["dump"].write_bytes(b"PGDMP\x01 Persephone")
    lite.path.with_name("notes.txt").write_text("nothing")
    with closing(open_store(lite.path.with_name("other.sqlite"))) as other:
        add_rater(other, create_study(other, "another").id, "Persephone")  # another person
    before = {label: path.read_bytes() for label, path in kept.items()}
    made = kept["sound"].stat().st_mtime_ns
    done = forget(lite, rater)
    assert {label for label, path in kept.items() if path.read_bytes() != before[label]} == {"sound"}
    assert kept["sound"].stat().st_mtime_ns == made, "the order of backups is that of their times"
    assert sorted(done.backups) == sorted(
        [
            f"{kept['damaged']} (it is damaged)",
            f"{kept['older']} (its schema revision is not {migrations.newest()})",
            str(kept["copy"]),
            str(kept["dump"]),
        ]
    )
    assert [word for word in WORDS if word.encode() in kept["sound"].read_bytes()] == []
    assert list(lite.path.parent.glob("*partial*")) == []


def test_a_backup_that_was_changed_is_a_study_like_the_present_one(lite: Store, folder: Path) -> None:
    study = study_of(lite, 4)
    raters = raters_of(lite, study, 2)
    work(lite, raters)
    saved = backup(lite)
    forget(lite, raters[0])
    with closing(open_store(saved, create=False)) as copy:
        assert [(row.chosen, row.p_chosen) for row in preferences(copy, study.id)] == [
            (row.chosen, row.p_chosen) for row in preferences(lite, study.id)
        ]
        assert count_study(copy, study.id) == count_study(lite, study.id)
        assert [rater.name for rater in list_raters(copy, study.id)] == [
            rater.name for rater in list_raters(lite, study.id)
        ]
