"""Nested frozen dataclasses <-> plain mappings, with exact types and errors that say what is known.

A field may be bool, int, float (a whole number is accepted and becomes one), str, Path, Literal, a tuple, a
dict with text keys, another dataclass, or a union of those with or without None. Nothing else is converted:
"16" is not 16.
"""

import dataclasses
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import (
    Any,
    Literal,
    NamedTuple,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from tutelage.errors import TutelageError

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"
S = TypeVar("S")


class _Required:
    """Stands for a field that has no value yet."""

    def __repr__(self) -> str:
        return "(required)"


_REQUIRED = _Required()


class Difference(NamedTuple):
    """One setting that two configurations do not share."""

    key: str
    one: object
    other: object

    def __str__(self) -> str:
        return f"{self.key} ({self.one!r} against {self.other!r})"


class _Absent:
    def __repr__(self) -> str:
        return "not set"


def from_mapping(cls: type[S], mapping: Mapping[str, object], *, source: str = "") -> S:
    """Build `cls` from a mapping whose keys are field names (nested, or dotted such as "lora.rank").

    Fields left out keep their defaults. Raises TutelageError for an unknown key or a value of the wrong type
    (led by `source`, a file name), for a required field without a value, for what a `__post_init__` refuses.
    """
    return complete(overlay(cls, mapping, source=source))


def overlay(
    cls: type[S],
    mapping: Mapping[str, object],
    *,
    base: S | None = None,
    source: str = "",
    none: str | None = None,
    required: object = _REQUIRED,
) -> S:
    """`base` (else the defaults of `cls`) with the mapping's values on top, checked for names and types only.

    `__post_init__` has not run and required fields without a value hold `required`: pass the result through
    `complete`, or to a parser of flags as its defaults. `none` is the text that means None where None may
    stand (TOML has no null). Raises TutelageError as `from_mapping` does.
    """
    lead = f"{source}: " if source else ""
    return cast(S, _Reader(lead, none, required).section(cls, _nested(mapping, lead), base, ""))


def complete(settings: S, where: str = "") -> S:
    """The settings built anew, innermost first, so that every `__post_init__` has its say.

    Raises TutelageError when a required field has no value.
    """
    if not dataclasses.is_dataclass(settings):
        return settings
    cls: type = type(settings)
    values = {}
    for field in _fields(cls):
        key = f"{where}{field.name}"
        value = getattr(settings, field.name)
        if value is _REQUIRED:
            raise TutelageError(f"{key} is required and was not given.")
        values[field.name] = complete(value, f"{key}.")
    return cast(S, cls(**values))


def to_mapping(settings: object) -> dict[str, Plain]:
    """The settings as dicts, lists, texts, numbers, booleans and None; `from_mapping` is its inverse."""
    return {field.name: _plain(getattr(settings, field.name)) for field in _fields(type(settings))}


def difference(one: object, other: object) -> list[Difference]:
    """The settings, by dotted key, in which two configurations (dataclasses or their mappings) differ."""
    left, right = _flat(one), _flat(other)
    keys = [*left, *(key for key in right if key not in left)]
    absent = _Absent()
    pairs = [Difference(key, left.get(key, absent), right.get(key, absent)) for key in keys]
    return [
        pair
        for pair in pairs
        if pair.one is absent or pair.other is absent or not _same(pair.one, pair.other)
    ]


def _same(one: object, other: object) -> bool:
    both_nan = one != one and other != other  # nan is a value here, and equal to itself
    return both_nan or (one == other and isinstance(one, bool) == isinstance(other, bool))


class _Reader(NamedTuple):
    """Reads values against type hints; `lead` starts each message, `none` and `required` as in `overlay`."""

    lead: str
    none: str | None
    required: object

    def section(self, cls: type, given: object, base: object, key: str) -> object:
        """A `cls` whose `__post_init__` has not run; `key` is its dotted place, "" at the top."""
        fields = {field.name: field for field in _fields(cls)}
        if not isinstance(given, Mapping):
            raise self.refuse(f"{key} must be a section with {', '.join(fields)}, not {_described(given)}.")
        for name in given:
            if name not in fields:
                raise self.refuse(_unknown(str(name), list(fields), key))
        hints = get_type_hints(cls)
        settings: object = object.__new__(cls)
        for name, field in fields.items():
            place = f"{key}.{name}" if key else name
            value = self.default(field, hints[name], base, place)
            if name in given:
                value = self.value(hints[name], given[name], value, place)
            object.__setattr__(settings, name, value)
        return settings

    def default(self, field: "dataclasses.Field[Any]", hint: object, base: object, key: str) -> object:
        if base is not None:
            return getattr(base, field.name)
        if field.default is not dataclasses.MISSING:
            return field.default
        if field.default_factory is not dataclasses.MISSING:
            return field.default_factory()
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            return self.section(hint, {}, None, key)
        return self.required

    def value(self, hint: Any, given: object, base: object, key: str) -> object:
        origin = get_origin(hint)
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            return self.section(hint, given, base if isinstance(base, hint) else None, key)
        if origin in (Union, types.UnionType):
            return self.union(get_args(hint), given, base, key)
        if origin is tuple and isinstance(given, list | tuple):
            return self.items(hint, given, key)
        if origin is dict and isinstance(given, Mapping):
            inner = get_args(hint)[1]
            return {str(name): self.value(inner, item, None, f"{key}.{name}") for name, item in given.items()}
        if origin is Literal and any(given == one and type(given) is type(one) for one in get_args(hint)):
            return given
        if hint is float and isinstance(given, int) and not isinstance(given, bool):
            return float(given)
        if hint is Path and isinstance(given, str | Path):
            return Path(given)
        if hint in (bool, int, float, str) and type(given) is hint:
            return given
        raise self.refuse(f"{key} must be {_expected(hint)}, not {_described(given)}.")

    def union(self, members: tuple[Any, ...], given: object, base: object, key: str) -> object:
        others = [member for member in members if member is not types.NoneType]
        if len(others) < len(members) and (given is None or (self.none is not None and given == self.none)):
            return None
        if len(others) == 1:
            return self.value(others[0], given, base, key)
        for member in sorted(others, key=lambda member: member is not type(given)):
            try:
                return self.value(member, given, base, key)
            except TutelageError:
                continue
        expected = " or ".join(_expected(member) for member in members)
        raise self.refuse(f"{key} must be {expected}, not {_described(given)}.")

    def items(self, hint: Any, given: list[object] | tuple[object, ...], key: str) -> tuple[object, ...]:
        members = get_args(hint)
        if len(members) == 2 and members[1] is Ellipsis:
            members = (members[0],) * len(given)
        if len(members) != len(given):
            raise self.refuse(f"{key} must be {_expected(hint)}, not {len(given)} of them.")
        return tuple(
            self.value(member, item, None, f"{key}[{i}]")
            for i, (member, item) in enumerate(zip(members, given, strict=True))
        )

    def refuse(self, message: str) -> TutelageError:
        return TutelageError(self.lead + message)


def _fields(cls: type) -> "list[dataclasses.Field[Any]]":
    return [field for field in dataclasses.fields(cls) if field.init]


def _plain(value: object) -> Plain:
    if dataclasses.is_dataclass(value):
        return to_mapping(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a setting of type {type(value).__name__} cannot be written down")


def _flat(settings: object) -> dict[str, object]:
    plain = settings if isinstance(settings, Mapping) else to_mapping(settings)
    return dict(_walk(plain, ""))


def _walk(mapping: Mapping[str, object], lead: str) -> Iterator[tuple[str, object]]:
    for name, value in mapping.items():
        if isinstance(value, Mapping) and value:
            yield from _walk(value, f"{lead}{name}.")
        else:
            yield f"{lead}{name}", value


def _nested(mapping: Mapping[str, object], lead: str) -> dict[str, object]:
    """Dotted keys opened up: {"lora.rank": 16} -> {"lora": {"rank": 16}}; what comes later wins."""
    nested: dict[str, object] = {}
    for key, value in mapping.items():
        *sections, name = str(key).split(".")
        place = nested
        for section in sections:
            inner = place.setdefault(section, {})
            if not isinstance(inner, dict):
                raise TutelageError(f"{lead}{section} is given as a value and, by {key}, as a section.")
            place = inner
        here = place.get(name)
        if isinstance(value, Mapping):
            value = {**(here if isinstance(here, dict) else {}), **_nested(value, lead)}
        place[name] = value
    return nested


def _unknown(name: str, known: list[str], section: str) -> str:
    import difflib

    place = f"{section}.{name}" if section else name
    near = difflib.get_close_matches(name.replace("-", "_"), known, n=1)
    hint = f": did you mean {near[0]!r}?" if near else "."
    where = f"[{section}]" if section else "The top level"
    return f"unknown setting {place!r}{hint} {where} knows {', '.join(known)}."


_EXPECTED: dict[object, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
    types.NoneType: "nothing",
}


def _expected(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(repr(one) for one in get_args(hint))
    if get_origin(hint) is tuple:
        members = get_args(hint)
        if len(members) == 2 and members[1] is Ellipsis:
            return f"a list, each item {_expected(members[0])}"
        return f"a list of {len(members)} ({', '.join(_expected(member) for member in members)})"
    if get_origin(hint) is dict or dataclasses.is_dataclass(hint):
        return "a section"
    try:
        return _EXPECTED[hint]
    except KeyError:
        raise TypeError(f"settings cannot have a field of type {hint}") from None


def _described(given: object) -> str:
    if given is None:
        return "nothing (null)"
    if isinstance(given, bool):
        return str(given).lower()
    if isinstance(given, int | float):
        return f"the number {given}"
    if isinstance(given, str):
        return f"the text {given!r}"
    if isinstance(given, Mapping):
        return "a section"
    if isinstance(given, list | tuple):
        return "a list"
    return f"a {type(given).__name__}"
