"""Sharding of models over ranks, and gathering their weights for operations that need all of them.

Saving, merging adapters and decoding need full weights. `gathered` of a sharded model is a context in which every rank
has them, as an ordinary model; in `gathered_to_save` only rank 0 does. They are released on exit.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tutelage.engines.choose import engine_for
from tutelage.engines.interface import Engine
from tutelage.engines.ranks.passes import Passes
from tutelage.engines.ranks.sharded_tensors import whole
from tutelage.engines.sharded import ShardedEngine
from tutelage.models.engine_model import EngineModel
from tutelage.models.policy import Policy

CPU = torch.device("cpu")


Unsharded = tuple[Any, Engine, torch.device]
"""The unsharded model, whose weights take memory only while they are gathered, its engine and its device."""


def shard_(model: EngineModel, passes: Passes, device: torch.device, *, with_reference: bool = False) -> None:
    """Shard the weights of a model, keeping this rank's shards on a device. Switches to the plain engine.

    `with_reference` also sets the reference of a policy to a sharded copy of its current weights.
    """
    model.backbone, model.device = replace(model.backbone, device=device, engine="plain"), device
    if with_reference:
        assert isinstance(model, Policy)
        model.freeze_reference(partial(_frozen_copy, model, passes))
    here = _unsharded(model, device)
    to_save = here if device.type == "cpu" else _unsharded(model, CPU)
    outside = model.outside_parameters()
    for parameter in outside:
        parameter.data = parameter.data.to(device)
    model.engine = ShardedEngine(model.backbone, model.head_in(model.model), passes, outside)
    model.passes = passes
    model.gathered = partial(_gathered, model, here)
    model.gathered_to_save = partial(_gathered, model, to_save, needed=passes.ranks.is_first)


def _frozen_copy(policy: Policy, passes: Passes) -> Engine:
    """The engine of a frozen copy of an unsharded policy. Copies only this rank's shards."""

    def alias(parameter: nn.Parameter) -> nn.Parameter:
        return nn.Parameter(parameter.detach(), requires_grad=False)

    twin = _twin(policy.model, alias, policy.device)
    return ShardedEngine(replace(policy.backbone, model=twin), policy.head_in(twin), passes)


def _unsharded(model: EngineModel, device: torch.device) -> Unsharded:
    """A copy of the current model on a device, with weights that have shapes but no memory."""

    def empty(parameter: nn.Parameter) -> nn.Parameter:
        shape = torch.empty_like(parameter, memory_format=torch.contiguous_format, device=device)
        without_memory = nn.Parameter(shape, parameter.requires_grad)
        without_memory.untyped_storage().resize_(0)
        return without_memory

    twin = _twin(model.model, empty, device)
    backbone = replace(model.backbone, model=twin, device=device)
    return twin, engine_for(backbone, model.head_in(twin)), device


@contextmanager
def _gathered(model: EngineModel, target: Unsharded, *, needed: bool = True) -> Iterator[None]:
    """Context in which the model and its engine are unsharded, on ranks that need them. Collective on entry."""
    assert model.passes is not None
    ranks = model.passes.ranks
    sharded = model.model, model.engine, model.device
    targets = list(target[0].parameters())
    for parameter, own in zip(targets, model.model.parameters(), strict=True):
        with ranks.connected():
            values = whole(own.detach())
        if needed:
            _fill(parameter, values)
    if needed:
        model.model, model.engine, model.device = target
    try:
        yield
    finally:
        model.model, model.engine, model.device = sharded
        for parameter in targets:
            parameter.untyped_storage().resize_(0)


def _twin(model: nn.Module, of: Callable[[nn.Parameter], nn.Parameter], device: torch.device) -> Any:
    """A copy of a model on a device, with parameters replaced by `of(parameter)`."""
    memo: dict[int, Any] = {id(parameter): of(parameter) for parameter in model.parameters()}
    memo |= {id(buffer): buffer.detach().to(device, copy=True) for buffer in model.buffers()}
    return copy.deepcopy(model, memo)


@torch.no_grad()
def _fill(target: nn.Parameter, values: Tensor) -> None:
    target.untyped_storage().resize_(target.numel() * target.element_size())
    target.copy_(values)
