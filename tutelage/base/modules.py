"""Values of modules by name: of a user's own, and lazily those of a package (PEP 562) and of a table."""

import importlib
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

from tutelage.base.errors import TutelageError

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


def function_named(name: str) -> Callable[..., object]:
    """Import the callable `module:function`. Raises TutelageError if there is none."""
    function = value_named(name)
    if not callable(function):
        raise TutelageError(f"{name!r} is not a function.")
    return function


def value_named(name: str) -> object:
    """Import the value `module:NAME`. Raises TutelageError if there is none."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(_imported(module, name), attribute)
    except AttributeError as error:
        raise TutelageError(f"The module {module!r} has no {attribute!r}.") from error


def _imported(module: str, name: str) -> ModuleType:
    """Import the module of the value `name`."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        file = Path(*module.split(".")).with_suffix(".py")
        hint = ", where Python does not look: set PYTHONPATH=. before the command"
        is_here = file.is_file() and f"{module}.".startswith(f"{error.name}.")
        place = f". {file} lies in this folder{hint}" if is_here else ""
        raise TutelageError(f"The module of {name!r} cannot be imported: {error}{place}.") from error
    except Exception as error:  # imports run arbitrary code
        place = "" if isinstance(error, SyntaxError) else place_of(error)  # a SyntaxError includes its place
        reason = f"{type(error).__name__}: {error}{place}"
        raise TutelageError(f"The module of {name!r} cannot be imported: {reason}.") from error


def place_of(error: BaseException, file: str = "") -> str:
    """Innermost line of a traceback, in `file` if the traceback includes it: " (rewards.py:9)"."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    if not frames:
        return ""
    own = [frame for frame in frames if frame.filename == file]
    frame = (own or frames)[-1]
    return f" ({Path(frame.filename).name}:{frame.lineno})"
