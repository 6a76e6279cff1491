"""The run directory: complete files are never lost, and partial files are never read."""

import datetime
import errno
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from forked import python
from offenders import for_each

from tutelage.base.config import Checkpoints, Lora
from tutelage.base.errors import TutelageError
from tutelage.train.run.checkpoints import metric_of, step_of
from tutelage.train.run.folder import Run
from tutelage.train.run.interrupt import interrupted
from tutelage.train.run.json_lines import JsonLines, keep_until, read_lines


@dataclass(frozen=True)
class Settings:
    out: str = "runs/x"
    seed: int = 3
    resume: bool = False
    lora: Lora = field(default_factory=Lora)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)


@dataclass(frozen=True)
class Empty:
    """The settings of the runs in processes of their own."""


def write(text: str) -> Callable[[Path], None]:
    """A `save` that writes one file, in a folder of its own."""

    def save(folder: Path) -> None:
        (folder / "inner").mkdir()
        (folder / "inner" / "state.txt").write_text(text)

    return save


def state(checkpoint: Path | None) -> str:
    assert checkpoint is not None
    return (checkpoint / "inner" / "state.txt").read_text()


def begin(path: Path, settings: object, **more: Any) -> None:
    """A run that was left after its first step."""
    with Run.open(path, settings, **more) as run:
        run.log(1, {"loss": 1.0})
        run.checkpoint(1, write("one"))


def steps(run: Run) -> list[str]:
    return sorted(path.name for path in (run.path / "checkpoints").iterdir())


# what a run writes down


def test_a_run_that_goes_on_reads_the_rows_that_it_began_with(tmp_path: Path) -> None:
    begin(tmp_path / "r", Settings(), data="3 rows, aa")
    Run.open(tmp_path / "r", Settings(), data="3 rows, aa", resume=True).close()
    with pytest.raises(TutelageError, match=r"The data changed .*/r began: it read 3 rows, aa, and now .* 2 rows, bb"):
        Run.open(tmp_path / "r", Settings(), data="2 rows, bb", resume=True)
    Run.open(tmp_path / "r", Settings(), resume=True).close()


