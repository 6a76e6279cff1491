"""Activation checkpointing: a layer keeps its inputs alone, and is computed again in the backward pass.

Memory per token falls from all that the layers compute to one hidden state per layer, for a second forward pass of
every layer (Chen et al. 2016, arXiv 1604.06174). Gradients are those without it.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from tutelage.base.errors import TutelageError
from tutelage.engines.network import Backbone, layers


def checkpointed(backbone: Backbone) -> Backbone:
    """The backbone, computed by the reference engine, with every layer of its model checkpointed.

    Raises TutelageError where another engine is set, or the architecture does not say what its layers are.
    """
    if backbone.engine == "cpu":
        raise TutelageError(
            "--activation-checkpointing is computed by the plain engine alone: leave --model.engine cpu out."
        )
    for layer in layers(backbone.model):
        layer.forward = partial(_recomputed, layer.forward)
    return replace(backbone, engine="plain")


def _recomputed(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The forward pass of a layer; without gradients nothing is kept anyway."""
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    return checkpoint(forward, *args, use_reentrant=False, **kwargs)
