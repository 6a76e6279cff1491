"""Shapes in signatures: there are no tensors without one, and a call that breaks one is refused in the tests."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any, get_args

import jaxtyping
import pytest
import torch
import typechecks
from offenders import for_each
from torch import Tensor, nn

from tutelage.core.batch import TokenScores
from tutelage.core.reduce import at_last_token
from tutelage.core.returns import gae

UNCHECKED = ("tutelage.engines.ranks", "tutelage.engines.gpu.head_kernels", "tutelage.engines.gpu.slot_kernels")
"""Files whose tensors have any shape, and kernels in Triton, which only CUDA builds of torch bring."""


def modules() -> list[ModuleType]:
    """Every file of the checked packages but `UNCHECKED`."""
    packages = [importlib.import_module(name) for name in typechecks.CHECKED]
    inside = [m.name for package in packages for m in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    return [*packages, *(importlib.import_module(name) for name in inside if not name.startswith(UNCHECKED))]


def annotations(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The annotations of the public functions, methods and fields that a file defines, by a name to report."""
    for name, thing in vars(module).items():
        if name.startswith("_") or getattr(thing, "__module__", "") != module.__name__:
            continue
        if inspect.isfunction(thing):
            yield from ((f"{name}({key})", hint) for key, hint in inspect.get_annotations(thing).items())
        if inspect.isclass(thing):
            for method in (m for m in vars(thing).values() if inspect.isfunction(m)):
                if method.__name__ == "__call__" or not method.__name__.startswith("_"):
                    hints = inspect.get_annotations(method)
                    yield from ((f"{name}.{method.__name__}({key})", hint) for key, hint in hints.items())
            if is_dataclass(thing):
                yield from ((f"{name}.{field.name}", field.type) for field in fields(thing))


def has_bare_tensor(hint: Any) -> bool:
    return hint is Tensor or any(has_bare_tensor(inner) for inner in get_args(hint))


@for_each(modules(), lambda module: module.__name__)
def test_every_tensor_in_a_public_signature_has_a_shape(module: ModuleType) -> None:
    assert [name for name, hint in annotations(module) if has_bare_tensor(hint)] == []


def test_the_search_for_bare_tensors_finds_them() -> None:
    assert has_bare_tensor(dict[str, Tensor | float])
    assert not has_bare_tensor(jaxtyping.Float[Tensor, "B R"] | None)
    assert not has_bare_tensor(nn.Module)
    assert len([hint for module in modules() for hint in annotations(module)]) > 200


def test_a_call_with_shapes_that_do_not_fit_is_refused() -> None:
    mask = torch.ones(2, 3, dtype=torch.bool)
    assert at_last_token(torch.ones(2), mask).shape == (2, 3)
    for wrong in (torch.ones(3), torch.ones(2, 1), torch.ones(2, dtype=torch.long)):
        with pytest.raises(jaxtyping.TypeCheckError):
            at_last_token(wrong, mask)
    with pytest.raises(jaxtyping.TypeCheckError):
        gae(torch.ones(2, 3), torch.ones(2, 4), mask, gamma=1.0, lam=1.0)
    with pytest.raises(jaxtyping.TypeCheckError):
        TokenScores(torch.ones(2, 3), entropy=torch.ones(2, 2))


def test_the_check_can_be_left_out_and_comes_back() -> None:
    mask = torch.ones(2, 3, dtype=torch.bool)
    with typechecks.unchecked():
        assert at_last_token(torch.ones(2, dtype=torch.long), mask).shape == (2, 3)
    with pytest.raises(jaxtyping.TypeCheckError):
        at_last_token(torch.ones(2, dtype=torch.long), mask)
