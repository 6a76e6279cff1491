"""The profile of a run."""

import json

import torch

from tutelage.train.run.profiler import STEPS, TABLE, TRACE, profiled


def run(folder, steps):
    """A run whose steps each multiply matrices of another size, after an evaluation before the first."""
    with profiled(folder) as track:
        track(0, {"held_out/loss": 1.0})
        for step in range(1, steps + 1):
            size = 10 + step
            torch.ones(size, size) @ torch.ones(size, size)
            track(step, {"loss": 1.0})
            track(step, {"held_out/loss": 1.0})  # some loops log twice in a step


def multiplied(folder):
    """Sizes of the matrices in the trace."""
    events = json.loads((folder / TRACE).read_text())["traceEvents"]
    return [e["args"]["Input Dims"][0][0] for e in events if e.get("name") == "aten::mm"]


def test_the_steps_after_the_first_are_recorded_and_no_others(tmp_path):
    run(tmp_path, STEPS + 4)
    assert multiplied(tmp_path) == [12, 13, 14]
    assert "aten::mm" in (tmp_path / TABLE).read_text()


def test_a_short_run_is_recorded_to_its_end(tmp_path):
    run(tmp_path, 2)
    assert multiplied(tmp_path) == [12]
    assert (tmp_path / TABLE).read_text().startswith("1 step\n")


def test_a_run_of_one_step_says_that_nothing_was_recorded(tmp_path, caplog):
    run(tmp_path, 1)
    assert "no step after its first" in caplog.text
    caplog.clear()
    assert not (tmp_path / TRACE).exists()
    run(tmp_path, 0)
    assert not caplog.records
