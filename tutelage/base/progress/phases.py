"""Phases of a process: its current work, reported where it happens and shown by an observer.

    with phase("generate", total=64) as generating:
        for rows in batches:
            ...
            generating.advance(generating.done + len(rows))

    @phase("load")
    def load_backbone(...): ...

Phases nest, each thread has its own, and without an observer they have no effect.
"""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

T = TypeVar("T")


def now() -> float:
    """Return the seconds of a monotonic clock, which times phases."""
    return time.monotonic()


class Observer(Protocol):
    """Observer of the phases of a thread. Any thread that advances a phase may call `advance`."""

    def advance(self, phase: "Phase") -> None:
        """Called after progress of a phase."""

    def end(self, phase: "Phase") -> None:
        """Called when a phase ends, while it is still in the list of its thread."""


@dataclass(eq=False)
class Phase:
    """A part of the work with its progress, if its amount (`total`) is known.

    The steps of a `loop` are the main work of a run: they are reported one by one, with the metrics named in `show`,
    most important first.
    """

    name: str
    total: int | None = None
    done: int | None = None
    show: tuple[str, ...] = ()
    loop: bool = False
    observer: Observer | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    """Latest value of every metric in `show`, in order of first appearance."""
    began: float = field(default_factory=now)

    def __post_init__(self) -> None:
        self._steps = 0
        self._first = self._last = (self.done or 0, self.began)

    def advance(self, done: int, metrics: Mapping[str, float] | None = None) -> None:
        """Record the total progress so far and its metrics."""
        self.done, self._steps = done, self._steps + 1
        self._last = (done, now())
        if self._steps == 1:
            self._first = self._last
        values = metrics or {}
        self.metrics |= {name: values[name] for name in self.show if name in values}
        if self.observer is not None:
            self.observer.advance(self)

    def counted(self, items: Iterable[T]) -> Iterator[T]:
        """Yield the items; each counts as done when the next one is requested."""
        for number, item in enumerate(items, 1):
            yield item
            self.advance(number)

    @property
    def elapsed(self) -> float:
        """Seconds since the phase began."""
        return now() - self.began

    @property
    def pace(self) -> float | None:
        """Mean seconds per unit of `total`, without the first step, which includes one-off costs; None before the
        second step."""
        (first, began), (last, ended) = self._first, self._last
        return (ended - began) / (last - first) if last > first else None

    @property
    def left(self) -> float | None:
        """Estimated seconds until the end; None if unknown.

        Within a step the estimate falls to the time of the steps after it, and stays there: it never rises.
        """
        pace = self.pace
        if pace is None or self.total is None:
            return None
        (first, _), (last, ended) = self._first, self._last
        step = (last - first) / (self._steps - 1)
        rest = max(0, self.total - last)
        return max(pace * rest - (now() - ended), pace * max(0.0, rest - step))


class _Thread(threading.local):
    """Phases of a thread, the outermost first, and their observer."""

    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self.observer: Observer | None = None


HERE = _Thread()
"""Phases of the current thread. Another thread may read the list, but not through this name."""


@contextmanager
def phase(
    name: str, total: int | None = None, *, done: int | None = None, show: tuple[str, ...] = (), loop: bool = False
) -> Iterator[Phase]:
    """Open a phase of this thread for the duration of the context; see `Phase`. Also usable as a decorator."""
    phases, observer = HERE.phases, HERE.observer
    current = Phase(name, total, done if total is None else done or 0, show, loop, observer)
    phases.append(current)
    try:
        yield current
    finally:
        if observer is not None:
            observer.end(current)
        phases.remove(current)
