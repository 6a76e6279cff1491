"""Remarks on a terminal: information unless quiet, warnings always, and no handler left behind."""

import logging
import shlex
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from tutelage.base import config
from tutelage.commands.terminal import complete, remarks, train
from tutelage.train.learner import Step
from tutelage.train.run.folder import Run
from tutelage.train.run.interrupt import Interrupted
from tutelage.train.run.loop import Monitor, Training

log = logging.getLogger("tutelage.somewhere")


@pytest.mark.parametrize(("quiet", "shown"), [(False, "20 rows\nthe disk is full\n"), (True, "the disk is full\n")])
def test_quiet_hides_remarks_and_never_warnings(quiet, shown, capsys):
    level = logging.getLogger("tutelage").level
    with remarks(quiet=quiet):
        log.debug("nobody reads this")
        log.info("20 rows")
        log.warning("the disk is full")
    assert capsys.readouterr() == ("", shown)
    log.info("after it")
    assert capsys.readouterr() == ("", "")
    assert logging.getLogger("tutelage").level == level


def test_the_handler_is_removed_even_after_an_error(capsys):
    before = list(logging.getLogger("tutelage").handlers)
    with pytest.raises(ValueError, match="no"), remarks(quiet=False):
        raise ValueError("no")
    assert logging.getLogger("tutelage").handlers == before


def test_a_library_that_gives_the_root_logger_a_handler_repeats_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.StreamHandler(sys.stderr)])
    with remarks(quiet=False):
        logging.getLogger("tutelage.commands").info("said once")
    assert capsys.readouterr().err == "said once\n"


def test_the_end_of_a_run_says_how_to_look_at_it_in_words_that_a_shell_reads_back(capsys):
    out = Path("my runs/ppo")
    result = SimpleNamespace(out=out, model=out / "model", describe=lambda: ["score 0.5"])

    def finished(quiet):
        prepared = nullcontext(Training(None, lambda: result))
        status = train(prepared, quiet=quiet)
        return status, *capsys.readouterr()

    assert finished(True) == (0, "", "")
    status, out, told = finished(False)
    assert (status, out) == (0, "")
    assert shlex.split(told.partition("run: ")[2]) == ["tutelage", "report", "my runs/ppo"]
    assert told.startswith("score 0.5\nThe model is my runs/ppo/model.")


@dataclass
class Loop:
    """A loop of one step."""

    run: Run
    label: str = "x"
    total: int = 1
    index: int = 0
    learner: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(version=1, step=1))
    show: tuple[str, ...] = ()
    monitor: Monitor = field(default_factory=Monitor)

    def __iter__(self) -> Iterator[Step]:
        self.run.checkpoint(1, lambda folder: (folder / "weights").write_text("1"))
        yield Step(1, {})


@pytest.mark.parametrize("saves", [True, False])
def test_a_run_that_is_stopped_while_its_model_is_saved_says_what_is_kept(tmp_path: Path, saves: bool) -> None:
    def conclude() -> None:
        raise KeyboardInterrupt  # while the final model is saved

    with Run.open(tmp_path / "run", config.Sampling()) as run:
        loop = Loop(run)
        if not saves:
            loop.run.checkpoint = lambda *given: tmp_path  # type: ignore[method-assign, assignment]
        with pytest.raises(Interrupted) as stopped:
            complete(nullcontext(Training(loop, conclude)), quiet=True)  # type: ignore[arg-type]
        assert ("checkpoints/step-1" if saves else "no step is saved") in str(stopped.value)
        assert "--resume" in str(stopped.value)
