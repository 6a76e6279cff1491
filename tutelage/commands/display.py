"""Progress on standard error: a status line in a terminal, log lines in a file.

A display observes the phases of its thread (see `phases`), such as a loop with its steps. It is open during a whole
command, so that it also shows imports, loading and saving. A terminal that cannot move the cursor (`TERM=dumb`) and the
log of continuous integration (`CI`) are treated as files.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TextIO, TypeAlias, cast

from tutelage.base.progress.displays import Bar, Display, LogLines, Stream
from tutelage.base.progress.phases import HERE, phase
from tutelage.engines.ranks.processes import world_rank

Advance: TypeAlias = Callable[[int, Mapping[str, float]], None]
"""Callback with the number of the completed step (counted from 1) and its metrics."""


@contextmanager
def progress(
    label: str, total: int | None, *, start: int = 0, show: tuple[str, ...] = (), quiet: bool = False
) -> Iterator[Advance]:
    """Show progress from step `start` to step `total` (None if unknown), with the metrics named in `show`, on the
    display of this thread or a new one. Nothing is shown when `quiet`."""
    with display(quiet=quiet), phase(label, total, done=start, show=show, loop=not quiet) as loop:
        yield loop.advance


@contextmanager
def display(*, quiet: bool = False, stream: TextIO | None = None, by_itself: bool = True) -> Iterator[Display | None]:
    """Show the phases of this thread on `stream`, by default standard error, until the context ends.

    There is no display when `quiet`, on ranks other than the first, and within another display. A thread updates it;
    without `by_itself` the caller calls `look`.
    """
    if quiet or world_rank() != 0 or HERE.observer is not None:
        yield None
        return
    stream = stream or sys.stderr
    opened = Bar(stream, HERE.phases) if _goes_back(stream) else LogLines(stream, HERE.phases)
    HERE.observer = opened
    try:
        with _shared(opened), opened.looking() if by_itself else nullcontext():
            yield opened
    finally:
        HERE.observer = None
        opened.close()


def _goes_back(stream: TextIO) -> bool:
    """Whether the stream is an interactive terminal that can redraw a line."""
    watched = os.environ.get("CI", "").lower() in ("", "0", "false")
    return stream.isatty() and watched and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


@contextmanager
def _shared(opened: Display) -> Iterator[None]:
    """Redirect standard error, and standard output if both are the terminal, through the display."""
    names = ["stderr"] if opened.stream is sys.stderr else []
    if names and isinstance(opened, Bar) and sys.stdout.isatty():
        names.append("stdout")
    before = {name: getattr(sys, name) for name in names}
    within = {name: cast(TextIO, Stream(opened, stream)) for name, stream in before.items()}
    for name, stream in within.items():
        setattr(sys, name, stream)
    try:
        yield
    finally:
        for name, stream in within.items():
            if getattr(sys, name) is stream:
                setattr(sys, name, before[name])
