"""Append-only JSON Lines files, flushed after every object. Write errors do not stop a run."""

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
    """Appends objects to one file. Write errors are logged once as a warning and do not raise.

    Non-finite numbers are written as null, with one warning.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab", buffering=0)
        self._logged: set[str] = set()

    def append(self, row: Mapping[str, object]) -> None:
        """Append one object as one line, atomically."""
        finite, odd = _finite(row)
        line = (json.dumps(finite, ensure_ascii=False, default=str) + "\n").encode("utf-8", errors="replace")
        for name, value in odd.items():
            self._warn_once(name, f"{name} is {value}; {self.path.name} holds null wherever it is not finite.")
        length = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._file.truncate(length)
            self._warn_once(
                "", f"Cannot write to {self.path} ({error.strerror}); the run continues without those lines."
            )

    def close(self) -> None:
        self._file.close()

    def _warn_once(self, subject: str, message: str) -> None:
        if subject not in self._logged:
            self._logged.add(subject)
            log.warning(message)


def read_lines(path: Path) -> list[dict[str, object]]:
    """Read the objects of a JSON Lines file, without an incomplete last line. A missing file has no objects.

    Raises TutelageError for any other line that is not a JSON object.
    """
    return [row for _, row in _complete(path)]


def json_text(content: Mapping[str, object]) -> str:
    """Serialise to JSON, with null and a warning for non-finite numbers."""
    finite, odd = _finite(content)
    for name, value in odd.items():
        log.warning(f"{name} is {value}; null is written instead.")
    return json.dumps(finite, indent=2, ensure_ascii=False, default=str) + "\n"


def keep_until(path: Path, step: float) -> list[dict[str, object]]:
    """Delete lines after `step` and an incomplete last line from the file. Returns the remaining objects.

    A resumed run writes the deleted lines again.
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
    """Replace non-finite numbers with None. Returns the content and the dotted names of the replaced numbers."""
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
    for number, line in enumerate(lines[:-1], start=1):  # text after the last newline is incomplete
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise TutelageError(f"{path}, line {number}: not valid JSON ({error}).") from error
        if not isinstance(row, dict):
            raise TutelageError(f"{path}, line {number}: a JSON object is expected, not {line[:40]}.")
        yield line + "\n", row
