"""Checks of a study: each fault of it, made on purpose, is named with what to do; a study without one has none."""

import os
import random
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from people.worlds import QUIET, Clock, better, raters_of, records, study_of, work

from tutelage.commands.doctor import study_checks
from tutelage.commands.doctor.study_checks import AWAY, OLD_BACKUP, check_study
from tutelage.data.tables import read_table
from tutelage.people import (
    Answer,
    Item,
    Plan,
    add_items,
    backup,
    change_rater,
    consent,
    create_study,
    list_studies,
    list_votes,
    next_assignment,
    open_store,
    set_state,
    submit,
    write_note,
)
from tutelage.people.settings import Consent
from tutelage.people.store import migrations, schema
from tutelage.people.store.archive import write_archive
from tutelage.people.store.backup import record_archive
from tutelage.people.store.bulk import VOTES_IMPORTED
from tutelage.people.store.consents import ask_consent
from tutelage.people.vote_import import import_votes
from tutelage.people.vote_mapping import VoteMapping

DAY = 86_400


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def store(tmp_path, clock, monkeypatch):
    """An open database at the time of the clock, which `checks` of it use too."""
    opened = open_store(tmp_path / "study.sqlite", clock=clock)
    monkeypatch.setattr(study_checks, "open_store", lambda url, create: open_store(url, create=create, clock=clock))
    yield opened
    opened.close()


def checks(store):
    """The checks by subject; whatever is not well says what to do."""
    found = check_study(store.address)
    assert all(bool(each.advice) == (each.state != "ok") for each in found)
    assert len({each.subject for each in found}) == len(found)
    return {each.subject: each for each in found}


def not_well(store):
    return {subject: each.state for subject, each in checks(store).items() if each.state != "ok"}


def a_study(store, **changes):
    """A study of two raters who have agreed, with work left."""
    study = study_of(store, 6, replace(QUIET, **changes))
    raters = raters_of(store, study, 2)
    for rater in raters:
        consent(store, rater)
    return study, raters


def test_a_study_without_a_fault_has_none(store):
    _, raters = a_study(store)
    for rater in raters:
        question = next_assignment(store, rater)
        submit(store, question.id, better(question))
    assert not_well(store) == {"backup": "warning"}
    backup(store)
    assert not_well(store) == {}


def test_the_age_of_the_newest_backup_counts(store, clock):
    _, raters = a_study(store)
    work(store, raters)
    backup(store)
    clock.seconds += (OLD_BACKUP - 1) * DAY
    assert checks(store)["backup"].state == "ok"
    clock.seconds += 2 * DAY
    found = checks(store)["backup"]
    assert (found.state, f"{OLD_BACKUP + 1} days old" in found.result) == ("warning", True)


def test_a_backup_by_the_command_counts_wherever_it_is_now(store, clock, tmp_path):
    _, raters = a_study(store)
    work(store, raters)
    archive = tmp_path / "study.backup"
    write_archive(store, archive)
    record_archive(store, archive)
    assert checks(store)["backup"].state == "ok"
    assert str(archive) in checks(store)["backup"].result
    archive.rename(tmp_path / "elsewhere")
    clock.seconds += (OLD_BACKUP + 1) * DAY
    found = checks(store)["backup"]
    assert (found.state, "collect backup" in found.advice) == ("warning", True)
    backup(store)
    assert checks(store)["backup"].state == "ok"


def test_a_database_that_others_can_read_is_named(store):
    a_study(store)
    assert store.path.stat().st_mode & 0o777 == 0o600
    store.path.chmod(0o640)
    assert not_well(store) == {}
    store.path.chmod(0o644)
    assert not_well(store) == {"permissions": "warning"}


