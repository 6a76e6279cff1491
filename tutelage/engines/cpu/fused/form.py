"""Fused forms: module classes equivalent to others, with fewer operations.

Each form is tested on candidate modules; there is no list of supported classes.
"""

import copy
from functools import cache
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn

TOLERANCE = 1e-5
"""Tolerance between a fused form and the original module, relative to the largest value."""


class FusedForm(Protocol):
    """A mixin for module classes. Its `forward` may call that of the class it is mixed into."""

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Whether `module` is a candidate for the trial."""

    @staticmethod
    def trial(module: Any) -> list[Float[Tensor, "..."]]:
        """Results of `module` on deterministic inputs."""


def replace_modules(model: nn.Module, *forms: Any) -> None:
    """Replace the modules inside `model` that agree with one of the forms by modules of that form."""
    results: dict[tuple[type, str], bool] = {}
    fused: dict[nn.Module, nn.Module] = {}
    for name, module in list(model.named_modules(remove_duplicate=False)):
        form = next((form for form in forms if name and form.fits(module)), None)
        if form is None or isinstance(module, form):
            continue
        key = (type(module), repr([_settings(part) for part in module.modules()]))
        if key not in results:
            results[key] = _computes_the_same(module, form)
        if results[key]:
            if module not in fused:
                fused[module] = _with_form(module, form)
            model.set_submodule(name, fused[module])


def _with_form(module: nn.Module, form: type) -> nn.Module:
    """A module of the fused form sharing the parameters, submodules, hooks and settings of `module`."""
    own: Any = type(module)
    kind = _fused_class(own, form)
    fused: nn.Module = kind.__new__(kind)
    vars(fused).update(vars(module))
    return fused


@cache
def _fused_class(kind: type, form: type) -> Any:
    """The class of a module with the fused form mixed in before it."""
    return type(kind.__name__, (form, kind), {"__module__": kind.__module__})


def _settings(module: nn.Module) -> list[Any]:
    """Attributes besides weights in which modules of one class may differ, such as a window."""
    attributes = {name: value for name, value in vars(module).items() if name != "layer_idx"}
    settings = [(name, x) for name, x in attributes.items() if isinstance(x, int | float | str | None)]
    return [type(module).__name__, *settings]


@torch.no_grad()
def _computes_the_same(module: nn.Module, form: Any) -> bool:
    if any(weight.dtype.itemsize < 4 for weight in module.parameters()):
        module = copy.deepcopy(module).float()  # rounding would hide differences
    try:
        expected, actual = form.trial(module), form.trial(_with_form(module, form))
    except (RuntimeError, TypeError, ValueError, AttributeError, KeyError, NotImplementedError):
        return False
    return all(
        a.shape == b.shape and bool((a - b).abs().max() <= TOLERANCE * b.abs().max())
        for a, b in zip(actual, expected, strict=True)
    )


# Inputs of trials -----------------------------------------------------------------------------------------------------


def wave(*shape: int, like: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Deterministic values of the magnitude of hidden states, with the device and dtype of `like`."""
    count = torch.Size(shape).numel()
    return torch.arange(1.0, count + 1, device=like.device).mul(0.7).sin().mul(2).view(shape).to(like.dtype)


def features(layer: Any) -> int:
    """Number of input features of a linear layer."""
    return int(layer.in_features)
