"""Fused forms: classes of modules that compute what other modules compute, with fewer operations.

Which modules have a fused form is not taken from a list: each form is tried on a module that looks like its own.
"""

import copy
from functools import cache
from typing import Any, Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn

TOLERANCE = 1e-5
"""The largest difference of a fused form from the module itself, relative to the largest number."""

HALF_TOLERANCE = 0.1
"""The same of a whole model in bfloat16, whose layers were tried in float32: some hundred roundings by 2⁻⁹ in the root
mean square."""


class FusedForm(Protocol):
    """A mixin for the classes of modules. Its `forward` may call that of the class that it is mixed into."""

    @staticmethod
    def fits(module: nn.Module) -> bool:
        """Whether `module` is a candidate for the trial."""

    @staticmethod
    def trial(module: Any) -> list[Float[Tensor, "..."]]:
        """What `module` computes from inputs that are not random."""


def replace_modules(model: nn.Module, *forms: Any) -> None:
    """Replace the modules inside `model` that one of the forms computes by modules of that form."""
    tried: dict[tuple[type, str], bool] = {}
    fused: dict[nn.Module, nn.Module] = {}
    for name, module in list(model.named_modules(remove_duplicate=False)):
        form = next((form for form in forms if name and form.fits(module)), None)
        if form is None or isinstance(module, form):
            continue
        key = (type(module), repr([_settings(part) for part in module.modules()]))
        if key not in tried:
            tried[key] = _computes_the_same(module, form)
        if tried[key]:
            if module not in fused:
                fused[module] = _with_form(module, form)
            model.set_submodule(name, fused[module])


def _with_form(module: nn.Module, form: type) -> nn.Module:
    """A module of the fused form with the parameters, submodules, hooks and settings of `module`."""
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
    """The attributes in which modules of one class may differ besides their weights, such as a window."""
    attributes = {name: value for name, value in vars(module).items() if name != "layer_idx"}
    settings = [(name, x) for name, x in attributes.items() if isinstance(x, int | float | str | None)]
    return [type(module).__name__, *settings]


@torch.no_grad()
def _computes_the_same(module: nn.Module, form: Any) -> bool:
    if any(weight.dtype.itemsize < 4 for weight in module.parameters()):
        module = copy.deepcopy(module).float()  # rounding would hide differences
    try:
        expected, found = form.trial(module), form.trial(_with_form(module, form))
    except (RuntimeError, TypeError, ValueError, AttributeError, KeyError, NotImplementedError):
        return False
    return all(
        a.shape == b.shape and bool((a - b).abs().max() <= TOLERANCE * b.abs().max())
        for a, b in zip(found, expected, strict=True)
    )


# Inputs and conditions of trials --------------------------------------------------------------------------------------


def wave(*shape: int, like: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Numbers of the size of hidden states in a given shape, with the device and type of `like`; not random."""
    count = torch.Size(shape).numel()
    return torch.arange(1.0, count + 1, device=like.device).mul(0.7).sin().mul(2).view(shape).to(like.dtype)


def features(layer: Any) -> int:
    """The number of features that a linear layer reads."""
    return int(layer.in_features)


def is_one_matrix(layer: nn.Module) -> bool:
    """Whether calling `layer` computes x Wᵀ + b and nothing else."""
    return type(layer) is nn.Linear and is_unmodified(layer)


def is_unmodified(layer: nn.Module) -> bool:
    """Whether `layer` has no hooks and the `forward` of its class."""
    replaced = "forward" in vars(layer)
    return not (replaced or has_forward_hooks(layer) or layer._backward_hooks or layer._backward_pre_hooks)


def has_forward_hooks(layer: nn.Module) -> bool:
    """Whether hooks are called before or after the forward pass of `layer`."""
    return bool(layer._forward_hooks or layer._forward_pre_hooks)