def test_imports_of_rejected_work_are_named(store, tmp_path):
    a_study(store)
    table = tmp_path / "votes.csv"
    rows = "Say,x,y,a,Ann,APPROVED\nSay,x,y,b,Bo,REJECTED\nSay,x,y,b,Cy,RETURNED\n"
    table.write_text(f"prompt,completion_a,completion_b,preference,evaluator,status\n{rows}")

    def imports(**mapping):
        study = create_study(store, f"study {len(list_studies(store))}")
        return study, import_votes(store, study.id, read_table(table), VoteMapping(**mapping))

    clean, _ = imports()
    kept, report = imports(keep_rejected=True)
    assert report.votes == 3
    old, _ = imports(keep_rejected=True)
    with store.write() as connection:  # as an earlier version recorded it
        mine = schema.event.c.study_id == old.id, schema.event.c.action == VOTES_IMPORTED
        connection.execute(schema.event.update().where(*mine).values(detail='{"new": 3, "known": 0}'))
    found = checks(store)
    assert f"{clean.name}: imports" not in found
    assert (found[f"{kept.name}: imports"].state, "2 rows" in found[f"{kept.name}: imports"].result) == ("ok", True)
    assert (found[f"{old.name}: imports"].state, "2 rows" in found[f"{old.name}: imports"].result) == ("warning", True)
    table.unlink()
    assert "cannot be read" in checks(store)[f"{old.name}: imports"].result


def test_open_items_are_missing(store):
    study = create_study(store, "empty", plan=QUIET)
    assert not_well(store) == {"items": "fault", "raters": "warning"}
    add_items(store, study.id, *records(1))
    raters = raters_of(store, study, 2)
    assert checks(store)["items"].state == "ok"
    set_state(store, study.id, "paused")
    assert "open the study" in checks(store)["items"].advice
    set_state(store, study.id, "open")
    work(store, raters)
    assert "asked nothing more" in checks(store)["items"].advice
    set_state(store, study.id, "closed")
    assert checks(store)["items"].state == "ok"


def test_quotas_that_the_items_cannot_fill_are_told(store):
    _, raters = a_study(store)
    change_rater(store, raters[0], state="active", quota=7)
    assert not_well(store) == {"quotas": "warning"}
    assert "ask for 7 more answers, and the items take 6" in checks(store)["quotas"].result
    change_rater(store, raters[0], state="active", quota=6)
    assert not_well(store) == {}


def test_one_rater_for_an_item_gives_no_agreement(store):
    a_study(store, overlap=1)
    assert not_well(store) == {"overlap": "warning"}


def test_golds_that_the_plan_wants_are_missing(store):
    study, _ = a_study(store, gold_rate=0.1)
    assert not_well(store) == {"golds": "warning"}
    prompts, completions, (pair,) = records(1, start=90)
    add_items(store, study.id, prompts, completions, [replace(Item.of(pair), pool="gold", gold="b")])
    assert not_well(store) == {}


def test_a_rater_who_guesses_is_named_as_on_the_owners_page(store):
    study = study_of(store, 60, Plan(overlap=4, gold_rate=0.0, repeat_rate=0.0))
    raters = raters_of(store, study, 4)
    coin = random.Random(0)
    for rater in raters:
        worst = rater == raters[-1]
        work(store, [rater], lambda q, worst=worst: Answer(coin.choice(("left", "right")), 1) if worst else better(q))
    found = checks(store)
    assert [subject for subject in found if subject.startswith("rater ")] == ["rater rater 3"]
    assert "chance is" in found["rater rater 3"].result


def test_raters_who_stay_away_are_named_while_there_is_work(store, clock):
    study, raters = a_study(store)
    clock.seconds += (AWAY + 1) * DAY
    assert not_well(store) == {"inactive": "warning"}
    assert "rater 0, rater 1" in checks(store)["inactive"].result
    change_rater(store, raters[0], state="paused")
    assert "1 of 1" in checks(store)["inactive"].result
    set_state(store, study.id, "closed")
    assert "inactive" not in checks(store)


def test_what_waits_in_the_inbox_is_counted(store):
    _, (first, _) = a_study(store)
    write_note(store, first, "Both sides look the same to me.")
    submit(store, next_assignment(store, first).id, Answer("left", 1, flags=("cut_off",)))
    backup(store)
    assert not_well(store) == {"inbox": "warning"}
    assert checks(store)["inbox"].result == "waiting: 1 flag, 1 note"


