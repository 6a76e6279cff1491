"""Annotations are checked at every call in the tests of the annotated rooms: types by beartype, shapes by jaxtyping."""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial, wraps
from importlib.machinery import SourceFileLoader
from inspect import iscoroutinefunction, isfunction, isgeneratorfunction
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import _import_hook

CHECKED = ("tutelage.core", "tutelage.algorithms", "tutelage.engines", "tutelage.models")
"""The packages whose annotations are checked; a room is added once its tensors are annotated."""


remembered = jaxtyping.jaxtyped  # before `install` replaces it
CHECKS = BeartypeConf(is_pep484_tower=True, violation_type=jaxtyping.TypeCheckError)
TESTS = Path(__file__).parent
WHOLE = (["ranks"], ["plans"])
"""Folders of tests of whole trainings, which would take twice the time."""


def is_subject(test: Path) -> bool:
    """Whether a test file belongs to a room of `CHECKED`, to the laws of their pieces, or to the checks themselves."""
    names = {package.removeprefix("tutelage.") for package in CHECKED}
    first, *rest = test.relative_to(TESTS).parts
    return first in names | {"laws", "test_typechecks.py"} and rest[:1] not in WHOLE


def install() -> None:
    """Check the packages of `CHECKED`. They must not have been imported before."""
    jaxtyping.jaxtyped = outermost(jaxtyping.jaxtyped)  # by this name the hook decorates what it imports
    _import_hook._JaxtypingLoader.exec_module = SourceFileLoader.exec_module
    _import_hook._JaxtypingLoader.get_code = own_code
    jaxtyping.install_import_hook(CHECKED, "typechecks.checked")


def own_code(loader: Any, name: str) -> Any:
    """Code of a checked module, whose bytecode has a name of its own. The loader of jaxtyping gives such names as long
    as a module is executed, so to all that it imports, and 2,000 modules of others would be compiled in each process.
    """
    named = partial(_import_hook._optimized_cache_from_source, loader._typechecker.get_hash())
    with patch("importlib._bootstrap_external.cache_from_source", named):
        return SourceFileLoader.get_code(loader, name)


def outermost(jaxtyped: Callable[..., Any]) -> Callable[..., Any]:
    """`jaxtyped` for classes, annotations in quotes and functions that run later than they are called, `called_checked`
    for the others that have tensors. Functions inside functions are left alone: each call would compile their checks
    anew, in a millisecond."""

    def decorator(*, typechecker: Callable[..., Any]) -> Callable[..., Any]:
        check = jaxtyped(typechecker=typechecker)

        def decorate(thing: Any) -> Any:
            if "<locals>" in thing.__qualname__:
                return thing
            runs_at_once = isfunction(thing) and not (isgeneratorfunction(thing) or iscoroutinefunction(thing))
            if not runs_at_once or any(isinstance(hint, str) for hint in thing.__annotations__.values()):
                return check(thing)
            has_shapes = any("jaxtyping" in repr(hint) for hint in thing.__annotations__.values())
            return called_checked(thing, has_shapes) if has_shapes or EVERY_CALL else thing

        return decorate

    return decorator


def called_checked(function: Callable[..., Any], has_shapes: bool) -> Callable[..., Any]:
    """The function with its arguments and its result checked, once each: jaxtyping's own wrapper binds the arguments,
    and checks them twice, which takes most of the time of a small model. Without an annotation of a tensor there are
    no sizes to remember. Of the calls in a test `Checks.most` are checked, the first ones."""
    settings, check = jaxtyping.config, cache(partial(checked, function))
    test, calls = 0, 0

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        nonlocal test, calls
        if settings.jaxtyping_disable:
            return function(*args, **named)
        if test != Checks.test:
            test, calls = Checks.test, 0
        calls += 1
        if calls > Checks.most:
            return function(*args, **named)
        if not has_shapes:
            return check()(*args, **named)
        with remembered("context"):
            return check()(*args, **named)

    return call


EVERY_CALL = os.environ.get("TUTELAGE_TEST_CALLS") == "all"
"""Whether all calls of all functions are checked, as in `make test-long`. Otherwise mypy alone looks at signatures
without tensors, whose checks take a tenth of the time of the tests of the CPU engine."""


class Checks:
    """How many calls of a function are checked in a test, and the number of the present test."""

    most = math.inf if EVERY_CALL else 20
    test = 0


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its annotations checked, an int being a float, and `Self` as result not looked at."""
    function.__annotations__ = {name: hint for name, hint in function.__annotations__.items() if hint is not Self}
    return beartype(conf=CHECKS)(function)


@contextmanager
def unchecked() -> Iterator[None]:
    """Calls that break an annotation on purpose, to see what the function itself says."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)
