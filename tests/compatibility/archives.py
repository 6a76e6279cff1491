"""What each release wrote: archives in `tests/fixtures/v<version>`, made by `tests/fixtures/make.py`."""

import json
import tarfile
from pathlib import Path
from typing import Any

from tutelage.commands import line as cli

FIXTURES = Path(__file__).parents[1] / "fixtures"
ARCHIVES = sorted(FIXTURES.glob("v*"))
"""The folders of archives, one for each version."""

INTERRUPTED = ("ppo", "ppo-lora", "moving-baseline", "dpo", "dpo-own-answers", "reward-lora")
"""Runs that were stopped in the middle; NAME-whole is the same run without interruption."""

Row = dict[str, Any]


def unpack(archives: Path, target: Path, *names: str) -> None:
    """Unpack the archives of these names into one folder."""
    for name in names:
        with tarfile.open(archives / f"{name}.tar.xz") as archive:
            archive.extractall(target, filter="data")


def run_command(*words: str) -> None:
    """Run one command as the command line does; it must succeed."""
    assert cli.main(words) == 0


def read_jsonl(path: Path) -> list[Row]:
    """The objects of a file of lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_json(path: Path) -> Row:
    """The object in a file."""
    found: Row = json.loads(path.read_text(encoding="utf-8"))
    return found
