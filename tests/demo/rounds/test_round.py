"""Stages of a round: each is done once, in order, and never silently thrown away."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny
from remarks import collected

from tutelage.base.errors import TutelageError
from tutelage.commands.sample.run import sample
from tutelage.demo.rounds import round as rounds
from tutelage.demo.rounds.round import DemoRound, RoundPlace, Stage, Story, run_stages
from tutelage.demo.rounds.tutoring import TutoringScale, tutoring

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
    from tutelage.demo.rounds import round as stages

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
    from tutelage.demo.rounds.round import _fingerprints

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


FILES = ("sample/completions.jsonl", "sample/comparisons.jsonl", "judge/preferences.jsonl", "judge/test_votes.jsonl")


def judged(folder: Path) -> dict[str, str]:
    """The content of the files of a round that was sampled and judged, with a tiny random model after SFT."""
    made = a_round(folder)
    made.write()
    for name in ("sample", "judge"):
        stage(made, name).run()
    return {name: (folder / name).read_text(encoding="utf-8") for name in FILES}


def a_round(folder: Path) -> DemoRound:
    tiny.save("llama", folder / "sft" / "model", words={"chat": True, "pad": tiny.PAD})
    scale = TutoringScale(corpus_tokens=100, demonstrations=5, train_prompts=20, answers=4, pairs=2, answer_tokens=8)
    return tutoring(RoundPlace(folder, 0, quiet=True), scale)


def stage(made: DemoRound, name: str) -> Stage:
    return next(stage for stage in made.stages() if stage.name == name)


def test_a_seed_has_the_same_pairs_and_votes_in_every_folder(tmp_path: Path) -> None:
    """Which pairs are asked, in which order and on which sides follows from the ids of answers."""
    first, second = judged(tmp_path / "first"), judged(tmp_path / "another place" / "second")
    assert len(first["sample/comparisons.jsonl"].splitlines()) == 40
    assert first["judge/preferences.jsonl"]
    assert first == second


def test_the_answers_are_named_by_their_model_within_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that lies elsewhere keeps the name by which it was given."""
    asked: list[str] = []
    monkeypatch.setattr(rounds, "sample", lambda settings: asked.append(settings.name))
    made = a_round(tmp_path / "round")
    model = replace(made.sampling.model, path="./smollm2")
    for sampling in (made.sampling, replace(made.sampling, model=model)):
        made = replace(made, sampling=sampling)
        stage(made, "sample").run()
    assert asked == ["sft/model", "./smollm2"]


def test_the_name_of_the_answers_is_no_part_of_the_stage(tmp_path: Path) -> None:
    """The fingerprint of the stage is that of its settings, in which no name is given."""
    made = a_round(tmp_path / "round")
    assert stage(made, "sample").settings == (made.sampling,)
    assert made.sampling.name == ""


def test_a_name_gives_answers_their_ids_wherever_the_model_lies(tmp_path: Path) -> None:
    found = {}
    for place in ("one", "two"):
        made = a_round(tmp_path / place)
        made.write()
        for name in ("", "tutor"):
            result = sample(replace(made.sampling, name=name, out=tmp_path / place / f"sample-{name}"))
            lines = result.completions.read_text(encoding="utf-8").splitlines()
            found[place, name] = [json.loads(line) for line in lines]
    assert found["one", "tutor"] == found["two", "tutor"]
    assert {row["sampler"] for row in found["one", "tutor"]} == {"tutor"}
    assert {row["sampler"] for row in found["one", ""]} == {str(tmp_path / "one" / "sft" / "model")}
    texts = [[row["text"] for row in found["one", name]] for name in ("", "tutor")]
    assert texts[0] == texts[1], "the name changes no answer"
    ids = [{row["id"] for row in found[key]} for key in (("one", ""), ("two", ""), ("one", "tutor"))]
    assert not ids[0] & (ids[1] | ids[2]), "without a name, ids follow from the path"
