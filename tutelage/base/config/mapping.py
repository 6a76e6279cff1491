"""Nested frozen dataclasses <-> plain mappings, with exact types and errors that say what is known; their differences.

A field may be bool, int, float (a whole number is accepted and becomes one), str, Path, Literal, a tuple, a
dict with text keys, another dataclass, or a union of those with or without None. Nothing else is converted:
"16" is not 16.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar, cast

from tutelage.base.config.aliases import first_name, under_first_names, without_aliases
from tutelage.base.config.hints import Reader, default_of, settable
from tutelage.base.errors import TutelageError

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"
S = TypeVar("S")

LATER = {"later": True}
"""Metadata of a field that was added after a release that wrote fingerprints of its class (see `identity`)."""


class _Unset:
    def __repr__(self) -> str:
        return "not set"


UNSET = _Unset()
"""Stands for a setting that has no value."""


def from_mapping(cls: type[S], mapping: Mapping[str, object], *, source: str = "") -> S:
    """Settings from a mapping whose keys are field names, with mappings inside for sections.

    Fields left out keep their defaults; old names count (see `aliases`). Raises TutelageError for an unknown key or a
    value of the wrong type (led by `source`, a file name), for a required field without a value, for what a
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
    """`base` (else the defaults of `cls`) with the mapping's values on top, checked for names and types only.

    `__post_init__` has not run and required fields without a value hold `unset`: pass the result through
    `complete`, or to a parser of flags as its defaults. `none` is the text that means None where None may
    stand (TOML has no null). Raises TutelageError as `from_mapping` does.
    """
    try:
        return cast(S, Reader(none, unset).section(cls, without_aliases(cls, mapping), base, ""))
    except TutelageError as error:
        raise TutelageError(f"{source}: {error}" if source else str(error)) from None


def complete(settings: S, where: str = "") -> S:
    """The settings built anew, innermost first, so that every `__post_init__` has its say.

    Raises TutelageError when a required field has no value.
    """
    if not dataclasses.is_dataclass(settings):
        return settings
    cls: type = type(settings)
    values = {}
    for field in settable(cls):
        key, value = f"{where}{field.name}", getattr(settings, field.name)
        if value is UNSET:
            raise TutelageError(f"{key} is required and was not given.")
        values[field.name] = complete(value, f"{key}.")
    return cast(S, cls(**values))


def to_mapping(settings: object) -> dict[str, Plain]:
    """The settings as dicts, lists, texts, numbers, booleans and None; `from_mapping` is the inverse."""
    return {field.name: _plain(getattr(settings, field.name)) for field in settable(type(settings))}


def identity(settings: object) -> dict[str, Plain]:
    """The settings as `to_mapping` writes them, without those of LATER that hold their defaults, and with the
    first names of those that were renamed.

    What is computed from it, a fingerprint for example, stays the same when a setting is added or renamed.
    """
    cls = type(settings)
    fields = settable(cls)
    values = {field.name: _plain(getattr(settings, field.name), identity) for field in fields}
    later = {
        field.name: _plain(default_of(field), identity)
        for field in fields
        if LATER.items() <= field.metadata.items()
    }
    named, defaults = under_first_names(cls, values), under_first_names(cls, later)
    for name in {first_name(cls, name) for name in later}:
        if named[name] == defaults[name]:
            del named[name]
    return named


def with_defaults(cls: type, stored: Mapping[str, object]) -> dict[str, object]:
    """A stored mapping under the present names, with the defaults of `cls` for settings that did not exist when it was
    written. Unknown names and wrong types pass through; a required setting that is absent stays absent."""
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
    """A value of a setting without classes of ours; `section` writes a dataclass in it."""
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
    """One setting that two configurations do not share."""

    key: str
    one: object
    other: object

    def __str__(self) -> str:
        return f"{self.key} ({self.one!r} against {self.other!r})"


def difference(one: object, other: object) -> list[Difference]:
    """The settings, by dotted key, in which two configurations (dataclasses or their mappings) differ."""
    left, right = flat(one), flat(other)
    pairs = (Difference(key, left.get(key, UNSET), right.get(key, UNSET)) for key in {**left, **right})
    return [pair for pair in pairs if not _same(pair.one, pair.other)]


def _same(one: object, other: object) -> bool:
    both_nan = one != one and other != other  # nan is a value here, and equal to itself
    return both_nan or (one == other and isinstance(one, bool) == isinstance(other, bool))


def flat(settings: object, lead: str = "") -> dict[str, object]:
    """A configuration (a dataclass or its mapping) with dotted keys: {"a": {"b": 1}} -> {"a.b": 1}."""
    leaves: dict[str, object] = {}
    for name, value in (settings if isinstance(settings, Mapping) else to_mapping(settings)).items():
        leaves |= (
            flat(value, f"{lead}{name}.")
            if isinstance(value, Mapping) and value
            else {f"{lead}{name}": value}
        )
    return leaves
