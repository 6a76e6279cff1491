"""Files of JSON lines that grow while a run goes on: one object per line, flushed, never a reason to stop."""

import errno
import json
import logging
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from tutelage.base.config.files import write_atomically
from tutelage.base.errors import TutelageError

log = logging.getLogger(__name__)


class JsonLines:
    """Appends to one file. What cannot be written is logged once as a warning and does not raise.

    Numbers that are not finite have no JSON: they are written as null, and named once.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)
        self._logged: set[str] = set()

    def append(self, row: Mapping[str, object]) -> None:
        """Write one object as one line, or nothing of it."""
        finite, odd = _finite(row)
        line = (json.dumps(finite, ensure_ascii=False, default=str) + "\n").encode("utf-8", errors="replace")
        for name, value in odd.items():
            self._warn_once(
                name, f"{name} is {value}; {self.path.name} holds null wherever it is not finite."
            )
        length = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._file.truncate(length)
            self._warn_once(
                "", f"Cannot write to {self.path} ({error.strerror}); the run goes on without those lines."
            )

    def close(self) -> None:
        """Close the file; nothing is buffered."""
        self._file.close()

    def _warn_once(self, subject: str, message: str) -> None:
        if subject not in self._logged:
            self._logged.add(subject)
            log.warning(message)


def read_lines(path: Path) -> list[dict[str, object]]:
    """The objects in a file of JSON lines; a last line cut short by a crash is left out. No file, no objects.

    Raises TutelageError for any other line that is not a JSON object.
    """
    return [row for _, row in _complete(path)]


def json_text(content: Mapping[str, object]) -> str:
    """A JSON file's text, with null for numbers that are not finite, which are named in a warning."""
    finite, odd = _finite(content)
    for name, value in odd.items():
        log.warning(f"{name} is {value}; null is written instead.")
    return json.dumps(finite, indent=2, ensure_ascii=False, default=str) + "\n"


def keep_until(path: Path, step: float) -> list[dict[str, object]]:
    """Drop the lines after `step`, and a last line cut short, from the file; the objects that stay come back.

    A run that goes on from a checkpoint writes the dropped lines again.
    """
    lines = []
    for line, row in _complete(path):
        number = row.get("step")
        if (number if isinstance(number, int) else 0) <= step:
            lines.append((line, row))
    if path.exists():
        write_atomically(path, "".join(line for line, _ in lines))
    return [row for _, row in lines]


def _finite(content: Mapping[str, object]) -> tuple[dict[str, object], dict[str, float]]:
    """The content with None for every number that is not finite, and those numbers by dotted name."""
    odd: dict[str, float] = {}

    def finite(value: object, name: str) -> object:
        if isinstance(value, Mapping):
            return {key: finite(item, f"{name}.{key}" if name else str(key)) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [finite(item, name) for item in value]
        if isinstance(value, float) and not math.isfinite(value):
            odd.setdefault(name, value)
            return None
        return value

    return {key: finite(value, key) for key, value in content.items()}, odd


def _complete(path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    if not path.exists():
        return
    lines = path.read_bytes().decode("utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last newline was cut short
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise TutelageError(f"{path}, line {number}: not valid JSON ({error}).") from error
        if not isinstance(row, dict):
            raise TutelageError(f"{path}, line {number}: a JSON object is expected, not {line[:40]}.")
        yield line + "\n", row
