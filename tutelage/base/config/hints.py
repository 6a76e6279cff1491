"""Validation of settings against type hints: a value has exactly the type of its hint, or an error names what is
expected."""

import ast
import dataclasses
import inspect
import textwrap
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from tutelage.base.errors import TutelageError, did_you_mean


def settable(cls: type) -> "list[dataclasses.Field[Any]]":
    """Return the fields of a dataclass that its constructor takes."""
    return [field for field in dataclasses.fields(cls) if field.init]


def section_of(hint: Any) -> type | None:
    """Return the dataclass in a hint, `Lora` or `Lora | None`, which marks a section; None for any other hint."""
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return next(filter(is_section, members), None)


def is_section(hint: Any) -> bool:
    """Whether a hint is a dataclass."""
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def default_of(field: "dataclasses.Field[Any]") -> Any:
    """Return the default of a field, `dataclasses.MISSING` for a required one."""
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


_TEXTS: dict[type, Mapping[str, str]] = {}
"""Texts by class: to find them, the source is parsed."""


def field_texts(cls: type) -> Mapping[str, str]:
    """Return the texts of the fields of a dataclass and its bases, on one line each: those below the fields, or their
    metadata "text" in a class that was made without source."""
    if cls not in _TEXTS:
        _TEXTS[cls] = _parse_texts(cls)
    return _TEXTS[cls]


def _parse_texts(cls: type) -> Mapping[str, str]:
    texts = {field.name: str(field.metadata["text"]) for field in settable(cls) if "text" in field.metadata}
    for base in filter(dataclasses.is_dataclass, reversed(cls.__mro__)):
        if inspect.get_annotations(base).keys() <= texts.keys():
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for statement, below in zip(tree.body, tree.body[1:], strict=False):
            match statement, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[name] = " ".join(text.split())
    return texts


class Reader(NamedTuple):
    """Reader of values against type hints.

    `none` is a text that means None where the hint allows None; `unset` becomes the value of a required setting without
    one. Each method takes the dotted key of the value for its error messages.
    """

    none: str | None
    unset: object

    def section(self, cls: type, value: object, base: object, key: str) -> object:
        """Build a `cls` from a mapping on top of `base` (by default, the defaults of `cls`), without running
        `__post_init__`."""
        if isinstance(value, cls):
            return value
        fields = {field.name: field for field in settable(cls)}
        if not isinstance(value, Mapping):
            raise TutelageError(f"{key} must be a section with {', '.join(fields)}, not {_described(value)}.")
        for name in value:
            if name not in fields:
                raise TutelageError(_unknown(str(name), list(fields), key))
        hints = get_type_hints(cls)
        settings: object = object.__new__(cls)
        for name, field in fields.items():
            place = f"{key}.{name}" if key else name
            one = default_of(field) if base is None else getattr(base, name)
            if one is dataclasses.MISSING:
                one = self.section(hints[name], {}, None, place) if is_section(hints[name]) else self.unset
            if name in value:
                one = self.value(hints[name], value[name], one, place)
            object.__setattr__(settings, name, one)
        return settings

    def value(self, hint: Any, value: object, base: object, key: str) -> object:
        """Read one value. `base` is the section that a section is laid over."""
        origin = get_origin(hint)
        if is_section(hint):
            return self.section(hint, value, base if isinstance(base, hint) else None, key)
        if origin in (Union, types.UnionType):
            return self.union(get_args(hint), value, base, key)
        if origin is tuple and isinstance(value, list | tuple):
            return self.items(hint, value, key)
        if origin is dict and isinstance(value, Mapping):
            inner = get_args(hint)[1]
            return {str(name): self.value(inner, item, None, f"{key}.{name}") for name, item in value.items()}
        if origin is Literal and any(value == one and type(value) is type(one) for one in get_args(hint)):
            return value
        if hint is float and type(value) is int:
            return float(value)
        if hint is Path and isinstance(value, str | Path):
            return Path(value)
        if hint in (bool, int, float, str) and type(value) is hint:
            return value
        raise TutelageError(f"{key} must be {expected(hint)}, not {_described(value)}.")

    def union(self, members: tuple[Any, ...], value: object, base: object, key: str) -> object:
        """Read a value as the first matching member of a union, its own type first."""
        others = [member for member in members if member is not types.NoneType]
        if len(others) < len(members) and (value is None or (self.none is not None and value == self.none)):
            return None
        if len(others) == 1:
            return self.value(others[0], value, base, key)
        for member in sorted(others, key=lambda member: member is not type(value)):
            try:
                return self.value(member, value, base, key)
            except TutelageError:
                continue
        kinds = " or ".join(expected(member) for member in members)
        raise TutelageError(f"{key} must be {kinds}, not {_described(value)}.")

    def items(self, hint: Any, values: list[object] | tuple[object, ...], key: str) -> tuple[object, ...]:
        """Read a tuple, each item against its own hint."""
        members = get_args(hint)
        if len(members) == 2 and members[1] is Ellipsis:
            members = (members[0],) * len(values)
        if len(members) != len(values):
            raise TutelageError(f"{key} must be {expected(hint)}, not {len(values)} of them.")
        pairs = enumerate(zip(members, values, strict=True))
        return tuple(self.value(member, item, None, f"{key}[{i}]") for i, (member, item) in pairs)


def _unknown(name: str, names: list[str], section: str) -> str:
    place = f"{section}.{name}" if section else name
    where = f"[{section}]" if section else "The top level"
    guess = did_you_mean(name.replace("-", "_"), names)
    return f"unknown setting {place!r}{guess} {where} knows {', '.join(names)}."


_EXPECTED: dict[object, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
    types.NoneType: "nothing",
}


def expected(hint: Any) -> str:
    """Describe in words the values that a hint allows."""
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(repr(one) for one in get_args(hint))
    if get_origin(hint) is tuple:
        members = get_args(hint)
        if len(members) == 2 and members[1] is Ellipsis:
            return f"a list, each item {expected(members[0])}"
        return f"a list of {len(members)} ({', '.join(expected(member) for member in members)})"
    if get_origin(hint) is dict or dataclasses.is_dataclass(hint):
        return "a section"
    try:
        return _EXPECTED[hint]
    except KeyError:
        raise TypeError(f"settings cannot have a field of type {hint}") from None


_KINDS: dict[type, str] = {
    int: "the number {}",
    float: "the number {}",
    str: "the text {!r}",
    dict: "a section",
    list: "a list",
    tuple: "a list",
}


def _described(value: object) -> str:
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return str(value).lower()
    return _KINDS.get(type(value), f"a {type(value).__name__}").format(value)