def test_a_text_that_raters_have_not_agreed_to(store):
    study, (first, _) = a_study(store)
    ask_consent(store, study.id, Consent(text="Anew."))
    assert "0 of 2" in checks(store)["consent"].result
    consent(store, first)
    found = checks(store)["consent"]
    assert (found.state, "1 of 2" in found.result, "version 1" in found.result) == ("warning", True, True)


def test_people_who_should_have_been_forgotten_are_a_fault(store, clock):
    study = study_of(store, 2)
    ask_consent(store, study.id, Consent(retention_days=3))
    (rater,) = raters_of(store, study, 1)
    consent(store, rater)
    assert checks(store)["retention"].state == "ok"
    clock.seconds += 4 * DAY
    assert checks(store)["retention"].state == "fault"
    assert "rater 0" in checks(store)["retention"].result


def test_subjects_begin_with_the_name_where_there_are_several_studies(store):
    a_study(store)
    create_study(store, "second", plan=QUIET)
    assert not_well(store) == {"second: items": "fault", "second: raters": "warning"}
    assert "tutoring: items" in checks(store)


def test_little_room_is_told(store, monkeypatch):
    a_study(store)
    usage = study_checks.shutil.disk_usage("/")
    monkeypatch.setattr(study_checks.shutil, "disk_usage", lambda folder: usage._replace(free=1_000))
    assert not_well(store) == {"disk": "warning"}


def test_a_database_of_an_older_version_is_left_alone(store, monkeypatch):
    a_study(store)
    older = migrations.newest()
    monkeypatch.setattr(study_checks, "newest", lambda: "v999")
    (found,) = check_study(store.address)
    assert (found.state, older in found.result) == ("warning", True)
    assert not list(store.path.parent.glob("*.backup-*"))


def damage(path, start):
    content = bytearray(path.read_bytes())
    content[start : start + 3000] = b"x" * 3000
    path.write_bytes(content)


@pytest.mark.parametrize("start", [4_096, 0])
def test_a_damaged_database_names_its_newest_sound_backup_and_how_to_restore_it(tmp_path, clock, start):
    """The command does what it says: run by a shell, it leaves a study without a fault, and the damaged file beside it.
    The newest backup is damaged as well, and passed over."""
    path = tmp_path / "a folder" / "study.sqlite"
    with closing(open_store(path, clock=clock)) as store:
        study, raters = a_study(store)
        work(store, raters[:1])
        sound = backup(store)
        clock.seconds += 2
        broken = Path(backup(store, "broken"))
    damage(broken, 4_096)
    os.utime(broken, (clock.seconds, clock.seconds + 1e8))
    damage(path, start)
    (found,) = check_study(str(path))
    assert (found.state, found.subject) == ("fault", "database")
    assert f"Its newest sound backup is {sound}." in found.advice
    subprocess.run(["sh", "-c", found.advice.partition("this restores it: ")[2]], check=True)
    assert path.with_name("study.sqlite.damaged").exists()
    with closing(open_store(path, create=False)) as store:
        assert len(list_votes(store, study.id)) == 6
    assert all(each.state != "fault" for each in check_study(str(path)))


def test_damage_without_a_sound_backup_is_told(tmp_path):
    path = tmp_path / "study.sqlite"
    with closing(open_store(path)) as store:
        a_study(store)
        made = Path(backup(store))
    for each in (path, made):
        damage(each, 4_096)
    (found,) = check_study(str(path))
    assert "backups beside it are damaged too" in found.advice


def test_databases_that_cannot_be_used_are_one_fault(store, tmp_path, monkeypatch):
    a_study(store)
    with sqlite3.connect(tmp_path / "other.sqlite") as other:
        other.execute("CREATE TABLE colours (name)")
    (tmp_path / "text.sqlite").write_text("no database" * 100)
    for name in ("none.sqlite", "other.sqlite", "text.sqlite"):
        (found,) = check_study(str(tmp_path / name))
        assert (found.subject, found.state, bool(found.advice)) == ("database", "fault", True)
    assert not (tmp_path / "none.sqlite").exists()
    monkeypatch.setattr("tutelage.people.store.engine.BUSY_SECONDS", 0)
    with store.write():
        (found,) = check_study(store.address)
    assert (found.subject, found.state) == ("database", "fault")
    assert "locked" in found.advice
