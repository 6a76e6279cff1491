"""Conversion between nested frozen dataclasses and plain mappings, with exact types; differences of configurations.

A field may be bool, int, float (an int is accepted and converted), str, Path, Literal, a tuple, a dict with text keys,
another dataclass, or a union of those with or without None. Nothing else is converted: "16" is not 16.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar, cast

from tutelage.base.config.aliases import first_name, under_first_names, without_aliases
from tutelage.base.config.bounds import require_finite
from tutelage.base.config.hints import Reader, default_of, settable
from tutelage.base.errors import TutelageError

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"
S = TypeVar("S")

LATER = {"later": True}
"""Metadata of a field added after a release that wrote fingerprints of its class (see `identity`)."""


class _Unset:
    def __repr__(self) -> str:
        return "not set"


UNSET = _Unset()
"""Placeholder for a setting without a value."""


def from_mapping(cls: type[S], mapping: Mapping[str, object], *, source: str = "") -> S:
    """Build settings from a mapping whose keys are field names, with nested mappings for sections.

    Omitted fields keep their defaults; old names are accepted (see `aliases`). Raises TutelageError for an unknown key,
    a value of the wrong type (prefixed with `source`, a file name), a required field without a value, or values that a
    `__post_init__` refuses.
    """
    return complete(overlay(cls, mapping, source=source))


def overlay(
    cls: type[S],
    mapping: Mapping[str, object],
    *,
    base: S | None = None,
    source: str = "",
    none: str | None = None,
    unset: object = UNSET,
) -> S:
    """Return `base` (by default, the defaults of `cls`) with the mapping's values on top; only names and types are
    checked.

    `__post_init__` has not run and required fields without a value hold `unset`: pass the result through `complete`, or
    to a flag parser as its defaults. `none` is a text that means None where the hint allows None (TOML has no null).
    Raises TutelageError as `from_mapping` does.
    """
    try:
        return cast(S, Reader(none, unset).section(cls, without_aliases(cls, mapping), base, ""))
    except TutelageError as error:
        raise TutelageError(f"{source}: {error}" if source else str(error)) from None


def complete(settings: S, where: str = "") -> S:
    """Rebuild the settings, innermost first, so that every `__post_init__` runs.

    Raises TutelageError when a required field has no value, and for numbers that are not finite.
    """
    if not dataclasses.is_dataclass(settings):
        return settings
    cls: type = type(settings)
    values = {}
    for field in settable(cls):
        key, value = f"{where}{field.name}", getattr(settings, field.name)
        if value is UNSET:
            raise TutelageError(f"{key} is required and has no value.")
        values[field.name] = complete(value, f"{key}.")
    completed = cast(S, cls(**values))
    if not where:
        require_finite(completed)
    return completed


def to_mapping(settings: object) -> dict[str, Plain]:
    """Convert settings to dicts, lists, texts, numbers, booleans and None; `from_mapping` is the inverse."""
    return {field.name: _plain(getattr(settings, field.name)) for field in settable(type(settings))}


def identity(settings: object) -> dict[str, Plain]:
    """Convert settings as `to_mapping` does, without LATER fields at their defaults and with the first names of renamed
    settings.

    Values computed from it, such as fingerprints, do not change when a setting is added or renamed.
    """
    cls = type(settings)
    fields = settable(cls)
    values = {field.name: _plain(getattr(settings, field.name), identity) for field in fields}
    later = {
        field.name: _plain(default_of(field), identity) for field in fields if LATER.items() <= field.metadata.items()
    }
    current, defaults = under_first_names(cls, values), under_first_names(cls, later)
    for name in {first_name(cls, name) for name in later}:
        if current[name] == defaults[name]:
            del current[name]
    return current


def with_defaults(cls: type, stored: Mapping[str, object]) -> dict[str, object]:
    """Return a stored mapping under present names, with defaults for settings of `cls` that did not exist when it was
    written. Unknown names and wrong types pass through; an absent required setting stays absent."""
    return _filled(without_aliases(cls, stored), overlay(cls, {}))


def _filled(stored: Mapping[str, object], defaults: object) -> dict[str, object]:
    filled = dict(stored)
    for field in settable(type(defaults)):
        default, value = getattr(defaults, field.name), stored.get(field.name, {})
        if dataclasses.is_dataclass(default) and isinstance(value, Mapping):
            filled[field.name] = _filled(value, default)
        elif field.name not in stored and default is not UNSET:
            filled[field.name] = _plain(default)
    return filled


def _plain(value: object, section: Callable[[object], dict[str, Plain]] = to_mapping) -> Plain:
    """Convert the value of a setting to plain types; `section` converts a dataclass inside it."""
    if dataclasses.is_dataclass(value):
        return section(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a setting of type {type(value).__name__} cannot be written down")


class Difference(NamedTuple):
    """A setting that differs between two configurations."""

    key: str
    one: object
    other: object

    def __str__(self) -> str:
        return f"{self.key} ({self.one!r} against {self.other!r})"


def difference(one: object, other: object) -> list[Difference]:
    """Return the settings, by dotted key, in which two configurations (dataclasses or their mappings) differ."""
    left, right = flat(one), flat(other)
    pairs = (Difference(key, left.get(key, UNSET), right.get(key, UNSET)) for key in {**left, **right})
    return [pair for pair in pairs if not _same(pair.one, pair.other)]


def _same(one: object, other: object) -> bool:
    both_nan = one != one and other != other  # NaN equals itself here
    return both_nan or (one == other and isinstance(one, bool) == isinstance(other, bool))


def flat(settings: object, lead: str = "") -> dict[str, object]:
    """Flatten a configuration (a dataclass or its mapping) to dotted keys: {"a": {"b": 1}} -> {"a.b": 1}."""
    leaves: dict[str, object] = {}
    for name, value in (settings if isinstance(settings, Mapping) else to_mapping(settings)).items():
        leaves |= flat(value, f"{lead}{name}.") if isinstance(value, Mapping) and value else {f"{lead}{name}": value}
    return leaves
