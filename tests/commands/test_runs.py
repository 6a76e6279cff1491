"""The open run of a workflow: which folder it takes, and what is told to trackers, with a real TensorBoard."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tutelage.base.config.bases import RunSettings
from tutelage.base.errors import TutelageError
from tutelage.commands.runs import open_run


@dataclass(frozen=True, kw_only=True)
class Settings(RunSettings):
    """Those of some command."""

    epochs: int = 1


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows of a run: steps and values by metric."""
    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    names = events.Tags()["scalars"]
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in names}


def own(path: Path, settings: Mapping[str, object]) -> object:
    """One's own tracker, which writes into the folder at once and then does not start."""
    (path / "tensorboard").mkdir()
    (path / "tensorboard" / "started").touch()
    raise OSError("no network")


OWN = f"{__name__}:own"


def test_a_run_begins_with_a_tracker_and_a_profile_that_write_into_its_folder(tmp_path: Path) -> None:
    settings = Settings(out=tmp_path / "run", trackers=("tensorboard",), profile=True)
    with open_run(settings) as run:
        run.log(0, {"loss": 0.5, "tokens": 3})
        run.log(1, {"loss": math.nan, "tokens": 2**40})
        run.log(2, {"loss": math.inf, "tokens": -1})
    found = scalars(run.path)
    assert found["tokens"] == [(0, 3), (1, 2**40), (2, -1)]
    assert [step for step, _ in found["loss"]] == [0, 1, 2]
    assert [math.isnan(found["loss"][1][1]), found["loss"][2][1]] == [True, math.inf]


@pytest.mark.parametrize("checkpoint", [True, False])
def test_steps_that_are_computed_again_take_the_place_of_those_before(tmp_path: Path, checkpoint: bool) -> None:
    settings = Settings(out=tmp_path / "run", trackers=("tensorboard",))
    with open_run(settings) as run:
        for step in range(6):
            run.log(step, {"loss": float(step)})
            if checkpoint and step == 3:
                run.checkpoint(3, lambda folder: (folder / "state").touch())
    for session in (100.0, 200.0):
        with open_run(replace(settings, resume=True)) as run:
            for step in range(run.start + checkpoint, 7):
                run.log(step, {"loss": step + session})
    assert scalars(run.path)["loss"] == [
        (step, float(step) if checkpoint and step <= 3 else step + 200.0) for step in range(7)
    ]


def test_nothing_starts_in_a_folder_that_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    for settings in (Settings(out=tmp_path, trackers=("tensorboard", OWN), profile=True),):
        with pytest.raises(TutelageError, match=r"holds other things than a run \(notes.txt\)"), open_run(settings):
            pass
    assert not (tmp_path / "tensorboard").exists()


def test_a_run_whose_tracker_does_not_start_can_begin_anew(tmp_path: Path) -> None:
    """With other settings too, whatever trackers wrote already."""
    broken = Settings(out=tmp_path / "run", trackers=("tensorboard", OWN))
    (tmp_path / "run").mkdir()
    for settings in (replace(broken, trackers=(OWN,)), replace(broken, epochs=2)):
        with pytest.raises(TutelageError, match="does not start"), open_run(settings):
            pass
    with open_run(replace(broken, epochs=3, trackers=("tensorboard",))) as run:
        run.log(0, {"loss": 0.5})
    assert scalars(run.path) == {"loss": [(0, 0.5)]}


def test_a_finished_run_starts_no_tracker(tmp_path: Path) -> None:
    settings = Settings(out=tmp_path / "run")
    with open_run(settings) as run:
        run.log(0, {"loss": 0.5})
        run.finish({})
    with open_run(replace(settings, trackers=("tensorboard", OWN))) as run:
        assert run.finished
    assert not (run.path / "tensorboard").exists()
