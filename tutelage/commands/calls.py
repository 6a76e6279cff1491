"""Calls of workflows with a settings object, or with settings as keyword arguments."""

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from itertools import chain, count
from pathlib import Path
from types import ModuleType
from typing import Any, ParamSpec, Protocol, TypeVar, cast, get_args, get_origin, get_type_hints, overload

from tutelage.base.config import Model, resolve
from tutelage.base.config.sections import SHORT_FORMS
from tutelage.base.errors import TutelageError
from tutelage.base.progress.phases import phase
from tutelage.data.tables import is_rows, name_rows

P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")
S_in = TypeVar("S_in", contravariant=True)
R_out = TypeVar("R_out", covariant=True)


class Workflow(Protocol[P, S_in, R_out]):
    """Function of a settings object that also takes the settings as keyword arguments.

        sft(SftSettings(model=Model("path"), data="file.jsonl", out=Path("runs/sft")))
        sft(model="path", data="file.jsonl", out="runs/sft", lora={"rank": 16})

    Keyword arguments are validated as settings from a file are: texts become paths, mappings become sections, and an
    unknown name is refused with the closest valid one.
    """

    __name__: str

    @overload
    def __call__(self, settings: S_in, /) -> R_out: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_out: ...
    @overload
    def __call__(self, **settings: Any) -> R_out: ...


def workflow(settings: Callable[P, S]) -> Callable[[Callable[[S], R]], Workflow[P, S, R]]:
    """Decorate a function of a `settings` class so that it also takes its fields as keyword arguments.

    The call, or the context that a `prepare_` function opens, is a phase named after the command.
    """

    def decorate(function: Callable[[S], R]) -> Workflow[P, S, R]:
        name = function.__name__
        command = name.removeprefix("prepare_")

        @functools.wraps(function)
        def call(*positional: Any, **keywords: Any) -> R:
            parsed = _settings(name, settings, positional, keywords)
            if name == command:
                with phase(command):
                    return function(parsed)
            prepare = cast(Callable[[S], AbstractContextManager[Any]], function)
            return cast(R, _within(command, prepare, parsed))

        result = inspect.signature(function).return_annotation
        signature = inspect.signature(settings).replace(return_annotation=result)
        call.__signature__ = signature  # type: ignore[attr-defined]
        return call

    return decorate


@contextmanager
def _within(command: str, prepare: Callable[[S], AbstractContextManager[R]], settings: S) -> Iterator[R]:
    """Enter the context that a workflow prepares, within a phase."""
    with phase(command), prepare(settings) as prepared:
        yield prepared


def _settings(name: str, cls: Callable[..., S], positional: tuple[Any, ...], keywords: Mapping[str, object]) -> S:
    assert isinstance(cls, type)
    if not positional:
        return settings_from(cls, keywords)
    if keywords or len(positional) > 1 or not isinstance(positional[0], cls):
        raise TutelageError(
            f"{name} takes either one {cls.__name__} or its settings as keyword arguments, such as "
            f"{name}(out='runs/{name}', ...)."
        )
    return cast(S, positional[0])


def settings_from(cls: type[S], given: Mapping[str, object]) -> S:
    """Build settings from keyword arguments. Dotted names reach into sections: `**{"lora.rank": 16}`.

    Data are a file or rows in memory: a list of mappings, a `datasets.Dataset` or a frame (see `name_rows`).

    As on the command line, `model="path"`, `dtype`, `device` and `engine` set fields of the section `model`. For a list
    of texts, such as `reward`, a single item is accepted as a list and a mapping as items `key=value`. Functions and
    other objects, such as rewards and recipes, are accepted as their names (`importable_name`). Raises TutelageError as
    `config.resolve` does.
    """
    hints = get_type_hints(cls)
    opened: dict[str, object] = {}
    for name, value in given.items():
        full = SHORT_FORMS.get(name, name)
        leaf = name not in hints or isinstance(value, str | Path)  # not a whole section, as in model=Model("path")
        if full != name and leaf and hints.get(full.partition(".")[0]) is Model:
            opened[full] = _plain(str, value)
        else:
            opened[name] = _plain(hints.get(name), value)
    return resolve(cls, overrides=opened)


def _plain(hint: object, value: object) -> object:
    """Convert a value to the form that a settings file would contain."""
    if hint in (str, str | None):
        return name_rows(value) if is_rows(value) else _text(value)
    if get_origin(hint) is not tuple or get_args(hint) != (str, ...):
        return value
    if isinstance(value, Mapping):
        return [f"{_text(key)}={_text(item)}" for key, item in value.items()]
    items = value if isinstance(value, list | tuple) else [value]
    return [_text(item) for item in items]


def _text(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    recipes = sys.modules.get("tutelage.algorithms.recipe")  # without it, no value is a recipe
    is_recipe = recipes is not None and isinstance(value, recipes.Recipe)
    return importable_name(value) if callable(value) or is_recipe else value


_objects = ModuleType("in_memory")
"""Objects without an importable name, as the attributes of a module that exists only in this process."""


def importable_name(value: object) -> str:
    """Name of an object: that of a recipe of the package, `module:NAME` for a module-level function, and otherwise
    `in_memory:NAME`, which only this process can import.

    A run whose settings name objects in memory is resumed by the same call, in this process or another.
    """
    own_name = getattr(value, "name", "")
    registry = sys.modules.get("tutelage.algorithms.registry")  # without it, no value is a recipe
    if registry is not None and value is registry.RECIPES.get(own_name):
        return str(own_name)
    module, name = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
    if name and getattr(sys.modules.get(module), name, None) is value:
        return f"{module}:{name}"
    sys.modules[_objects.__name__] = _objects
    stem = re.sub(r"\W", "", str(own_name or getattr(value, "__name__", "") or type(value).__name__)) or "object"
    names = chain([stem], (f"{stem}_{number}" for number in count(2)))
    name = next(name for name in names if getattr(_objects, name, value) is value)
    setattr(_objects, name, value)
    return f"{_objects.__name__}:{name}"
