"""Commands on a terminal: remarks and progress on standard error, and a graceful stop of training at ctrl-C."""

import logging
import shlex
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from tutelage.commands.display import display, progress
from tutelage.commands.results import TrainingResult
from tutelage.train.run.interrupt import Interrupted, interrupted
from tutelage.train.run.loop import Loop, Training

log = logging.getLogger(__name__)
R = TypeVar("R")
M = TypeVar("M", bound=TrainingResult)


class StandardError(logging.Handler):
    """Handler that writes each message as a line to the current `sys.stderr`."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message."""
        print(self.format(record), file=sys.stderr, flush=True)


@contextmanager
def remarks(*, quiet: bool) -> Iterator[None]:
    """Show the package's log and progress on standard error; with `quiet` only warnings."""
    logger, handler = logging.getLogger("tutelage"), StandardError()
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING if quiet else logging.INFO)
    logger.propagate = False  # a handler of the root logger would repeat every message
    try:
        with display(quiet=quiet):
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def follow(loop: Loop, *, quiet: bool) -> None:
    """Run the remaining steps of a loop, with progress unless `quiet`.

    The first ctrl-C stops immediately if the weights are those of the last step, for example during a rollout, and
    otherwise at the end of the step; in both cases a checkpoint is written. The second one stops immediately. All
    raise `Interrupted`, whose message says what was saved.
    """
    last, alone = None, loop.run.ranks.size == 1

    def moment() -> tuple[int, int]:
        return loop.learner.version, loop.learner.step

    reached = moment()

    def is_unchanged() -> bool:
        return alone and moment() == reached

    def kept() -> str:
        return f"That keeps {_kept(loop)}."

    with progress(loop.label, loop.total, start=loop.index, show=loop.show, quiet=quiet) as advance:
        try:
            with interrupted(is_unchanged, kept) as stop:
                for step in loop:
                    last, reached = step, moment()
                    advance(step.index, step.metrics)
                    stopped = loop.run.ranks.any(bool(stop))
                    if stopped and step.index < loop.total and not loop.monitor.enough():
                        break
                else:
                    return
        except KeyboardInterrupt:
            if not is_unchanged():
                raise Interrupted(
                    f"Stopped within step {loop.index + 1}. Kept is {_kept(loop)}. {_onward(loop)}"
                ) from None
        if last is None:
            raise Interrupted(f"Stopped before the end of a step. Kept is {_kept(loop)}. {_onward(loop)}")
        loop.checkpoint(last)
        raise Interrupted(f"Stopped after step {last.index}; everything is saved. {_onward(loop)}")


def _kept(loop: Loop) -> str:
    """Describe what a stop at once keeps."""
    latest = loop.run.latest()
    return "the data alone: no step is saved yet" if latest is None else f"the checkpoint {latest}"


def _onward(loop: Loop) -> str:
    return f"Continue with: {loop.run.resume_command}"


def complete(prepared: AbstractContextManager[Training[R]], *, quiet: bool, announced: bool = False) -> R:
    """Open a training run, follow it to its end and return its result. An `announced` run begins with its plan. Raises
    Interrupted, with what is kept, at a ctrl-C."""
    with display(quiet=quiet), prepared as training:
        loop = training.loop
        try:
            if loop is not None:
                if announced and (text := training.announcement(loop.total - loop.index)):
                    log.info(text)
                follow(loop, quiet=quiet)
            return training.finish()
        except Interrupted:
            raise
        except KeyboardInterrupt:
            if loop is None:
                raise
            raise Interrupted(f"Stopped at once. Kept is {_kept(loop)}. {_onward(loop)}") from None


def train(prepared: AbstractContextManager[Training[M]], *, quiet: bool) -> int:
    """Run a training command: follow the run to its end with remarks, and print the description of its result, the path
    of the model, and the command for its report. Returns the exit status, 0."""
    with remarks(quiet=quiet):
        result = complete(prepared, quiet=quiet, announced=not quiet)
    if not quiet:
        report = f"tutelage report {shlex.quote(str(result.out))}"
        for line in (*result.describe(), f"The model is {result.model}. A page about the run: {report}"):
            print(line, file=sys.stderr)
    return 0
