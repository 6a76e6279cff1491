"""Calls of workflows: with settings, or with the settings as keyword arguments."""

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar, cast, get_args, get_origin, get_type_hints, overload

from tutelage.base.config import Model, resolve
from tutelage.base.config.sections import SHORT_FORMS
from tutelage.base.errors import TutelageError
from tutelage.base.progress.phases import phase

P = ParamSpec("P")
S = TypeVar("S")
R = TypeVar("R")
S_in = TypeVar("S_in", contravariant=True)
R_out = TypeVar("R_out", covariant=True)


class Workflow(Protocol[P, S_in, R_out]):
    """A function of settings that also takes them as keyword arguments.

        sft(SftSettings(model=Model("path"), data="file.jsonl", out=Path("runs/sft")))
        sft(model="path", data="file.jsonl", out="runs/sft", lora={"rank": 16})

    Keyword arguments are checked as settings from a file are: texts become paths, mappings become sections, and an
    unknown name is refused with the nearest known one.
    """

    __name__: str

    @overload
    def __call__(self, settings: S_in, /) -> R_out: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_out: ...
    @overload
    def __call__(self, **settings: Any) -> R_out: ...


def workflow(settings: Callable[P, S]) -> Callable[[Callable[[S], R]], Workflow[P, S, R]]:
    """Let a function of `settings`, a settings class, take its fields as keyword arguments too. The call, or the
    context that `prepare_` of a command opens, is a phase named after the command."""

    def decorate(function: Callable[[S], R]) -> Workflow[P, S, R]:
        name = function.__name__
        command = name.removeprefix("prepare_")

        @functools.wraps(function)
        def call(*positional: Any, **given: Any) -> R:
            given_settings = _settings(name, settings, positional, given)
            if name == command:
                with phase(command):
                    return function(given_settings)
            prepare = cast(Callable[[S], AbstractContextManager[Any]], function)
            return cast(R, _within(command, prepare, given_settings))

        call.__signature__ = inspect.signature(settings)  # type: ignore[attr-defined]
        return call

    return decorate


@contextmanager
def _within(command: str, prepare: Callable[[S], AbstractContextManager[R]], settings: S) -> Iterator[R]:
    """The context that a workflow prepares, within a phase; settings are read when it is entered."""
    with phase(command), prepare(settings) as prepared:
        yield prepared


def _settings(
    name: str, cls: Callable[..., S], positional: tuple[Any, ...], given: Mapping[str, object]
) -> S:
    assert isinstance(cls, type)
    if not positional:
        return settings_from(cls, given)
    if given or len(positional) > 1 or not isinstance(positional[0], cls):
        raise TutelageError(
            f"{name} takes either one {cls.__name__} or its settings as keyword arguments, such as "
            f"{name}(out='runs/{name}', ...)."
        )
    return cast(S, positional[0])


def settings_from(cls: type[S], given: Mapping[str, object]) -> S:
    """Settings from keyword arguments. Dotted names reach into sections: `**{"lora.rank": 16}`.

    As on the command line, `model="path"`, `dtype`, `device` and `engine` stand for settings of the section `model`.
    Where a list of texts is expected, such as `reward`, one item stands for a list, a mapping for items `key=value`,
    and a function at the top of a module for its name. Raises TutelageError as `config.resolve` does.
    """
    hints = get_type_hints(cls)
    opened: dict[str, object] = {}
    for name, value in given.items():
        full = SHORT_FORMS.get(name, name)
        leaf = name not in hints or isinstance(
            value, str | Path
        )  # not a whole section, as in model=Model("path")
        if full != name and leaf and hints.get(full.partition(".")[0]) is Model:
            opened[full] = _plain(str, value)
        else:
            opened[name] = _plain(hints.get(name), value)
    return resolve(cls, overrides=opened)


def _plain(hint: object, value: object) -> object:
    """A value as a file of settings would hold it."""
    if hint is str:
        return _text(value)
    if get_origin(hint) is not tuple or get_args(hint) != (str, ...):
        return value
    if isinstance(value, Mapping):
        return [f"{_text(key)}={_text(item)}" for key, item in value.items()]
    items = value if isinstance(value, list | tuple) else [value]
    return [_text(item) for item in items]


def _text(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    return importable_name(value) if callable(value) else value


def importable_name(function: Callable[..., object]) -> str:
    """`module:function` for a function at the top of a module, by which a run that goes on finds it again.

    Raises TutelageError for one that has no such name: a lambda, a method, a function inside another.
    """
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "")
    if getattr(sys.modules.get(module), name, None) is not function:
        raise TutelageError(
            f"{function!r} has no name by which a run that goes on would find it again: give a function at the top "
            "of a module, or go through tutelage.train.improve, which takes any."
        )
    return f"{module}:{name}"
