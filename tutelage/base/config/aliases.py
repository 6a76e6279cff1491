"""Old names of settings: a setting that was renamed is still read under its old name, for one release.

A class of settings names them in a class variable, old name to present name, in dotted keys below the class:

    ALIASES: ClassVar[Mapping[str, str]] = {"max_tokens": "max_new_tokens", "batch": "batch_size"}

They hold wherever the class is a section: for flags, for TOML files, and for the config.json of a run.
Fingerprints go on naming the setting by its old name (of several, the first), so that an old round is recognised.
"""

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple, get_type_hints

from tutelage.base.config.hints import section_of, settable
from tutelage.base.errors import TutelageError


class Alias(NamedTuple):
    """The old and the present name of a setting, as dotted keys."""

    old: str
    new: str


def aliases(cls: type, section: str = "") -> list[Alias]:
    """The aliases of `cls`, of its bases and of its sections; `section` leads every key, and ends with a dot."""
    found = [Alias(section + old, section + new) for old, new in _own_aliases(cls).items()]
    hints = get_type_hints(cls)
    for field in settable(cls):
        inner = section_of(hints[field.name])
        if inner is not None:
            found += aliases(inner, f"{section}{field.name}.")
    return found


def used_aliases(cls: type, mapping: Mapping[str, object]) -> list[Alias]:
    """The aliases whose old name has a value in a mapping of settings."""
    return [alias for alias in aliases(cls) if _holds(mapping, alias.old.split("."))]


def without_aliases(cls: type, mapping: Mapping[str, object]) -> dict[str, Any]:
    """A mapping of settings with present names in place of old ones; the argument itself stays as it is.

    Raises TutelageError when a setting has a value under both names.
    """
    renamed = _copied(mapping)
    for alias in used_aliases(cls, mapping):
        if _holds(renamed, alias.new.split(".")):
            raise TutelageError(
                f"{alias.old!r} is the old name of {alias.new!r}, and both are set: leave out one."
            )
        *way, name = alias.old.split(".")
        value = _section(renamed, way).pop(name)
        *way, name = alias.new.split(".")
        _section(renamed, way)[name] = value
    return renamed


def under_first_names(cls: type, mapping: Mapping[str, object]) -> dict[str, Any]:
    """A complete mapping of settings with the first names of those that `cls` and its bases renamed.

    What the classes of sections renamed stays as it is.
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
    """The first name of a setting of `cls`, by its present one."""
    return next((old for old, new in _own_aliases(cls).items() if new == name), name)


def note_old_name(old: str, new: str) -> None:
    """Tell on stderr that a name on the command line is an old one."""
    print(f"note: {old} is now called {new}; the old name goes with the next release.", file=sys.stderr)


def _own_aliases(cls: type) -> dict[str, str]:
    """The present names by the old ones, of a class and its bases."""
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
    """The section at `keys`, made where it is absent."""
    for key in keys:
        mapping = mapping.setdefault(key, {})
    return mapping
