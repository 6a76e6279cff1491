"""Stages of a round: each is done once, in order, and never silently thrown away."""

import json
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from remarks import collected

from tutelage.base.errors import TutelageError
from tutelage.demo.rounds.stages import Stage, Story, run_stages

STORY = Story("A round", "what it is about", "tutelage round")


@dataclass(frozen=True)
class Settings:
    steps: int = 1


class Round:
    """Three stages that write their names, and what happened."""

    def __init__(self, folder, *, middle=1, last=1, titles="", fail=None):
        self.folder, self.ran, self.told = folder, [], []
        self.fail = fail
        self.stages = [
            Stage(name, name.capitalize() + titles, (settings,), lambda name=name: self.run(name))
            for name, settings in zip(
                ("first", "second", "third"), (Settings(), Settings(middle), Settings(last)), strict=True
            )
        ]

    def run(self, name):
        self.ran.append(name)
        (self.folder / name).mkdir(exist_ok=True)
        with (self.folder / name / "note.txt").open("a") as file:
            file.write("x")
        if self.fail is not None and name == "second":
            raise self.fail

    def go(self):
        with collected(self.told):
            return run_stages(self.folder, STORY, self.stages)

    def statuses(self):
        return [stage["status"] for stage in json.loads((self.folder / "round.json").read_text())["stages"]]


def test_stages_run_in_order_and_once(tmp_path):
    first = Round(tmp_path / "round")
    seconds = first.go()
    assert first.ran == ["first", "second", "third"]
    assert first.told == ["First", "Second", "Third"]
    assert first.statuses() == ["done"] * 3
    assert seconds.keys() == {"first", "second", "third"}
    written = json.loads((tmp_path / "round" / "round.json").read_text())
    assert (written["title"], written["about"]) == ("A round", "what it is about")
    again = Round(tmp_path / "round")
    assert again.go() == seconds
    assert again.ran == []
    assert all("done already" in line for line in again.told)
    assert json.loads((tmp_path / "round" / "round.json").read_text()) == written


@pytest.mark.parametrize(
    ("error", "status"),
    [(ValueError("no"), "failed"), (TutelageError("no"), "failed"), (KeyboardInterrupt(), "running")],
)
def test_a_stage_that_does_not_finish_is_recorded_and_goes_on_where_it_was(tmp_path, error, status):
    broken = Round(tmp_path, fail=error)
    with pytest.raises(type(error)):
        broken.go()
    assert broken.statuses() == ["done", status, "waiting"]
    again = Round(tmp_path)
    again.go()
    assert again.ran == ["second", "third"], "what was done is not done again"
    assert (tmp_path / "second" / "note.txt").read_text() == "xx", "and what was begun is not thrown away"
    assert again.statuses() == ["done"] * 3


def test_time_is_counted_over_all_sessions(tmp_path, monkeypatch):
    from tutelage.demo.rounds import stages

    clock = iter([0.0, 1.0, 10.0, 15.0])
    monkeypatch.setattr(stages, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with pytest.raises(ValueError, match="no"):
        Round(tmp_path, fail=ValueError("no")).go()
    clock = iter([100.0, 107.0, 200.0, 202.0])
    monkeypatch.setattr(stages, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    assert Round(tmp_path).go() == {"first": 1.0, "second": 12.0, "third": 2.0}


@pytest.mark.parametrize("done", [True, False])
def test_other_settings_are_refused_whether_or_not_the_stage_was_done(tmp_path, done):
    begun = Round(tmp_path, fail=None if done else ValueError("no"))
    if done:
        begun.go()
    else:
        with pytest.raises(ValueError, match="no"):
            begun.go()
    changed = Round(tmp_path, middle=2)
    with pytest.raises(TutelageError, match=r"stage 'second' was made with other settings.*another --out"):
        changed.go()
    assert changed.ran == []
    assert (tmp_path / "second" / "note.txt").read_text() == "x"


def test_a_stage_that_has_not_begun_takes_other_settings(tmp_path):
    """It has no output that could be lost. Once it is begun with them, they are its own."""
    with pytest.raises(ValueError, match="no"):
        Round(tmp_path, fail=ValueError("no")).go()
    assert Round(tmp_path).statuses() == ["done", "failed", "waiting"]
    other = Round(tmp_path, last=2)
    other.go()
    assert other.ran == ["second", "third"]
    assert (tmp_path / "first" / "note.txt").read_text() == "x"
    with pytest.raises(TutelageError, match="stage 'third' was made with other settings"):
        Round(tmp_path).go()
    again = Round(tmp_path, last=2)
    again.go()
    assert again.ran == []


def test_a_stage_depends_on_the_settings_of_those_before_it(tmp_path):
    """After another second stage the third is another stage, even where its own settings are the same."""
    from tutelage.demo.rounds.stages import _fingerprints

    one, other = _fingerprints(Round(tmp_path).stages), _fingerprints(Round(tmp_path, middle=2).stages)
    assert one["first"] == other["first"]
    assert one["third"] != other["third"]
    assert _fingerprints(Round(tmp_path, titles="!").stages) == one, "a title changes nothing"


def test_what_a_lost_session_left_behind_is_cleared_before_a_stage_begins(tmp_path):
    """A folder of a stage that no round.json knows: the process was gone before it could write it."""
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "note.txt").write_text("half")
    Round(tmp_path).go()
    assert (tmp_path / "first" / "note.txt").read_text() == "x"
