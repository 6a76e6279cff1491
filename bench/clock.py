"""How long the calls of a function take, noted from outside."""

import time
from collections.abc import Callable
from typing import Any


def timed(owner: Any, name: str) -> list[float]:
    """From now on, the seconds that each call of a function of a module or class takes are in the list."""
    inner: Callable[..., Any] = getattr(owner, name)
    spent: list[float] = []

    def outer(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        result = inner(*args, **kwargs)
        spent.append(time.perf_counter() - started)
        return result

    setattr(owner, name, outer)
    return spent
