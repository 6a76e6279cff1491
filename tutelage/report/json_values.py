"""Values in JSON that others wrote: a value of the expected kind, or nothing. No function here raises."""

import math
from collections.abc import Mapping
from typing import TypeAlias

Object: TypeAlias = Mapping[str, object]


def number(values: Object, key: str) -> float | None:
    """The finite number under a key."""
    value = values.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def string(values: Object, key: str, default: str = "") -> str:
    """The text under a key."""
    value = values.get(key)
    return value if isinstance(value, str) else default


def truth(values: Object, key: str) -> bool | None:
    """The boolean under a key."""
    value = values.get(key)
    return value if isinstance(value, bool) else None


def items(values: Object, key: str) -> list[object]:
    """The list under a key, empty without one."""
    value = values.get(key)
    return value if isinstance(value, list) else []


def objects(values: Object, key: str) -> list[Object]:
    """The objects in the list under a key."""
    return [item for item in items(values, key) if isinstance(item, dict)]


def section(values: Object, key: str) -> Object:
    """The object under a key, empty without one."""
    value = values.get(key)
    return value if isinstance(value, dict) else {}


def interval(values: Object, key: str) -> tuple[float, float] | None:
    """The pair of finite numbers under a key."""
    ends = [number({"end": end}, "end") for end in items(values, key)]
    if len(ends) != 2 or ends[0] is None or ends[1] is None:
        return None
    return ends[0], ends[1]


def flat(values: Object, lead: str = "") -> dict[str, object]:
    """Nested objects as one, their keys joined by dots: {"a": {"b": 1}} -> {"a.b": 1}."""
    found: dict[str, object] = {}
    for key, value in values.items():
        if isinstance(value, dict) and value:
            found |= flat(value, f"{lead}{key}.")
        else:
            found[f"{lead}{key}"] = value
    return found
