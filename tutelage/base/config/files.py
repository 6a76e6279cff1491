"""Settings files: TOML or JSON by suffix, written atomically, read back exactly."""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from tutelage.base.config.mapping import UNSET, Plain, complete, difference, overlay, to_mapping
from tutelage.base.errors import TutelageError

S = TypeVar("S")

NONE_IN_TOML = "None"
"""Text for None in TOML, which has no null; the same as on the command line."""

RUN_FORMAT = "tutelage-run/1"
"""Format of run folders, recorded in their config.json."""


def resolve(cls: type[S], path: Path | str | None = None, overrides: Mapping[str, object] | None = None) -> S:
    """Return settings from defaults, then a file (if any), then overrides (nested or dotted keys).

    Raises TutelageError for an unreadable file, an unknown key, a wrong type, a missing required value, or settings
    that contradict each other.
    """
    settings = read_onto(cls, path) if path is not None else overlay(cls, {})
    for key, value in (overrides or {}).items():
        settings = overlay(cls, _opened(key, value), base=settings)
    return complete(settings)


def load(cls: type[S], path: Path | str) -> S:
    """Read settings from a file, whether `save` or a person wrote it."""
    return resolve(cls, path)


def save(settings: object, path: Path | str) -> None:
    """Write settings to `path`, as JSON or TOML by its suffix, atomically.

    Raises TutelageError for settings that TOML cannot represent (see NONE_IN_TOML).
    """
    path = Path(path)
    mapping = to_mapping(settings)
    if path.suffix != ".toml":
        write_atomically(path, json.dumps(mapping, indent=2, ensure_ascii=False) + "\n")
        return
    import tomli_w

    text = tomli_w.dumps({name: _without_none(value) for name, value in mapping.items()})
    lost = difference(settings, overlay(type(settings), tomllib.loads(text), none=NONE_IN_TOML))
    if lost:
        raise TutelageError(f"{path}: TOML cannot hold {lost[0].key} = {lost[0].one!r}; save to a .json file.")
    write_atomically(path, text)


def read_onto(cls: type[S], path: Path | str, *, unset: object = UNSET) -> S:
    """Return the defaults of `cls` overlaid with the file, not yet complete (see `mapping.overlay`)."""
    path = Path(path)
    none = NONE_IN_TOML if path.suffix == ".toml" else None
    return overlay(cls, read_mapping(path), source=str(path), none=none, unset=unset)


def read_mapping(path: Path) -> dict[str, object]:
    """Read a TOML or JSON file as a mapping; of a run's config.json, return the settings in it."""
    text = read_text(path, "settings file")
    try:
        content = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError) as error:
        kind = "TOML" if path.suffix == ".toml" else "JSON (a TOML file has to end in .toml)"
        raise TutelageError(f"The settings file {path} is not valid {kind}: {error}.") from error
    if not isinstance(content, dict):
        raise TutelageError(f"The settings file {path} must hold named settings, not a {type(content).__name__}.")
    if path.name == "config.json" and isinstance(content.get("settings"), dict):
        check_run_format(content, path.parent)
        return dict(content["settings"])
    return content


def read_text(path: Path, name: str) -> str:
    """Read a text file. Raises TutelageError, in which it has this name, if it cannot be read as UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise TutelageError(f"Cannot read the {name} {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise TutelageError(f"The {name} {path} is not UTF-8 text.") from error


def check_run_format(config: Mapping[str, object], folder: Path) -> None:
    """Check that the config.json of a run folder has the format of this version.

    Raises TutelageError for any other format.
    """
    version = config.get("format")
    if version != RUN_FORMAT:
        raise TutelageError(
            f"The run in {folder} is in {f'the format {version!r}' if version else 'a format without a number'}, "
            f"and this version of Tutelage reads {RUN_FORMAT!r}: use the version that started the run, or start it "
            "again in another folder (--out)."
        )


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file atomically: neither a reader nor a crash leaves half of it. Text is encoded as UTF-8.

    Raises TutelageError when it cannot be written; the previous file is kept.
    """
    data = content.encode() if isinstance(content, str) else content
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise TutelageError(f"Cannot write {path}: {error.strerror}.") from error


def create_private(path: Path) -> None:
    """Create an empty file that only its owner can read and write. Raises FileExistsError if there is one."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _opened(key: str, value: object) -> dict[str, object]:
    """Expand a dotted key into nested sections: "lora.rank" -> {"lora": {"rank": value}}."""
    section, dot, inner = key.partition(".")
    return {section: _opened(inner, value)} if dot else {section: value}


def _without_none(value: Plain) -> Plain:
    """Replace every None in a value with NONE_IN_TOML."""
    if isinstance(value, dict):
        return {name: _without_none(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_none(item) for item in value]
    return NONE_IN_TOML if value is None else value
