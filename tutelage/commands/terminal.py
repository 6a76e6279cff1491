"""A command on a terminal: remarks and progress on standard error, and a polite stop of training at ctrl-C."""

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
    """The result of a finished run: its folder, that of its model, and its figures."""

    @property
    def out(self) -> Path: ...

    @property
    def model(self) -> Path: ...
    def describe(self) -> list[str]: ...


M = TypeVar("M", bound=Result)


class StandardError(logging.Handler):
    """Writes each message as a line of its own to whatever `sys.stderr` is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message."""
        print(self.format(record), file=sys.stderr, flush=True)


@contextmanager
def remarks(*, quiet: bool) -> Iterator[None]:
    """Show on standard error what the package logs, and how far it is; with `quiet` only trouble."""
    logger, handler = logging.getLogger("tutelage"), StandardError()
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING if quiet else logging.INFO)
    logger.propagate = (
        False  # a library that logs through the root logger gives it a handler, which would repeat all
    )
    try:
        with display(quiet=quiet):
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def follow(loop: Loop, *, quiet: bool) -> None:
    """Take the remaining steps of a loop, with their progress unless `quiet`.

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
                    f"Stopped after step {step.index}; everything is saved. "
                    f"Go on with: {loop.run.resume_command}"
                )


def complete(prepared: AbstractContextManager[Training[R]], *, quiet: bool) -> R:
    """Open a training run, follow it to its end and return its result."""
    with display(quiet=quiet), prepared as training:
        if training.loop is not None:
            follow(training.loop, quiet=quiet)
        return training.finish()


def train(prepared: AbstractContextManager[Training[M]], *, quiet: bool) -> int:
    """The whole of a command that trains: follow the run to its end, with its remarks, and print what its result
    describes, where the model is, and which command shows the run. Returns the exit status, 0."""
    with remarks(quiet=quiet):
        result = complete(prepared, quiet=quiet)
    if not quiet:
        shown = f"tutelage report {shlex.quote(str(result.out))}"
        for line in (*result.describe(), f"The model is {result.model}. A page about the run: {shown}"):
            print(line, file=sys.stderr)
    return 0
