"""Studies of an earlier release open, yield the votes and preferences that they yielded, and go on."""

import csv
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tutelage import people

from .archives import Row, read_json, read_jsonl, run_command
from .test_runs import assert_close

STUDIES = ("study", "rankings")
TABLES = ("preferences.jsonl", "unpaired.jsonl", "votes.jsonl", "items.jsonl", "raters.jsonl")


def export(study: str, out: str) -> None:
    """Export with the options that the stored export was made with."""
    versions = [str(number) for number in read_json(Path(f"{study}-export/manifest.json"))["selection"]["versions"]]
    run_command(
        *("collect", "export", study, "--name", Path(study).name, "--out", out, "--ties", "keep"),
        *("--kinds", "human", "simulated", "llm", "--versions", *versions, "--margins", "--weights"),
    )


def in_order(rows: list[Row]) -> list[Row]:
    """Rows by what identifies them: the database orders what was added in one transaction as it likes."""
    return sorted(rows, key=lambda row: str(row.get("item_id") or row.get("id") or row.get("name") or row.get("item")))


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_yields_the_votes_and_preferences_that_it_yielded(place: Callable[..., Path], study: str) -> None:
    """A later version may say more of a row, and nothing else than what was said."""
    place(study)
    export(study, "export")
    for table in TABLES:
        found, stored = (read_jsonl(Path(folder, table)) for folder in ("export", f"{study}-export"))
        assert_close(found, stored, table)
    found, stored = (read_json(Path(folder, "manifest.json")) for folder in ("export", f"{study}-export"))
    for manifest in (found, stored):
        for changing in ("created", "tutelage", "files"):
            del manifest[changing]
    assert_close(found, stored, "manifest")
    with Path("export/votes.csv").open() as one, Path(f"{study}-export/votes.csv").open() as other:
        assert_close(list(csv.DictReader(one)), list(csv.DictReader(other)), "votes.csv")


def test_the_stored_study_holds_everything_that_raters_may_say(place: Callable[..., Path]) -> None:
    """Or the test above would prove less than its name."""
    place("study")
    votes = read_jsonl(Path("study-export/votes.jsonl"))
    assert {vote["verdict"] for vote in votes} == {"a", "b", "tie", "both_bad", "skip"}
    assert {vote["strength"] for vote in votes} == {0, 1, 2, 3}
    assert {vote["rater_kind"] for vote in votes} == {"human", "llm", "simulated"}
    assert {vote["pool"] for vote in votes} == {"production", "gold"}
    assert {vote["version"] for vote in votes} == {1, 2}
    for name in ("criteria", "flags", "reason", "excluded", "changes"):
        assert any(vote[name] for vote in votes), name
    assert any(vote["revision"] == 2 for vote in votes)
    assert {row["item"]["round"] for row in read_jsonl(Path("study-export/items.jsonl"))} == {1, 2}
    excluded = read_json(Path("study-export/manifest.json"))["excluded"]
    assert all(excluded[scope] for scope in ("rater", "item", "judgement"))


@pytest.mark.parametrize("study", STUDIES)
def test_raters_go_on_with_a_study(place: Callable[..., Path], study: str) -> None:
    """New answers come on top of the old ones, which stay as they are."""
    place(study)
    before = read_jsonl(Path(f"{study}-export/votes.jsonl"))
    words = ("--raters", "12", "--answers", "2", "--gold", "release_rewards:vowels", "--seed", "1")
    run_command("collect", "simulate", study, *words)
    export(study, "export")
    after = read_jsonl(Path("export/votes.jsonl"))
    assert len(after) > len(before)
    assert_close(after[: len(before)], before, "votes")


def test_the_rounds_of_a_study_are_told_as_they_were(place: Callable[..., Path]) -> None:
    place("study")
    with closing(people.open_store("study/study.sqlite", create=False)) as store:
        rounds = people.survey(store, people.open_study(store).id).rounds
    assert [one.number for one in rounds] == [1, 2]
    assert (rounds[1].policy, rounds[1].samplers) == ("sft/model", ("pretrained/model", "sft/model"))


@pytest.mark.parametrize("study", STUDIES)
def test_an_export_makes_the_same_study_again(place: Callable[..., Path], study: str) -> None:
    place(study)
    shutil.rmtree(study)
    run_command("collect", "import", study, f"{study}-export")
    export(study, "again")
    found, stored = (read_jsonl(Path(folder, "preferences.jsonl")) for folder in ("again", f"{study}-export"))
    assert stored
    assert_close(in_order(found), in_order(stored), "preferences")


def test_sampled_pairs_become_questions(place: Callable[..., Path]) -> None:
    place("sample")
    run_command("collect", "init", "new", "--from-sample", "sample")
    pairs = read_jsonl(Path("sample/comparisons.jsonl"))
    with closing(people.open_store("new/study.sqlite", create=False)) as store:
        questions = people.list_questions(store, people.open_study(store).id)
    assert {question.key for question in questions} == {pair["id"] for pair in pairs}
