"""The phases of a process: what it does at the moment, reported where it happens and drawn by a watcher.

    with phase("generate", total=64) as generating:
        for rows in batches:
            ...
            generating.advance(generating.done + len(rows))

    @phase("load")
    def load_backbone(...): ...

Phases lie within each other, each thread has its own, and nothing happens without a watcher.
"""

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

T = TypeVar("T")


def now() -> float:
    """The seconds of a clock that never goes back, by which phases are timed."""
    return time.monotonic()


class Observer(Protocol):
    """What watches the phases of a thread. `advance` is called from whichever thread advances a phase."""

    def advance(self, phase: "Phase") -> None:
        """More of a phase is done."""

    def end(self, phase: "Phase") -> None:
        """A phase ends; it is still among those of its thread."""


@dataclass(eq=False)
class Phase:
    """A part of the work, and where its amount is known (`total`), how much of it is done.

    The steps of a `loop` are what a run is about: they are announced one by one, with the metrics that `show` names, in
    the order of their importance.
    """

    name: str
    total: int | None = None
    done: int | None = None
    show: tuple[str, ...] = ()
    loop: bool = False
    observer: Observer | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    """The newest value of every metric of `show`, in the order in which they first came."""
    began: float = field(default_factory=now)

    def __post_init__(self) -> None:
        self._steps = 0
        self._first = self._last = (self.done or 0, self.began)

    def advance(self, done: int, metrics: Mapping[str, float] | None = None) -> None:
        """So much is done in all, with these metrics."""
        self.done, self._steps = done, self._steps + 1
        self._last = (done, now())
        if self._steps == 1:
            self._first = self._last
        given = metrics or {}
        self.metrics |= {name: given[name] for name in self.show if name in given}
        if self.observer is not None:
            self.observer.advance(self)

    def counted(self, items: Iterable[T]) -> Iterator[T]:
        """The items, each of which is done when the next one is asked for."""
        for number, item in enumerate(items, 1):
            yield item
            self.advance(number)

    @property
    def elapsed(self) -> float:
        """The seconds since it began."""
        return now() - self.began

    @property
    def pace(self) -> float | None:
        """The mean seconds of one of `total`, over the steps after the first, which pays for what is done once; None
        while there is no second one."""
        (first, began), (last, ended) = self._first, self._last
        return (ended - began) / (last - first) if last > first else None

    @property
    def left(self) -> float | None:
        """The seconds until the end, by the pace; None where it is unknown.

        Within a step they run down to what the steps after it will take, and stay there: they never rise.
        """
        pace = self.pace
        if pace is None or self.total is None:
            return None
        (first, _), (last, ended) = self._first, self._last
        step = (last - first) / (self._steps - 1)
        rest = max(0, self.total - last)
        return max(pace * rest - (now() - ended), pace * max(0.0, rest - step))


class _Thread(threading.local):
    """The phases of a thread, the outermost first, and who watches them."""

    def __init__(self) -> None:
        self.phases: list[Phase] = []
        self.observer: Observer | None = None


HERE = _Thread()
"""The phases of the present thread. Another thread may read the list, not this name."""


@contextmanager
def phase(
    name: str,
    total: int | None = None,
    *,
    done: int | None = None,
    show: tuple[str, ...] = (),
    loop: bool = False,
) -> Iterator[Phase]:
    """A phase of this thread, from here to the end of the context; see `Phase`. It decorates functions, too."""
    phases, observer = HERE.phases, HERE.observer
    begun = Phase(name, total, done if total is None else done or 0, show, loop, observer)
    phases.append(begun)
    try:
        yield begun
    finally:
        if observer is not None:
            observer.end(begun)
        phases.remove(begun)
