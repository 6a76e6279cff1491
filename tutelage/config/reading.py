"""Values against type hints: exactly the right type, or a message that says what is expected."""

import dataclasses
import difflib
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from tutelage.errors import TutelageError


def settable(cls: type) -> "list[dataclasses.Field[Any]]":
    """The fields of a dataclass that are given from outside."""
    return [field for field in dataclasses.fields(cls) if field.init]


class Reader(NamedTuple):
    """Reads values against type hints; `lead` starts each message, `none` and `unset` as in `overlay`."""

    lead: str
    none: str | None
    unset: object

    def section(self, cls: type, given: object, base: object, key: str) -> object:
        """A `cls` whose `__post_init__` has not run; `key` is its dotted place, "" at the top."""
        if isinstance(given, cls):
            return given
        fields = {field.name: field for field in settable(cls)}
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
        return self.unset

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


def _unknown(name: str, known: list[str], section: str) -> str:
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
