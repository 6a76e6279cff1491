"""The layers that most models share, computed with fewer passes over memory and less kept for the backward pass.

    RMSNorm    y = w · x · r,  r = (mean x² + ε)^-½     keeps x and r       (Zhang & Sennrich 2019, arXiv 1910.07467)
    SwiGLU     y = W_down (silu(g) · u)                 keeps g and u       (Shazeer 2020, arXiv 2002.05202)
    rotation   y = x · cos + (−x₂, x₁) · sin            keeps nothing of x  (Su et al. 2021, arXiv 2104.09864)
    embedding  y = W[token]                             keeps the tokens
    layer      y = h + SwiGLU(RMSNorm(h)),  h = x + attention(RMSNorm(x)),  in two steps

transformers writes each of them as five to ten operations on whole tensors, of which it keeps most for the backward
pass. Between large products these are what a step on a processor waits for, and while decoding their number costs.

Which layers of a model are these is not taken from a list: it is tried on each kind of layer. One that computes
anything else stays as it is, and all do where derivatives of derivatives are taken (see `differentiable_twice`).
"""

from functools import cache
from typing import Any

import torch
from torch import nn

from tutelage.engines.cpu.fused.attention import LeanAttention
from tutelage.engines.cpu.fused.embedding import LeanEmbedding
from tutelage.engines.cpu.fused.gate import LeanGate
from tutelage.engines.cpu.fused.layer import LeanLayer
from tutelage.engines.cpu.fused.norm import LeanNorm
from tutelage.engines.cpu.fused.trial import TOLERANCE

_PARTS: tuple[Any, ...] = (LeanNorm, LeanGate, LeanAttention, LeanEmbedding)


def fuse(model: nn.Module) -> None:
    """Let the layers of `model` that are among these compute as described. Weights and their names stay."""
    for forms in (_PARTS, (LeanLayer,)):  # a layer is made of parts that are lean already
        _take(model, forms)


def _take(model: nn.Module, forms: tuple[Any, ...]) -> None:
    same: dict[tuple[type, str], bool] = {}
    for module in model.modules():
        kind: Any = type(module)
        lean = next((lean for lean in forms if lean.fits(module)), None)
        if lean is None or issubclass(kind, lean):
            continue
        alike = (kind, repr([_settings(part) for part in module.modules()]))
        if alike not in same:
            same[alike] = _computes_the_same(module, _joined(kind, lean), lean)
        if same[alike]:
            module.__class__ = _joined(kind, lean)


def _settings(module: nn.Module) -> list[Any]:
    """What layers of one kind may differ in besides their weights, such as a window."""
    told = {name: value for name, value in vars(module).items() if name != "layer_idx"}
    settings = [(name, x) for name, x in told.items() if isinstance(x, int | float | str | None)]
    return [type(module).__name__, *settings]


@cache
def _joined(kind: type, lean: type) -> type:
    """The layer's own class, with the leaner way before it."""
    return type(kind.__name__, (lean, kind), {"__module__": kind.__module__})


@torch.no_grad()
def _computes_the_same(module: nn.Module, joined: type, lean: Any) -> bool:
    own = type(module)
    try:
        expected = lean.trial(module)
        module.__class__ = joined
        found = lean.trial(module)
    except (RuntimeError, TypeError, ValueError, AttributeError, KeyError, NotImplementedError):
        return False
    finally:
        module.__class__ = own
    return all(
        a.shape == b.shape and bool((a - b).abs().max() <= TOLERANCE * b.abs().max())
        for a, b in zip(found, expected, strict=True)
    )
