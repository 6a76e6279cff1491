"""Exports, and the studies made of them again."""

import csv
import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tutelage.base.errors import TutelageError
from tutelage.data.formats import load_preferences, load_unpaired
from tutelage.people import (
    Answer,
    Selection,
    Store,
    Study,
    add_rater,
    consent,
    exclude,
    freeze,
    include,
    label_study,
    list_events,
    list_questions,
    list_raters,
    list_votes,
    open_study,
    preferences,
    recent_answers,
    submit,
)
from tutelage.people.export import export_study, file_hash, safe_cell
from tutelage.people.manifest import FORMAT
from tutelage.people.restoration import import_export
from tutelage.people.settings import Consent
from tutelage.people.store.consents import ask_consent, list_agreements, shown_text
from tutelage.people.store.events import list_exports
from tutelage.stats.vote_files import VoteFileColumns, read_votes

from .test_training_data import eventful_study
from .worlds import asked, better, raters_of, study_of, work

BOTH = Selection(versions=(1, 2))


def lines(path: Path) -> Iterator[dict[str, object]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def test_the_files_say_what_the_study_says(store: Store, folder: Path) -> None:
    study = eventful_study(store)
    out = folder / "export"
    manifest = export_study(store, study.id, out, BOTH).manifest
    labelled = label_study(store, study.id, BOTH)
    assert json.loads((out / "manifest.json").read_text(encoding="utf-8")) == json.loads(json.dumps(manifest))
    judgements = manifest["judgements"]
    assert isinstance(judgements, dict)
    assert judgements.pop("total") == sum(judgements.values()) == len(list(lines(out / "votes.jsonl")))
    assert {name: count for name, count in judgements.items() if count} == dict(labelled.fates)
    files = manifest["files"]
    assert isinstance(files, dict)
    for name, told in files.items():
        assert told["sha256"] == file_hash(out / name)
    assert {path.name for path in out.iterdir()} == {*files, "manifest.json"}


def test_the_statistics_of_raters_read_the_table_of_votes(store: Store, folder: Path) -> None:
    study = eventful_study(store)
    export_study(store, study.id, folder / "export", BOTH)
    rows = [row for row in lines(folder / "export" / "votes.jsonl") if row["latest"]]
    counted = {(row["item"], row["rater"]) for row in rows if row["verdict"] != "skip" and not row["excluded"]}
    votes = read_votes(str(folder / "export" / "votes.csv"), VoteFileColumns("item", "rater")).votes
    found = {(votes.items[i], votes.raters[r]) for i, r in zip(votes.item, votes.rater, strict=True)}
    assert found == counted
    assert len(counted) < len(rows)
    assert set(votes.choices) <= {"a", "b", "tie", "both_bad"}


def test_training_reads_exactly_the_preferences_of_the_study(store: Store, folder: Path) -> None:
    study = eventful_study(store)
    export_study(store, study.id, folder / "export", BOTH)
    loaded = load_preferences(folder / "export" / "preferences.jsonl").records
    assert loaded == preferences(store, study.id, BOTH)
    bad = load_unpaired(folder / "export" / "unpaired.jsonl").records
    assert {response.completion for response in bad} == {"bad 11, and longer", "good 11"}
    assert not any(response.label for response in bad)


def test_every_row_says_where_it_comes_from(lite: Store, folder: Path) -> None:
    study = study_of(lite, 3)
    work(lite, raters_of(lite, study, 2))
    export_study(lite, study.id, folder / "export", Selection(margins=True))
    for row in lines(folder / "export" / "preferences.jsonl"):
        number = str(row["item_id"]).removeprefix("c")
        assert row["prompt"] == f"Question {number}?"
        assert (row["chosen"], row["chosen_id"], row["chosen_model"]) == (f"good {number}", f"p{number}b", "new-model")
        assert (row["rejected_id"], row["rejected_model"]) == (f"p{number}a", "old-model")
        assert (row["n_votes"], row["strength"], row["margin"], row["study"]) == (2, 2.0, 2.0, "tutoring")


def test_a_restored_study_has_identical_posteriors(store: Store, folder: Path) -> None:
    study = eventful_study(store)
    victim = next(v for v in list_votes(store, study.id) if v.rater == "anna" and v.verdict == "b" and v.item != "c3")
    exclude(store, study.id, "judgement", str(victim.id), "slip of the finger")
    exclude(store, study.id, "item", "c1", "leaks a name")
    export_study(store, study.id, folder / "export", BOTH, names=True)
    again = import_export(store, folder / "export", name="again")
    old, new = (label_study(store, s.id, BOTH) for s in (study, again))
    assert [row.preference for row in new.rows] == [row.preference for row in old.rows]
    assert new.labels == old.labels
    assert new.fates == old.fates
    assert again.presentation == open_study(store, "tutoring").presentation
    assert without_numbers(store, again) == without_numbers(store, study)
    export_study(store, again.id, folder / "second", BOTH)
    for name in ("preferences.jsonl", "unpaired.jsonl", "items.jsonl"):
        first = (folder / "export" / name).read_text(encoding="utf-8")
        assert (folder / "second" / name).read_text(encoding="utf-8").replace('"again"', '"tutoring"') == first


def without_numbers(store: Store, study: Study) -> list[object]:
    """Everything a study holds, but for numbers of rows, and for leases."""
    votes = [replace(vote, id=0, assignment=0, rater_id=0) for vote in list_votes(store, study.id, every_revision=True)]
    items = [(replace(q, leased=0), dict(q.counts)) for q in list_questions(store, study.id)]
    raters = [(r.name, r.kind, r.role, r.excluded, r.tallies) for r in list_raters(store, study.id)]
    return [votes, items, raters]


def test_a_file_that_was_touched_is_not_imported(lite: Store, folder: Path) -> None:
    study = study_of(lite, 2)
    work(lite, raters_of(lite, study, 2))
    export_study(lite, study.id, folder / "export")
    votes = folder / "export" / "votes.jsonl"
    votes.write_text(votes.read_text(encoding="utf-8").replace('"verdict": "b"', '"verdict": "a"', 1), encoding="utf-8")
    with pytest.raises(TutelageError, match=r"votes.jsonl.*changed"):
        import_export(lite, folder / "export", name="again")
    votes.unlink()
    with pytest.raises(TutelageError, match=r"votes.jsonl.*missing"):
        import_export(lite, folder / "export", name="again")
    with pytest.raises(TutelageError, match="contain"):
        import_export(lite, folder, name="again")


def test_an_export_never_overwrites_and_leaves_nothing_half_done(lite: Store, folder: Path) -> None:
    study = study_of(lite, 1)
    out = folder / "export"
    export_study(lite, study.id, out)
    before = file_hash(out / "manifest.json")
    with pytest.raises(TutelageError, match="exists"):
        export_study(lite, study.id, out)
    assert file_hash(out / "manifest.json") == before
    (folder / "file").write_text("x")
    with pytest.raises(TutelageError, match="written"):
        export_study(lite, study.id, folder / "file" / "export")
    assert {path.name for path in folder.iterdir() if "sqlite" not in path.name} == {"export", "file"}


def test_exports_are_remembered_with_their_moment(store: Store, folder: Path) -> None:
    study = study_of(store, 4)
    work(store, raters_of(store, study, 2))
    manifest = export_study(store, study.id, folder / "first").manifest
    before = preferences(store, study.id)
    exclude(store, study.id, "rater", "rater 0", "for a while")
    (remembered,) = list_exports(store, study.id)
    assert remembered.manifest == json.loads(json.dumps(manifest))
    assert preferences(store, study.id, at=remembered.snapshot) == before
    assert preferences(store, study.id) != before
    assert [event.action for event in list_events(store, study.id)][:2] == ["exclude", "exported"]
    include(store, study.id, "rater", "rater 0")
    assert preferences(store, study.id) == before


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_cell_of_a_spreadsheet_acts_as_a_formula(lite: Store, folder: Path, text: str) -> None:
    study = study_of(lite, 1)
    (rater,) = raters_of(lite, study, 1)
    question = asked(lite, rater)
    submit(lite, question.id, replace(better(question), reason=text))
    export_study(lite, study.id, folder / "export")
    with (folder / "export" / "votes.csv").open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["reason"] == "'" + text == safe_cell(text)
    (vote,) = lines(folder / "export" / "votes.jsonl")
    assert vote["reason"] == text
    assert safe_cell("plain = text") == "plain = text"


def test_the_manifest_warns_of_many_ties_and_of_judges(lite: Store, folder: Path) -> None:
    study = study_of(lite, 4)
    work(lite, raters_of(lite, study, 2), lambda q: Answer("tie") if q.item == "c0" else better(q))
    manifest = export_study(lite, study.id, folder / "export", Selection(kinds=("simulated", "human"))).manifest
    assert manifest["format"] == FORMAT
    assert isinstance(manifest["notes"], list)
    assert "25% of the votes are on pairs found equal" in manifest["notes"][0]


def test_simulated_raters_are_listed_only_where_they_are_asked_for(store: Store, folder: Path) -> None:
    """And counted all the same; a model judge is listed in any case."""
    study = study_of(store, 4)
    robots = [add_rater(store, study.id, f"robot {n}", kind="simulated").id for n in range(2)]
    consent(store, robots[0])
    work(store, robots)
    people = raters_of(store, study, 2)
    for rater in people:
        consent(store, rater)
    work(store, [*people, add_rater(store, study.id, "judge", kind="llm").id])
    exclude(store, study.id, "rater", "robot 0", "a trial")
    exclude(store, study.id, "judgement", str(list_votes(store, study.id)[0].id), "a trial")
    kinds = {False: {"human", "llm"}, True: {"human", "llm", "simulated"}}
    for named, selection in ((False, Selection()), (True, Selection(kinds=("human", "simulated")))):
        out = folder / f"export {named}"
        manifest = export_study(store, study.id, out, selection).manifest
        votes, raters = (list(lines(out / name)) for name in ("votes.jsonl", "raters.jsonl"))
        assert {vote["rater_kind"] for vote in votes} == {rater["kind"] for rater in raters} == kinds[named]
        with (out / "votes.csv").open(encoding="utf-8") as file:
            assert {row["rater_kind"] for row in csv.DictReader(file)} == kinds[named]
        left_out = {"raters": 0, "judgements": 0} if named else {"raters": 2, "judgements": 8}
        assert manifest["left_out"] == left_out
        assert manifest["judgements"]["total"] == 20 == len(votes) + left_out["judgements"]
        told = "2 simulated raters; 8 judgements of theirs are left out" in " ".join(manifest["notes"])
        assert told is not named
        assert sorted(manifest["excluded"]["rater"]) == (["robot 0"] if named else [])
        assert len(manifest["excluded"]["judgement"]) == named
        assert sum(row["raters"] for row in manifest["consents"]) == len(raters)
        assert sum(row["judgements"] for row in manifest["consents"]) == len(votes)
        again = import_export(store, out, name=f"again {named}")
        assert {rater.kind for rater in list_raters(store, again.id)} == kinds[named]
        assert len(list_votes(store, again.id)) == len(votes)


def test_a_revision_after_the_export_starts_from_what_was_restored(lite: Store, folder: Path) -> None:
    study = study_of(lite, 2)
    work(lite, raters_of(lite, study, 2))
    export_study(lite, study.id, folder / "export")
    again = import_export(lite, folder / "export", name="again")
    rater = next(rater for rater in list_raters(lite, again.id) if rater.name == "rater-1")
    (last,) = recent_answers(lite, rater.id)
    assert submit(lite, last.assignment.id, Answer("tie")).revision == 2
    assert sum(vote.verdict == "tie" for vote in list_votes(lite, again.id)) == 1


def test_an_export_tells_which_text_each_vote_was_given_under(store: Store, folder: Path) -> None:
    """Counts add up, the text and its hash belong together, and a restored study knows it all again."""
    study = study_of(store, 4)
    early, late, nobody = raters_of(store, study, 3)
    consent(store, early)
    submit(store, asked(store, early).id, Answer("left", 2))
    ask_consent(store, study.id, Consent("We keep **votes**.", "erase", 90))
    submit(store, asked(store, early).id, Answer("left", 2))  # has not agreed to the new text yet
    for rater in (early, late):
        consent(store, rater)
        submit(store, asked(store, rater).id, Answer("right", 1))
    submit(store, asked(store, nobody).id, Answer("tie"))
    manifest = export_study(store, study.id, folder / "first", names=True).manifest
    standard, own, none = manifest["consents"]  # type: ignore[misc]
    assert standard["text"] == shown_text(Consent(), live=False)  # nobody wrote down what was shown
    assert (own["text"], own["votes"], own["retention_days"]) == ("We keep **votes**.", "erase", 90)
    for each in (standard, own):
        assert each["sha256"] == hashlib.sha256(each["text"].encode()).hexdigest()
    counts = [(each["version"], each["raters"], each["judgements"]) for each in (standard, own, none)]
    assert counts == [(0, 0, 2), (1, 2, 2), (None, 1, 1)]
    told = [(row["rater"], row["consent"]) for row in lines(folder / "first" / "votes.jsonl")]
    assert sorted(number for name, number in told if name == f"rater-{early}") == [0, 0, 1]  # type: ignore[type-var]
    with (folder / "first" / "votes.csv").open(encoding="utf-8", newline="") as file:
        assert [row["consent"] for row in csv.DictReader(file)] == [
            "" if number is None else str(number) for _, number in told
        ]
    again = import_export(store, folder / "first", name="again")
    assert export_study(store, again.id, folder / "second").manifest["consents"] == manifest["consents"]
    second = [(row["rater"], row["consent"]) for row in lines(folder / "second" / "votes.jsonl")]
    assert [number for _, number in second] == [number for _, number in told]
    assert [(rater.agreed, rater.consented) for rater in list_raters(store, again.id)] == [
        (rater.agreed, rater.consented) for rater in list_raters(store, study.id)
    ]


def test_a_snapshot_keeps_what_was_agreed_to_then(lite: Store) -> None:
    study = study_of(lite, 2)
    (rater,) = raters_of(lite, study, 1)
    consent(lite, rater)
    moment = freeze(lite, study.id)
    ask_consent(lite, study.id, Consent("New."))
    consent(lite, rater)
    now = lite.now()
    for snapshot, number in ((moment, 0), (freeze(lite, study.id), 1)):
        agreement = list_agreements(lite, study.id, snapshot.last_event).at("rater 0", now)
        assert agreement is not None
        assert agreement.number == number
