"""The source of the package as griffe reads it: nothing is imported for its docstrings."""

from functools import cache
from pathlib import Path

import griffe

ROOT = Path(__file__).parents[3]


@cache
def package() -> griffe.Module:
    """The package, every module of it."""
    loaded = griffe.load("tutelage", search_paths=[ROOT], allow_inspection=False)
    assert isinstance(loaded, griffe.Module)
    return loaded


def class_of(cls: type) -> griffe.Class:
    """What the source says of a class."""
    found = package()[f"{cls.__module__}.{cls.__qualname__}".removeprefix("tutelage.")]
    assert isinstance(found, griffe.Class)
    return found


def text_below(cls: type, name: str) -> str:
    """The text below a field of a class, or of one that it inherits from; empty where there is none."""
    field = getattr(cls, "__dataclass_fields__", {}).get(name)
    if field is not None and "text" in field.metadata:
        return str(field.metadata["text"])
    for each in cls.__mro__:
        if each.__module__.startswith("tutelage.") and name in vars(each).get("__annotations__", {}):
            docstring = class_of(each).members[name].docstring
            if docstring is not None:
                return str(docstring.value)
    return ""
