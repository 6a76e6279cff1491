"""The files of results: a line of JSON for each finished part of an experiment."""

import dataclasses
import hashlib
import json
import os
from pathlib import Path

from bench.quality.experiment import Line


def read(file: Path) -> list[Line]:
    """The lines of a file; none where it is not there."""
    if not file.is_file():
        return []
    return [Line(**json.loads(text)) for text in file.read_text(encoding="utf-8").splitlines()]


def append(file: Path, line: Line) -> None:
    """Add a line, in place of an earlier one of the same fingerprint."""
    kept = [one for one in read(file) if one.fingerprint != line.fingerprint]
    texts = [json.dumps(dataclasses.asdict(one)) + "\n" for one in (*kept, line)]
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".part")
    unfinished.write_text("".join(texts), encoding="utf-8")
    os.replace(unfinished, file)


def digest(file: str) -> str:
    """A hash of a file's bytes."""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]
