"""Commands on a terminal: remarks and progress on standard error, and a graceful stop of training at ctrl-C."""

import logging
import shlex
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from tutelage.commands.display import display, progress
from tutelage.train.run.interrupt import Interrupted, interrupted
from tutelage.train.run.loop import Loop, Training

R = TypeVar("R")


class Result(Protocol):
    """Result of a finished run: its folder, that of its model, and its figures."""

    @property
    def out(self) -> Path: ...

    @property
    def model(self) -> Path: ...
    def describe(self) -> list[str]: ...


M = TypeVar("M", bound=Result)


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

    The first ctrl-C ends the step, writes a checkpoint and raises `Interrupted`.
    """
    with (
        progress(loop.label, loop.total, start=loop.index, show=loop.show, quiet=quiet) as advance,
        interrupted() as stop,
    ):
        for step in loop:
            advance(step.index, step.metrics)
            stopped = loop.run.ranks.any(bool(stop))
            if stopped and step.index < loop.total and not loop.monitor.enough():
                loop.checkpoint(step)
                raise Interrupted(
                    f"Stopped after step {step.index}; everything is saved. Continue with: {loop.run.resume_command}"
                )


def complete(prepared: AbstractContextManager[Training[R]], *, quiet: bool) -> R:
    """Open a training run, follow it to its end and return its result."""
    with display(quiet=quiet), prepared as training:
        if training.loop is not None:
            follow(training.loop, quiet=quiet)
        return training.finish()


def train(prepared: AbstractContextManager[Training[M]], *, quiet: bool) -> int:
    """Run a training command: follow the run to its end with remarks, and print the description of its result, the path
    of the model, and the command for its report. Returns the exit status, 0."""
    with remarks(quiet=quiet):
        result = complete(prepared, quiet=quiet)
    if not quiet:
        report = f"tutelage report {shlex.quote(str(result.out))}"
        for line in (*result.describe(), f"The model is {result.model}. A page about the run: {report}"):
            print(line, file=sys.stderr)
    return 0
