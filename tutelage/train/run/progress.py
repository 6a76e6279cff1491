"""Progress on the terminal: a bar with rate, remaining time and a few metrics; plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO, TypeAlias

if TYPE_CHECKING:
    from rich.progress import Task

Advance: TypeAlias = Callable[[int, Mapping[str, float]], None]
"""Called with the number of the step that is done (counted from 1) and its metrics."""


@contextmanager
def progress(
    label: str,
    total: int,
    *,
    start: int = 0,
    show: tuple[str, ...] = (),
    quiet: bool = False,
    stream: TextIO | None = None,
    interval: float = 10.0,
) -> Iterator[Advance]:
    """Show the way from step `start` to step `total`, with the metrics named in `show`, on standard error.

    On a terminal a bar; elsewhere a line at the first and the last step and every `interval` seconds between;
    nothing at all when `quiet`.
    """
    stream = stream or sys.stderr
    if quiet:
        yield lambda step, metrics: None
    elif stream.isatty():
        with _bar(label, total, start, show, stream) as advance:
            yield advance
    else:
        yield _lines(label, total, start, show, stream, interval)


@contextmanager
def _bar(label: str, total: int, start: int, show: tuple[str, ...], stream: TextIO) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn
    from rich.text import Text

    began = time.monotonic()

    class Rate(ProgressColumn):
        def render(self, task: "Task") -> Text:
            return Text(_rate(int(task.completed), total, start, time.monotonic() - began), style="cyan")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TextColumn("{task.fields[live]}"),
    )
    with Progress(*columns, console=Console(file=stream)) as bar:
        task = bar.add_task(label, total=total, completed=start, live="")
        yield lambda step, metrics: bar.update(task, completed=step, live=_live(metrics, show))


def _lines(
    label: str, total: int, start: int, show: tuple[str, ...], stream: TextIO, interval: float
) -> Advance:
    began = time.monotonic()
    due = began

    def advance(step: int, metrics: Mapping[str, float]) -> None:
        nonlocal due
        now = time.monotonic()
        if now < due and step < total:
            return
        due = now + interval
        parts = (f"{label} {step}/{total}", _rate(step, total, start, now - began), _live(metrics, show))
        print("  ".join(part for part in parts if part), file=stream, flush=True)

    return advance


def _rate(step: int, total: int, start: int, seconds: float) -> str:
    """Speed so far and the time that is left: "2.1 steps/s, 0:35 left". Steps before `start` were free."""
    done = step - start
    if done <= 0 or seconds <= 0:
        return ""
    speed = f"{done / seconds:.1f} steps/s" if done > seconds else f"{seconds / done:.1f} s/step"
    return f"{speed}, {_clock(seconds / done * (total - step))} left"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _live(metrics: Mapping[str, float], show: tuple[str, ...]) -> str:
    return "  ".join(f"{name} {metrics[name]:.4g}" for name in show if name in metrics)
