"""Exports that name people who were not asked for: versions before pseudonyms wrote the names of raters into the rows
of most files, those to train on among them.

Where an export was written is not known to its study. It is looked for where commands put it: beside the database, one
folder above, and in the current folder, each with the folders in it.
"""

import json
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tutelage.people.export import export_command
from tutelage.people.manifest import FORMAT
from tutelage.people.selection import Selection
from tutelage.people.store.engine import Store
from tutelage.people.store.raters import list_raters
from tutelage.people.store.studies import Study

MANIFEST = "manifest.json"
_ORIGIN = {"judgement", "rater", "study"}
"""Columns of rows to train on that say who wrote them."""


@dataclass(frozen=True)
class NamedExport:
    """An export that names people: its folder, or a file that was copied from one; and the command that writes it
    again."""

    place: Path
    command: str


def find_named_exports(store: Store, study: Study) -> tuple[NamedExport, ...]:
    """The exports of a study that name people though nobody asked for names."""
    raters = list_raters(store, study.id)
    known = {rater.pseudonym for rater in raters} | {rater.name for rater in raters if rater.kind != "human"}
    folders = _folders(store)
    found = {folder: _of_folder(store, study, folder) for folder in folders if (folder / MANIFEST).is_file()}
    named = [export for export in found.values() if export is not None]
    again = export_command(store, study.name, Selection())
    for folder in folders:
        if found.get(folder) is None:
            named += [
                NamedExport(file, again)
                for file in sorted(folder.glob("*.jsonl"))
                if _names_people(file, study.name, known)
            ]
    return tuple(named)


def _folders(store: Store) -> list[Path]:
    """The folders in which exports are looked for."""
    beside = [] if store.path is None else [store.path.parent.absolute(), store.path.parent.absolute().parent]
    found: dict[Path, None] = {}
    for place in (*beside, Path.cwd()):
        with suppress(OSError):
            found |= dict.fromkeys((place, *sorted(each for each in place.iterdir() if each.is_dir())))
    return list(found)


def _of_folder(store: Store, study: Study, folder: Path) -> NamedExport | None:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format"] != FORMAT or manifest["study"]["name"] != study.name or "names" in manifest:
            return None
        if not any(row["kind"] == "human" for row in _rows(folder / "raters.jsonl")):
            return None
        told = manifest["selection"]
        selection = Selection(
            **told | {name: told[name] and tuple(told[name]) for name in ("kinds", "versions")}
        )
        redacted = bool(manifest.get("personal_data", {}).get("redacted"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # no export
        return None
    return NamedExport(folder, export_command(store, study.name, selection, redact=redacted))


def _names_people(file: Path, study: str, known: Set[str]) -> bool:
    """Whether a file holds rows to train on by raters of the study who stand in it under their names."""
    try:
        rows = _rows(file)
        first: Any = next(rows, {})
        if not (isinstance(first, dict) and first.keys() >= _ORIGIN and first["study"] == study):
            return False
        return first["rater"] not in known or any(row["rater"] not in known for row in rows)
    except (OSError, ValueError, KeyError, TypeError):  # no such rows
        return False


def _rows(file: Path) -> Iterator[Any]:
    with file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)
