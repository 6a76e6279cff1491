"""Stages of a round: run in order, skipped when they are done, refused when their settings have changed."""

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tutelage.base.config import identity, to_mapping
from tutelage.base.config.files import write_atomically
from tutelage.base.errors import TutelageError
from tutelage.base.progress.phases import phase

log = logging.getLogger(__name__)

ROUND = "round.json"
WAITING = "waiting"
"""The status of a stage that was planned and has not begun."""


@dataclass(frozen=True)
class Stage:
    """One part of a round, written into the folder of its name. `settings` (dataclasses) decide what it does;
    `run` does it, or goes on with it when it was interrupted."""

    name: str
    title: str
    settings: tuple[object, ...]
    run: Callable[[], object]


@dataclass(frozen=True)
class Story:
    """What a report says about the round as a whole."""

    title: str
    about: str
    command: str
    reference: str = "SFT"
    policy: str = "policy"


def run_stages(folder: Path, story: Story, stages: Sequence[Stage]) -> dict[str, float]:
    """Run the stages that are not done yet, each announced by a remark; returns the seconds that each stage took.

    A stage's fingerprint covers its settings and those of all stages before it. Raises TutelageError when a stage was
    begun with other settings: what it wrote is never silently thrown away. One that waits takes the new settings.
    """
    folder.mkdir(parents=True, exist_ok=True)
    known = {entry["name"]: entry for entry in _read(folder).get("stages", [])}
    fingerprints = _fingerprints(stages)
    entries = [_entry(stage, known.get(stage.name), fingerprints[stage.name], folder) for stage in stages]
    for stage, entry in zip(stages, entries, strict=True):
        if entry["status"] == "done":
            log.info(f"{stage.title}: done already")
            continue
        entry["status"] = "running"
        _write(folder, story, entries)
        log.info(stage.title)
        began = time.monotonic()
        try:
            with phase(stage.title):
                stage.run()
        except KeyboardInterrupt:
            raise
        except BaseException:
            entry["status"] = "failed"
            raise
        else:
            entry["status"] = "done"
        finally:
            entry["seconds"] = round(entry["seconds"] + time.monotonic() - began, 2)
            _write(folder, story, entries)
    return {entry["name"]: entry["seconds"] for entry in entries}


def _fingerprints(stages: Sequence[Stage]) -> dict[str, str]:
    """A hash of the settings of each stage and of all stages before it."""
    state, found = "", {}
    for stage in stages:
        text = json.dumps([state, stage.name, *map(identity, stage.settings)], sort_keys=True, default=str)
        state = hashlib.sha256(text.encode()).hexdigest()[:16]
        found[stage.name] = state
    return found


def _entry(stage: Stage, known: dict[str, Any] | None, fingerprint: str, folder: Path) -> dict[str, Any]:
    if known is not None and known["status"] != WAITING and known["fingerprint"] != fingerprint:
        raise TutelageError(
            f"The folder {folder} holds a round whose stage {stage.name!r} was made with other settings. "
            "Choose another --out, or delete the folder."
        )
    if known is None and (folder / stage.name).exists():
        shutil.rmtree(folder / stage.name)  # left by a process that ended before it wrote the round
    return {
        "name": stage.name,
        "title": stage.title,
        "folder": stage.name,
        "fingerprint": fingerprint,
        "seconds": known["seconds"] if known else 0.0,
        "status": known["status"] if known else WAITING,
    }


def _read(folder: Path) -> dict[str, Any]:
    file = folder / ROUND
    if not file.is_file():
        return {}
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def _write(folder: Path, story: Story, entries: Sequence[dict[str, Any]]) -> None:
    created = _read(folder).get("created") or datetime.now().strftime("%Y-%m-%d %H:%M")
    content = to_mapping(story) | {"created": created, "stages": list(entries)}
    write_atomically(folder / ROUND, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
