"""Annotations are checked at every call while the tests run: types by beartype, shapes of tensors by jaxtyping."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import jaxtyping
from beartype import BeartypeConf, beartype

CHECKED = ("tutelage.core", "tutelage.algorithms", "tutelage.engines", "tutelage.models")
"""The packages whose annotations are checked; a room is added once its tensors are annotated."""


def install() -> None:
    """Check the packages of `CHECKED`. They must not have been imported before."""
    jaxtyping.install_import_hook(CHECKED, "typechecks.checked")


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its annotations checked, an int being a float, and `Self` as result not looked at."""
    function.__annotations__ = {
        name: hint for name, hint in function.__annotations__.items() if hint is not Self
    }
    return beartype(conf=BeartypeConf(is_pep484_tower=True))(function)


@contextmanager
def unchecked() -> Iterator[None]:
    """Calls that break an annotation on purpose, to see what the function itself says."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", before)
