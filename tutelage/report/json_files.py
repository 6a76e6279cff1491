"""Tolerant reading of JSON files and of typed values in them.

Functions that read a file return its content, and a message about unreadable content ("" if there is none, or no such
file).
"""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from tutelage.base.nouns import counted

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


def settings_in(config: Object) -> Object:
    """The settings in a config.json; commands that do not train write them at the top level."""
    return section(config, "settings") or config


def interval(values: Object, key: str) -> tuple[float, float] | None:
    """The pair of finite numbers under a key."""
    ends = [number({"end": end}, "end") for end in items(values, key)]
    if len(ends) != 2 or ends[0] is None or ends[1] is None:
        return None
    return ends[0], ends[1]


def numbers(values: Object, key: str) -> tuple[float, ...]:
    """The list of finite numbers under a key; empty if it holds anything else."""
    numbers_or_none = [number({"item": item}, "item") for item in items(values, key)]
    finite = tuple(item for item in numbers_or_none if item is not None)
    return finite if len(finite) == len(numbers_or_none) else ()


def read_object(path: Path) -> tuple[Object, str]:
    """The JSON object in a file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        return {}, ""
    except (OSError, ValueError, RecursionError) as error:
        return {}, f"{path.name} could not be read: {error}"
    return (content, "") if isinstance(content, dict) else ({}, f"{path.name} is not a JSON object")


def read_table(path: Path) -> tuple[list[Object], str]:
    """The JSON objects in the lines of a file. Invalid lines are counted in the message; a crash may truncate the last
    one."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except FileNotFoundError:
        return [], ""
    except OSError as error:
        return [], f"{path.name} could not be read: {error}"
    rows = [parsed(line) for line in lines if line.strip()]
    whole = [row for row in rows if row is not None]
    broken = len(rows) - len(whole)
    return whole, f"{path.name}: {broken} of {counted(len(rows), 'line')} could not be read" if broken else ""


def parsed(line: str | bytes) -> Object | None:
    """The object in a line of JSON, or None."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def read_metrics(path: Path) -> tuple[list[Object], str]:
    """The metrics in a file: one object per step, in order. For steps written twice (before and after a resumption) the
    last values count."""
    rows, trouble = read_table(path)
    steps: dict[float, dict[str, object]] = {}
    for row in rows:
        step = number(row, "step")
        if step is None:
            trouble = trouble or f"{path.name}: some lines have no step"
        else:
            steps.setdefault(step, {}).update(row)
    return [steps[step] for step in sorted(steps)], trouble


def read_completions(folder: Path) -> tuple[list[Object], str]:
    """The rows of `completions.jsonl` joined with the texts of their prompts from `prompts.jsonl`, in the format of
    samples."""
    completions, trouble = read_table(folder / "completions.jsonl")
    prompts, other = read_table(folder / "prompts.jsonl")
    texts = {
        string(row, "id"): string(row, "prompt") or string([{}, *objects(row, "messages")][-1], "content")
        for row in prompts
    }
    samples: list[Object] = [
        {
            "prompt": texts.get(string(row, "prompt_id"), ""),
            "completion": string(row, "text"),
            "ended": row.get("finished"),
        }
        for row in completions
    ]
    return samples, trouble or other
