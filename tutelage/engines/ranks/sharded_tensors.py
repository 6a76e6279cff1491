"""Tensors in shards over the ranks, in memory and as files, beside those that every rank holds whole.

A sharded parameter, its gradient and its moments are `DTensor`s of FSDP2: this rank's rows of them, and where the
others are. All else is an ordinary tensor, of which a shard is the whole. Every rank writes its own rows to files, and
any number of ranks reads what it needs of them: safetensors with the place of each shard in their header
(`torch.distributed.checkpoint`), so that nothing is gathered, and reading them runs no code.
"""

import warnings
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
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


TOGETHER = 1 << 28
"""Numbers of the tensors that share a file: a rank copies its rows of them once more while it writes."""


def save_shards(tensors: Mapping[str, Tensor], folder: Path, ranks: Ranks) -> None:
    """Write this rank's shards of tensors into a folder that all ranks see. Collective.

    Raises the error of the first rank that could not write on every rank.
    """
    writer = HuggingFaceStorageWriter(str(folder), _files(tensors), save_distributed=True)
    try:
        with ranks.connected(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            save(dict(tensors), storage_writer=writer)
    except CheckpointException as failed:
        error, _ = failed.failures[min(failed.failures)]
        raise error from None


def load_shards(tensors: Mapping[str, Tensor], folder: Path) -> None:
    """Fill tensors, which may be whole or lie in other shards than those that were saved. Not collective."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load(dict(tensors), storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)


def _files(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """The number of the file of each tensor, counted from 1."""
    numbers, files = 0, {}
    for name, tensor in tensors.items():
        files[name] = 1 + numbers // TOGETHER
        numbers += tensor.numel()
    return files
