"""A training run on a terminal: remarks on standard error, a progress bar, and a polite stop at ctrl-C."""

import logging
import shlex
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

from tutelage.train.run.drive import Loop, Training
from tutelage.train.run.interrupt import Interrupted, interrupted
from tutelage.train.run.progress import progress

R = TypeVar("R")


class StandardError(logging.Handler):
    """Writes each message as a line of its own to whatever `sys.stderr` is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message."""
        print(self.format(record), file=sys.stderr, flush=True)


@contextmanager
def remarks(*, quiet: bool) -> Iterator[None]:
    """Show what the package logs on standard error: remarks and trouble, with `quiet` only trouble."""
    logger, handler = logging.getLogger("tutelage"), StandardError()
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING if quiet else logging.INFO)
    logger.propagate = (
        False  # a library that logs through the root logger gives it a handler, which would repeat all
    )
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def follow(loop: Loop, *, quiet: bool) -> None:
    """Take the remaining steps of a loop, with a progress bar unless `quiet`.

    The first ctrl-C ends the step, writes a checkpoint and raises `Interrupted`.
    """
    with (
        progress(loop.label, loop.total, start=loop.index, show=loop.show, quiet=quiet) as advance,
        interrupted() as stop,
    ):
        for step in loop:
            advance(step.index, step.metrics)
            stopped = loop.run.ranks.any(bool(stop))
            if stopped and step.index < loop.total and not loop.watch.enough():
                loop.checkpoint(step)
                raise Interrupted(
                    f"Stopped after step {step.index}; everything is saved. "
                    f"Go on with: {loop.run.resume_command}"
                )


def complete(prepared: AbstractContextManager[Training[R]], *, quiet: bool) -> R:
    """Open a training run, follow it to its end and return its result."""
    with prepared as training:
        if training.loop is not None:
            follow(training.loop, quiet=quiet)
        return training.finish()


def conclude(out: Path, model: Path, *, quiet: bool) -> None:
    """Say where the model of the finished run in `out` is, and which command shows the run."""
    if not quiet:
        print(
            f"The model is {model}. A page about the run: tutelage report {shlex.quote(str(out))}",
            file=sys.stderr,
        )
