"""Aliases of settings: a renamed setting is still read under its old name, for one release.

A settings class declares them in a class variable that maps old names to present ones, as dotted keys below the class:

    ALIASES: ClassVar[Mapping[str, str]] = {"max_tokens": "max_new_tokens", "batch": "batch_size"}

They apply wherever the class is a section: to flags, to TOML files, and to the config.json of a run. Fingerprints keep
the old name of a setting (of several, the first), so that an old round is still recognised.
"""

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple, get_type_hints

from tutelage.base.config.hints import section_of, settable
from tutelage.base.errors import TutelageError


class Alias(NamedTuple):
    """Old and present name of a setting, as dotted keys."""

    old: str
    new: str


def aliases(cls: type, section: str = "") -> list[Alias]:
    """Return the aliases of `cls`, its bases and its sections. `section` is a prefix of every key, ending with a
    dot."""
    result = [Alias(section + old, section + new) for old, new in _own_aliases(cls).items()]
    hints = get_type_hints(cls)
    for field in settable(cls):
        inner = section_of(hints[field.name])
        if inner is not None:
            result += aliases(inner, f"{section}{field.name}.")
    return result


def used_aliases(cls: type, mapping: Mapping[str, object]) -> list[Alias]:
    """Return the aliases whose old name has a value in a mapping of settings."""
    return [alias for alias in aliases(cls) if _holds(mapping, alias.old.split("."))]


def without_aliases(cls: type, mapping: Mapping[str, object]) -> dict[str, Any]:
    """Return a copy of a mapping of settings with old names replaced by present ones.

    Raises TutelageError when a setting has a value under both names.
    """
    renamed = _copied(mapping)
    for alias in used_aliases(cls, mapping):
        if _holds(renamed, alias.new.split(".")):
            raise TutelageError(f"{alias.old!r} is the old name of {alias.new!r}, and both are set: leave out one.")
        *way, name = alias.old.split(".")
        value = _section(renamed, way).pop(name)
        *way, name = alias.new.split(".")
        _section(renamed, way)[name] = value
    return renamed


def under_first_names(cls: type, mapping: Mapping[str, object]) -> dict[str, Any]:
    """Return a complete mapping of settings in which settings that `cls` and its bases renamed have their first names.

    Renamed settings of sections are unchanged.
    """
    first = _copied(mapping)
    for old, new in _own_aliases(cls).items():
        if _holds(first, new.split(".")):
            *way, name = new.split(".")
            value = _section(first, way).pop(name)
            *way, name = old.split(".")
            _section(first, way)[name] = value
    return first


def first_name(cls: type, name: str) -> str:
    """Return the first name of a setting of `cls`, given its present name."""
    return next((old for old, new in _own_aliases(cls).items() if new == name), name)


def note_old_name(old: str, new: str) -> None:
    """Print a note on stderr that a name on the command line is deprecated."""
    print(f"note: {old} is now called {new}; the old name will be removed in the next release.", file=sys.stderr)


def _own_aliases(cls: type) -> dict[str, str]:
    """Return present names by old names, of a class and its bases."""
    classes = reversed(cls.__mro__)
    return {old: new for part in classes for old, new in vars(part).get("ALIASES", {}).items()}


def _copied(mapping: Mapping[str, object]) -> dict[str, Any]:
    return {name: _copied(value) if isinstance(value, Mapping) else value for name, value in mapping.items()}


def _holds(mapping: object, keys: list[str]) -> bool:
    for key in keys:
        if not isinstance(mapping, Mapping) or key not in mapping:
            return False
        mapping = mapping[key]
    return True


def _section(mapping: dict[str, Any], keys: list[str]) -> dict[str, Any]:
    """Return the section at `keys`, creating it if absent."""
    for key in keys:
        mapping = mapping.setdefault(key, {})
    return mapping
