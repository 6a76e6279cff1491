"""Fused layers: the layers that most models share, with fewer passes over memory and less kept for the backward pass.

    RMSNorm    y = w · x · r,  r = (mean x² + ε)^-½     keeps x and r       (Zhang & Sennrich 2019, arXiv 1910.07467)
    SwiGLU     y = W_down (silu(g) · u)                 keeps g and u       (Shazeer 2020, arXiv 2002.05202)
    rotation   y = x · cos + (−x₂, x₁) · sin            keeps nothing of x  (Su et al. 2021, arXiv 2104.09864)
    embedding  y = W[token]                             keeps the tokens
    layer      y = h + SwiGLU(RMSNorm(h)),  h = x + attention(RMSNorm(x)),  in two steps

transformers writes each of them as five to ten operations on whole tensors and keeps most of the results for the
backward pass. Between large matrix products, a training step on a processor waits for these operations; in a decoding
step, their number costs.

The layers of a model that are replaced are not taken from a list: each kind of layer is tried. A layer that computes
anything else stays as it is, and all layers do where gradients are differentiated (see `differentiable_twice`).
"""

import copy
from functools import cache
from typing import Any

import torch
from torch import nn

from tutelage.engines.cpu.fused.attention import FusedAttention
from tutelage.engines.cpu.fused.embedding import FusedEmbedding
from tutelage.engines.cpu.fused.gate import FusedGate
from tutelage.engines.cpu.fused.layer import FusedLayer
from tutelage.engines.cpu.fused.norm import FusedNorm
from tutelage.engines.cpu.fused.step import consists_of_fused_layers
from tutelage.engines.cpu.fused.trial import TOLERANCE
from tutelage.engines.network import trunk

_PARTS: tuple[Any, ...] = (FusedNorm, FusedGate, FusedAttention, FusedEmbedding)


def fuse(model: nn.Module) -> None:
    """Replace the classes of those layers of `model` that have a fused form. Weights and their names stay."""
    for forms in (_PARTS, (FusedLayer,)):  # a fused layer consists of fused parts
        _replace_classes(model, forms)


def keep_states_in_float32(model: nn.Module) -> None:
    """Give a language model of fused layers whose weights are bfloat16 states in float32 under autocast, as one with
    float32 weights has."""
    stack = trunk(model)
    if consists_of_fused_layers(stack) and isinstance(stack.embed_tokens, FusedEmbedding):
        stack.embed_tokens.widens = stack.embed_tokens.weight.dtype == torch.bfloat16


def _replace_classes(model: nn.Module, forms: tuple[Any, ...]) -> None:
    same: dict[tuple[type, str], bool] = {}
    for module in model.modules():
        kind: Any = type(module)
        form = next((form for form in forms if form.fits(module)), None)
        if form is None or issubclass(kind, form):
            continue
        key = (kind, repr([_settings(part) for part in module.modules()]))
        if key not in same:
            same[key] = _computes_the_same(module, _fused_class(kind, form), form)
        if same[key]:
            module.__class__ = _fused_class(kind, form)


def _settings(module: nn.Module) -> list[Any]:
    """The attributes in which layers of one class may differ besides their weights, such as a window."""
    attributes = {name: value for name, value in vars(module).items() if name != "layer_idx"}
    settings = [(name, x) for name, x in attributes.items() if isinstance(x, int | float | str | None)]
    return [type(module).__name__, *settings]


@cache
def _fused_class(kind: type, form: type) -> type:
    """The class of a layer with the fused form mixed in before it."""
    return type(kind.__name__, (form, kind), {"__module__": kind.__module__})


@torch.no_grad()
def _computes_the_same(module: nn.Module, fused: type, form: Any) -> bool:
    if any(weight.dtype.itemsize < 4 for weight in module.parameters()):
        module = copy.deepcopy(module).float()  # rounding would hide differences
    own = type(module)
    try:
        expected = form.trial(module)
        module.__class__ = fused
        found = form.trial(module)
    except (RuntimeError, TypeError, ValueError, AttributeError, KeyError, NotImplementedError):
        return False
    finally:
        module.__class__ = own
    return all(
        a.shape == b.shape and bool((a - b).abs().max() <= TOLERANCE * b.abs().max())
        for a, b in zip(found, expected, strict=True)
    )
