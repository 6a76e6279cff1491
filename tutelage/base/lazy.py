"""Lazy imports: names of a package (PEP 562), and values of a table."""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

T = TypeVar("T")


def lazy_names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package that re-exports names; `modules` maps a name to its module."""

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name]), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *modules})

    return get, names


class LazyTable(Mapping[str, T]):
    """Mapping whose values are imported on access. `places` maps each name to a module and the name there."""

    def __init__(self, places: Mapping[str, tuple[str, str]]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> T:
        module, attribute = self._places[name]
        return cast(T, getattr(importlib.import_module(module), attribute))

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