def test_the_config_records_the_run(tmp_path: Path) -> None:
    Run.open(tmp_path / "a" / "b", Settings()).close()
    config = json.loads((tmp_path / "a" / "b" / "config.json").read_text())
    assert config["settings"]["lora"]["rank"] == 0
    assert config["seed"] == 3
    assert config["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert {"tutelage", "torch", "transformers"} <= set(config["versions"])
    assert config["revision"] is None or len(config["revision"].rstrip("+")) == 40
    assert config["command"]


def test_a_resumed_run_keeps_its_date(tmp_path: Path) -> None:
    Run.open(tmp_path / "r", Settings()).close()
    config = tmp_path / "r" / "config.json"
    content = json.loads(config.read_text())
    assert content["date"] == f"{datetime.date.today()}"
    config.write_text(json.dumps(content | {"date": "2024-02-29"}))
    with Run.open(tmp_path / "r", Settings(), resume=True) as run:
        assert run.date == datetime.date(2024, 2, 29)
    assert json.loads(config.read_text())["date"] == "2024-02-29"


def test_each_line_is_on_disk_when_it_is_logged(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", Settings()) as run:
        run.log(1, {"loss": 0.5, "score/mean": 2})
        run.samples(1, [{"prompt": "Why?", "completion": "Because … ≠"}, {"prompt": "a", "completion": "\ud800"}])
        (first,) = read_lines(run.path / "metrics.jsonl")
        assert first.pop("seconds") >= 0  # type: ignore[operator]
        assert first == {"step": 1, "loss": 0.5, "score/mean": 2}
        assert read_lines(run.path / "samples.jsonl")[0] == {"step": 1, "prompt": "Why?", "completion": "Because … ≠"}
        assert len(read_lines(run.path / "samples.jsonl")) == 2


def test_numbers_that_are_not_finite_become_null_and_are_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Run.open(tmp_path / "r", Settings()) as run:
        for step in (1, 2):
            run.log(step, {"loss": float("nan"), "lr": 0.1, "grad_norm": float("-inf")})
        rows = read_lines(run.path / "metrics.jsonl")
    assert [(row["loss"], row["lr"], row["grad_norm"]) for row in rows] == [(None, 0.1, None)] * 2
    assert caplog.text.count("loss is nan") == 1
    assert caplog.text.count("grad_norm is -inf") == 1


def test_a_full_disk_does_not_stop_the_log_or_leave_half_a_line(tmp_path: Path) -> None:
    code = """
        import resource, sys
        from pathlib import Path
        from tutelage.train.run.json_lines import JsonLines
        lines = JsonLines(Path(sys.argv[1]))
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        for step in range(1, 50):
            lines.append({"step": step, "text": "x" * 10})
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, resource.RLIM_INFINITY))
        lines.append({"step": 50})
    """
    process = python(code, str(tmp_path / "m.jsonl"))
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    assert err.count("Cannot write to") == 1
    assert (tmp_path / "m.jsonl").read_text().endswith('"step": 50}\n')
    assert [row["step"] for row in read_lines(tmp_path / "m.jsonl")] == [1, 2, 50]


def test_a_broken_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1}\n{"st\n{"step": 3}\n')
    with pytest.raises(TutelageError, match="line 2: not valid JSON"):
        read_lines(path)


# who may open it


def test_a_folder_in_use_is_refused_and_a_released_one_is_not(tmp_path: Path) -> None:
    with (
        Run.open(tmp_path / "r", Settings()),
        pytest.raises(TutelageError, match=rf"in use by another process \(pid {os.getpid()}\)"),
    ):
        Run.open(tmp_path / "r", Settings(), resume=True)
    Run.open(tmp_path / "r", Settings(), resume=True).close()


def test_the_lock_of_another_process_holds_until_it_is_killed(tmp_path: Path) -> None:
    code = """
        import sys, time
        from dataclasses import dataclass
        from tutelage.train.run.folder import Run
        @dataclass(frozen=True)
        class Settings: pass
        run = Run.open(sys.argv[1], Settings())
        print("open", flush=True)
        time.sleep(60)
    """

    process = python(code, str(tmp_path / "r"))
    assert process.stdout.readline() == "open\n"
    with pytest.raises(TutelageError, match=f"pid {process.pid}"):
        Run.open(tmp_path / "r", Empty(), resume=True)
    process.kill()
    process.communicate()
    Run.open(tmp_path / "r", Empty(), resume=True).close()


def test_a_refused_folder_is_not_left_locked(tmp_path: Path) -> None:
    begin(tmp_path / "r", Settings())
    with pytest.raises(TutelageError, match="--resume") as caught:
        Run.open(tmp_path / "r", Settings())
    Run.open(tmp_path / "r", Settings(), resume=True).close()
    assert caught.tb is not None  # the frames of the refusal are alive, and do not hold the lock


def test_a_run_that_ended_before_its_first_step_begins_anew(tmp_path: Path) -> None:
    """As after a model that could not be loaded: the same folder takes the command with the right name."""
    Run.open(tmp_path / "run", Settings(seed=3)).close()
    again = Run.open(tmp_path / "run", Settings(seed=4))
    assert json.loads((tmp_path / "run" / "config.json").read_text())["seed"] == 4
    again.log(1, {"loss": 1.0})
    again.close()
    with pytest.raises(TutelageError, match="belongs to a run with other settings"):
        Run.open(tmp_path / "run", Settings(seed=5))


def test_other_settings_are_refused_with_both_values(tmp_path: Path) -> None:
    begin(tmp_path / "r", Settings())
    with pytest.raises(TutelageError) as caught:
        Run.open(tmp_path / "r", Settings(seed=4, lora=Lora(rank=8)), resume=True)
    assert "seed (3 against 4), lora.rank (0 against 8)" in str(caught.value)


def test_where_and_how_a_run_is_kept_may_change(tmp_path: Path) -> None:
    Run.open(tmp_path / "r", Settings()).close()
    other = replace(Settings(), out="elsewhere", resume=True, checkpoints=Checkpoints(every=7, keep=1))
    Run.open(tmp_path / "r", other, resume=True).close()


def test_a_setting_that_is_newer_than_the_run_counts_as_its_default(tmp_path: Path) -> None:
    begin(tmp_path / "r", Settings())
    config = json.loads((tmp_path / "r" / "config.json").read_text())
    del config["settings"]["seed"], config["settings"]["lora"]["targets"]
    (tmp_path / "r" / "config.json").write_text(json.dumps(config))
    Run.open(tmp_path / "r", Settings(), resume=True).close()
    with pytest.raises(TutelageError, match=r"seed \(3 against 4\)\. "):
        Run.open(tmp_path / "r", Settings(seed=4), resume=True)
    with pytest.raises(TutelageError, match=r"lora\.targets \('auto' against 'query'\)\. "):
        Run.open(tmp_path / "r", Settings(lora=Lora(rank=4, targets="query")), resume=True)


def test_a_folder_that_is_no_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(TutelageError, match=r"other things than a run \(thesis.tex\)"):
        Run.open(tmp_path, Settings(), resume=True)
    assert {path.name for path in tmp_path.iterdir()} <= {"thesis.tex", ".lock"}


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TutelageError, match="Cannot write to the output folder"):
        Run.open(tmp_path / "file" / "r", Settings())


def test_a_finished_run_opens_and_takes_nothing_more(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", Settings()) as run:
        assert not run.finished
        run.finish({"gold": 1.5})
    with Run.open(tmp_path / "r", Settings()) as run:
        assert run.finished
        with pytest.raises(RuntimeError, match="is finished"):
            run.log(1, {})
    assert json.loads((tmp_path / "r" / "summary.json").read_text()) == {"gold": 1.5}


def test_a_finished_run_keeps_the_steps_after_its_last_checkpoint(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", Settings()) as run:
        for step in range(1, 6):
            run.log(step, {})
            if step == 2:
                run.checkpoint(step, write("2"))
        run.finish({})
    with Run.open(tmp_path / "r", Settings(), resume=True) as run:
        assert len(read_lines(run.path / "metrics.jsonl")) == 5


def test_a_summary_is_json_whatever_the_figures_are(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with Run.open(tmp_path / "r", Settings()) as run:
        run.finish({"policy": {"kl": float("nan"), "ci": [0.5, float("inf")]}, "out": run.path})
    strict = json.loads((tmp_path / "r" / "summary.json").read_text(), parse_constant=pytest.fail)
    assert strict == {"policy": {"kl": None, "ci": [0.5, None]}, "out": str(tmp_path / "r")}
    assert "policy.kl is nan" in caplog.text
    assert "policy.ci is inf" in caplog.text


@for_each(product([None, "tutelage-run/0"], [False, True]))
def test_a_run_in_another_format_is_refused_and_stays_as_it_is(
    told: str | None, finished: bool, tmp_path: Path
) -> None:
    with Run.open(tmp_path / "r", Settings()) as run:
        run.log(1, {"loss": 1.0})
        run.checkpoint(1, write("1"))
        if finished:
            run.finish({"loss": 1.0})
    path = tmp_path / "r" / "config.json"
    config = json.loads(path.read_text())
    del config["format"]
    path.write_text(json.dumps(config | ({"format": told} if told else {})))
    names = [file for file in (tmp_path / "r").rglob("*") if file.is_file() and file.name != ".lock"]
    before = {file: file.read_bytes() for file in names}
    for resume in (False, True):
        with pytest.raises(TutelageError, match=r"tutelage-run/1.*use the version that started the run"):
            Run.open(tmp_path / "r", Settings(), resume=resume)
    assert {file: file.read_bytes() for file in before} == before


def test_a_damaged_config_is_named(tmp_path: Path) -> None:
    begin(tmp_path / "r", Settings())
    (tmp_path / "r" / "config.json").write_text('{"settings": {')
    with pytest.raises(TutelageError, match=r"config\.json is not valid JSON"):
        Run.open(tmp_path / "r", Settings(), resume=True)


# going on


def test_resume_drops_what_came_after_the_checkpoint(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", Settings()) as run:
        for step in range(1, 8):
            run.log(step, {"loss": 1 / step})
            run.samples(step, [{"prompt": "p", "completion": f"{step}"}] * 2)
            if step % 3 == 0:
                run.checkpoint(step, write(f"{step}"))
    before = (tmp_path / "r" / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    with (tmp_path / "r" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "los')  # what kill -9 leaves
    with Run.open(tmp_path / "r", Settings(), resume=True) as run:
        assert run.start == 6
        assert state(run.latest()) == "6"
        assert (run.path / "metrics.jsonl").read_bytes() == b"".join(before[:6])
        assert [row["step"] for row in read_lines(run.path / "samples.jsonl")] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]
        run.log(7, {})
        seconds = [row["seconds"] for row in read_lines(run.path / "metrics.jsonl")]
        assert seconds == sorted(seconds)  # type: ignore[type-var]


def test_resume_without_a_checkpoint_begins_again(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", Settings(), resume=True) as run:
        assert (run.start, run.latest()) == (0, None)
        run.log(1, {})
    with Run.open(tmp_path / "r", Settings(), resume=True) as run:
        assert run.start == 0
        assert read_lines(run.path / "metrics.jsonl") == []


def test_the_clock_goes_on_where_the_kept_lines_end(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", Settings()) as run:
        run.checkpoint(1, write("1"))
    (tmp_path / "r" / "metrics.jsonl").write_text('{"step": 1, "seconds": 100.0}\n{"step": 2, "seconds": 500.0}\n')
    with Run.open(tmp_path / "r", Settings(), resume=True) as run:
        run.log(2, {})
        assert 100 <= float(str(read_lines(run.path / "metrics.jsonl")[-1]["seconds"])) < 200


def test_keep_until_leaves_a_missing_file_missing(tmp_path: Path) -> None:
    assert keep_until(tmp_path / "none.jsonl", 3) == []
    assert list(tmp_path.iterdir()) == []


# checkpoints


def test_the_newest_and_the_best_stay(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", Settings(), keep=2) as run:
        for step, loss in enumerate([float("nan"), 3.0, 1.0, 2.0, 2.5, 1.0, 4.0], start=1):
            run.checkpoint(step, write(f"{step}"), metric=loss)
        assert steps(run) == ["step-6", "step-7"]  # of two equally good ones the newer
        assert (state(run.latest()), state(run.best())) == ("7", "6")
        run.checkpoint(8, write("8"), metric=9.0)
        run.checkpoint(10, write("10"))
        assert steps(run) == ["step-10", "step-6", "step-8"]
        latest = run.latest()
        assert latest is not None
        assert (step_of(latest), metric_of(latest)) == (10, None)


def test_the_lowest_metric_is_the_best_and_is_remembered_over_a_resume(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", Settings(), keep=1) as run:
        for step, score in enumerate([5.0, 1.0, 4.0], start=1):
            run.checkpoint(step, write(f"{step}"), metric=score)
    with Run.open(tmp_path / "r", Settings(), resume=True, keep=1) as run:
        run.checkpoint(4, write("4"), metric=3.0)
        assert steps(run) == ["step-2", "step-4"]
        assert state(run.best()) == "2"


def test_without_metrics_there_is_no_best(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", Settings(), keep=1) as run:
        for step in (1, 2):
            run.checkpoint(step, write(f"{step}"))
        assert run.best() is None
        assert steps(run) == ["step-2"]


def test_a_checkpoint_can_be_written_again(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", Settings()) as run:
        run.checkpoint(5, write("first"))
        run.checkpoint(5, write("second"))
        assert state(run.latest()) == "second"
        assert steps(run) == ["step-5"]


def test_the_previous_checkpoint_stays_until_the_new_one_is_complete(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", Settings(), keep=1) as run:
        run.checkpoint(1, write("1"))
        seen = []

        def save(folder: Path) -> None:
            seen.append(state(run.latest()))
            write("2")(folder)

        run.checkpoint(2, save)
        assert seen == ["1"]
        assert steps(run) == ["step-2"]


DAMAGE: dict[str, Callable[[Path], object]] = {
    "is missing": Path.unlink,
    "has 0 bytes": lambda file: file.write_bytes(b""),
    "has 2 bytes": lambda file: os.truncate(file, 2),
    "has other content": lambda file: file.write_bytes(b"\xff" * file.stat().st_size),
}
"""What happens to a file of three bytes, by what is said of it."""


@for_each(["checkpoint.json", "state.pt", "inner/model.bin"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_used(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def save(folder: Path) -> None:
        (folder / "inner").mkdir()
        for file in ("state.pt", "inner/model.bin"):
            (folder / file).write_text("abc")

    for reason, harm in DAMAGE.items():
        out = tmp_path / reason.replace(" ", "")
        with Run.open(out, Settings(), keep=3) as run:
            for step in (2, 4, 6):
                run.log(step, {"loss": 1.0})
                run.checkpoint(step, save, metric=step)
        harm(out / "checkpoints" / "step-6" / name)
        harm(out / "checkpoints" / "step-2" / name)  # the best
        with Run.open(out, Settings(), resume=True, keep=3) as run:
            assert run.start == run.last["step"] == 4
            assert run.latest() == run.best() == out / "checkpoints" / "step-4"
            assert steps(run) == ["damaged-step-2", "damaged-step-6", "step-4"]
        said = "cannot be read" if name == "checkpoint.json" else f"{name} {reason}"
        assert (
            f"step 6 is damaged ({name} {reason}" in caplog.text or f"step 6 is damaged ({name} {said}" in caplog.text
        )
        harm(out / "checkpoints" / "step-4" / name)
        with pytest.raises(TutelageError, match=rf"No checkpoint in .*step-4: {name}"):
            Run.open(out, Settings(), resume=True)
        assert (out / "checkpoints" / "step-4").exists()


def test_a_finished_run_does_not_read_its_checkpoints(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", Settings()) as run:
        run.checkpoint(1, write("1"))
        run.finish({})
    (tmp_path / "r" / "checkpoints" / "step-1" / "inner" / "state.txt").unlink()
    Run.open(tmp_path / "r", Settings()).close()


def test_an_error_of_the_program_passes_through_and_leaves_nothing_behind(tmp_path: Path) -> None:
    def save(folder: Path) -> None:
        write("half")(folder)
        raise KeyError("a defect")

    with Run.open(tmp_path / "r", Settings()) as run:
        run.checkpoint(1, write("1"))
        with pytest.raises(KeyError, match="a defect"):
            run.checkpoint(2, save)
        assert steps(run) == ["step-1"]


def test_a_file_that_the_program_forgot_is_a_defect_and_no_full_disk(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", Settings()) as run, pytest.raises(FileNotFoundError):
        run.checkpoint(1, lambda folder: (folder / "not there").read_text())


def no_space(folder: Path) -> None:
    (folder / "half").write_bytes(b"x" * 2_000_000)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_keeps_the_previous_checkpoint_and_reports_it(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", Settings(), keep=1) as run:
        run.checkpoint(1, write("x" * 3_000_000))
        with pytest.raises(TutelageError) as caught:
            run.checkpoint(2, no_space)
        assert steps(run) == ["step-1"]
    message = str(caught.value)
    assert "step 2 could not be written" in message
    assert "No space left on device" in message
    assert "that of step 1 is kept" in message
    assert "At least 3.0 MB are needed and" in message
    assert "--resume" in message


def test_a_full_disk_at_the_first_checkpoint_reports_the_step(tmp_path: Path) -> None:
    with (
        Run.open(tmp_path / "r", Settings()) as run,
        pytest.raises(TutelageError, match=r"there is no earlier one\. At least 2\.0 MB are needed"),
    ):
        run.checkpoint(1, no_space)


SAVES = {
    "python": "(folder / 'w').write_bytes(bytes(size))",
    "torch": "import torch; torch.save({'w': torch.zeros(size // 4)}, folder / 'w.pt')",
    "safetensors": (
        "import torch; from safetensors.torch import save_file;"
        " save_file({'w': torch.zeros(size // 4)}, folder / 'w.safetensors')"
    ),
}


@for_each(SAVES)
def test_a_limit_of_the_system_is_reported_whichever_library_writes(library: str, tmp_path: Path) -> None:
    code = f"""
        import resource, sys
        from dataclasses import dataclass
        from tutelage.base.errors import TutelageError
        from tutelage.train.run.folder import Run
        @dataclass(frozen=True)
        class Settings: pass
        size = 1000
        def save(folder):
            {SAVES[library]}
        run = Run.open(sys.argv[1], Settings())
        run.checkpoint(1, save)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        size = 1_000_000
        try:
            run.checkpoint(2, save)
        except TutelageError as error:
            print("TOLD", error)
        size = 1000
        run.checkpoint(3, save)
        print("LATEST", run.latest().name)
    """
    process = python(code, str(tmp_path / "r"))
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "TOLD The checkpoint of step 2 could not be written" in out
    assert "step 1 is kept" in out
    assert "LATEST step-3" in out
    assert sorted(path.name for path in (tmp_path / "r" / "checkpoints").iterdir()) == ["step-1", "step-3"]


@for_each([0.0, 0.004, 0.012, 0.03, 0.05])
def test_a_kill_in_the_middle_of_a_checkpoint_leaves_the_latest_complete(moment: float, tmp_path: Path) -> None:
    code = """
        import sys
        from dataclasses import dataclass
        from tutelage.train.run.folder import Run
        @dataclass(frozen=True)
        class Settings: pass
        run = Run.open(sys.argv[1], Settings(), keep=1)
        def save(step):
            def write(folder):
                for part in range(20):
                    (folder / f"part-{part}").write_text(f"{step} " * 2000)
            return write
        step = 0
        while True:
            step += 1
            run.log(step, {"loss": 1.0})
            run.checkpoint(step, save(step))
            if step == 3:
                print("go", flush=True)
    """

    process = python(code, str(tmp_path / "r"))
    assert process.stdout.readline() == "go\n"
    time.sleep(moment)
    process.kill()
    process.communicate()
    with Run.open(tmp_path / "r", Empty(), resume=True, keep=1) as run:
        latest = run.latest()
        assert latest is not None
        assert run.start == step_of(latest) >= 3
        for part in range(20):
            assert (latest / f"part-{part}").read_text() == f"{run.start} " * 2000
        assert [row["step"] for row in read_lines(run.path / "metrics.jsonl")] == list(range(1, run.start + 1))
        assert not [name for name in steps(run) if name.startswith(".")]


def test_leftovers_of_a_crash_are_removed_and_a_half_done_replacement_is_undone(tmp_path: Path) -> None:
    with Run.open(tmp_path / "r", Settings()) as run:
        run.checkpoint(1, write("1"))
        run.checkpoint(2, write("2"))
    folder = tmp_path / "r" / "checkpoints"
    (folder / "step-2").rename(folder / ".old-step-2")  # killed between the two renames
    (folder / ".tmp-step-9").mkdir()
    write("half")(folder / ".tmp-step-9")
    (folder / "step-10").mkdir()  # without its note it is none
    with Run.open(tmp_path / "r", Settings(), resume=True) as run:
        assert state(run.latest()) == "2"
        assert steps(run) == ["damaged-step-10", "step-1", "step-2"]


# ctrl-C


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_requests_a_stop_and_the_second_interrupts(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    done = 0
    with pytest.raises(KeyboardInterrupt), interrupted() as stop:  # noqa: PT012
        assert not stop
        os.kill(os.getpid(), number)
        done += 1  # the step goes on
        assert stop
        os.kill(os.getpid(), number)
        done += 1
    assert done == 1
    assert signal.getsignal(number) is before


def test_the_first_signal_interrupts_where_nothing_is_lost() -> None:
    done: list[int] = []
    with pytest.raises(KeyboardInterrupt), interrupted(lambda: len(done) == 1):  # noqa: PT012
        done.append(1)
        os.kill(os.getpid(), signal.SIGINT)
        done.append(2)
    assert done == [1]


def test_what_a_second_signal_keeps_is_said_at_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    with interrupted(lambda: False, lambda: "That keeps step 7."):
        os.kill(os.getpid(), signal.SIGINT)
    assert capsys.readouterr().err.endswith("Once more to stop at once. That keeps step 7.\n")


def test_another_thread_installs_no_signal_handler() -> None:
    seen = []

    def work() -> None:
        with interrupted() as stop:
            seen.append(bool(stop))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]


def test_the_resume_command_is_the_command_of_the_run_with_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Run.open(tmp_path / "r", Settings()) as run:
        monkeypatch.setattr(sys, "argv", ["/usr/bin/tutelage", "sft", "--out", "my runs/x"])
        assert run.resume_command == "tutelage sft --out 'my runs/x' --resume"
    with Run.open(tmp_path / "r", Settings(), resume=True) as run:
        monkeypatch.setattr(sys, "argv", ["/x/tutelage/__main__.py", "sft", "--resume"])
        assert run.resume_command == "tutelage sft --resume"
        monkeypatch.setattr(sys, "argv", ["/usr/bin/tutelage", "demo", "--seed", "1"])
        assert run.resume_command == "tutelage demo --seed 1", "a command without the flag, whose runs resume"


def test_lines_are_appended_to_what_is_there(tmp_path: Path) -> None:
    for step in (1, 2):
        lines = JsonLines(tmp_path / "m.jsonl")
        lines.append({"step": step})
        lines.close()
    assert read_lines(tmp_path / "m.jsonl") == [{"step": 1}, {"step": 2}]


def test_ctrl_c_finishes_the_step_saves_and_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    code = """
        import sys, time
        from dataclasses import dataclass
        from tutelage.train.run.interrupt import interrupted
        from tutelage.train.run.folder import Run
        @dataclass(frozen=True)
        class Settings: pass
        with Run.open(sys.argv[1], Settings()) as run, interrupted() as stop:
            for step in range(1, 1000):
                print(step, flush=True)
                time.sleep(0.05)
                run.log(step, {})
                if stop:
                    run.checkpoint(step, lambda folder: (folder / "s").write_text("x"))
                    break
    """
    process = python(code, str(tmp_path / "r"))
    assert process.stdout.readline() == "1\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert (process.returncode, "Finishing this step" in err) == (0, True)
    with Run.open(tmp_path / "r", Empty(), resume=True) as run:
        assert run.start >= 1
        assert [row["step"] for row in read_lines(run.path / "metrics.jsonl")] == list(range(1, run.start + 1))
