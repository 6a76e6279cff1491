"""How long the calls of a function take, noted from outside, and how fast the machine was meanwhile."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@contextmanager
def timed(owner: Any, name: str, clock: Callable[[], float] = time.perf_counter) -> Iterator[list[float]]:
    """Inside, the seconds that each call of a function of a module or class takes are noted in the list."""
    spent: list[float] = []

    def noting(inner: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        started = clock()
        result = inner(*args, **kwargs)
        spent.append(clock() - started)
        return result

    with replaced(owner, name, noting):
        yield spent


@dataclass(frozen=True)
class Beside:
    """What the machine could do around one call, and the seconds that it took to ask."""

    rate: float
    seconds: float


@contextmanager
def measured_beside(owner: Any, name: str, rate: Callable[[], float]) -> Iterator[list[Beside]]:
    """Inside, `rate` is asked before and after each call of a function; the means are noted in the list."""
    noted: list[Beside] = []

    def asked() -> Beside:
        started = time.perf_counter()
        return Beside(rate(), time.perf_counter() - started)

    def asking(inner: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        before = asked()
        result = inner(*args, **kwargs)
        behind = asked()
        noted.append(Beside((before.rate + behind.rate) / 2, before.seconds + behind.seconds))
        return result

    with replaced(owner, name, asking):
        yield noted


@contextmanager
def replaced(owner: Any, name: str, by: Callable[..., Any]) -> Iterator[None]:
    """Inside, `by` is called instead of a function, and gets it first."""
    inner = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: by(inner, *args, **kwargs))
    try:
        yield
    finally:
        setattr(owner, name, inner)
