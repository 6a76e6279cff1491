"""Tensors that lie in shards over the ranks, beside those that every rank holds whole.

A sharded parameter, its gradient and its moments are `DTensor`s of FSDP2: this rank's rows of them, and where the
others are. All else is an ordinary tensor, of which a shard is the whole.
"""

from collections.abc import Iterable
from functools import cache

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, distribute_tensor

from tutelage.engines.ranks.ranks import Ranks


@cache
def mesh_of(device: str, size: int, in_shards: int) -> DeviceMesh:
    """`size` ranks, of which `in_shards` in a row hold one copy of the weights: in one axis, or in two, copies by
    shards. Collective."""
    if in_shards == size:
        return init_device_mesh(device, (size,))
    return init_device_mesh(device, (size // in_shards, in_shards), mesh_dim_names=("copies", "shards"))


def is_sharded(tensor: Tensor) -> bool:
    """Whether this rank holds a part of the tensor only."""
    return isinstance(tensor, DTensor)


def shard_of(tensor: Tensor) -> Tensor:
    """What this rank holds of the tensor, in the same memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """The tensor from the shards of all ranks. Collective where it is sharded."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def laid_out_as(tensor: Tensor, parameter: Tensor) -> Tensor:
    """A whole tensor, which every rank has, in shards as `parameter` is where they have one shape."""
    if not isinstance(parameter, DTensor) or tensor.shape != parameter.shape:
        return tensor
    mesh, placements = parameter.device_mesh, parameter.placements
    return distribute_tensor(tensor.to(parameter.device), mesh, placements, src_data_rank=None)


def total_norm(gradients: Iterable[Tensor], ranks: Ranks) -> Tensor:
    """√ Σ g² over all entries of all gradients, in float64; what several ranks have counts once. []"""
    squares = torch.zeros(2, dtype=torch.float64)
    for gradient in gradients:
        own = shard_of(gradient).double().square().sum().cpu()
        squares[int(is_sharded(gradient))] += own / _copies(gradient)
    ranks.sum_([squares[1:]])
    return squares.sum().sqrt().float()


def _copies(tensor: Tensor) -> int:
    """The number of ranks that hold the same shard; 1 for a whole tensor."""
    return tensor.device_mesh.size(0) if isinstance(tensor, DTensor) and tensor.device_mesh.ndim == 2 else 1
