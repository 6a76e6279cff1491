"""Sharded and replicated tensors, in memory and in files.

A sharded parameter, its gradient and its moments are `DTensor`s of FSDP2, which hold this rank's rows. All others are
ordinary, replicated tensors. Every rank writes its own rows, and any number of ranks can read the parts they need:
safetensors with the offsets of each shard in the header (`torch.distributed.checkpoint`), so nothing is gathered and
loading executes no code.
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
    """A device mesh of `size` ranks, with `in_shards` consecutive ranks per copy of the weights: 1-D, or 2-D (replicas
    × shards). Collective."""
    if in_shards == size:
        return init_device_mesh(device, (size,))
    return init_device_mesh(device, (size // in_shards, in_shards), mesh_dim_names=("copies", "shards"))


def is_sharded(tensor: Tensor) -> bool:
    """Whether this rank holds only a part of the tensor."""
    return isinstance(tensor, DTensor)


def shard_of(tensor: Tensor) -> Tensor:
    """This rank's part of the tensor, sharing its memory."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """The full tensor from the shards of all ranks. Collective if it is sharded."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def laid_out_as(tensor: Tensor, parameter: Tensor) -> Tensor:
    """A replicated tensor, sharded like `parameter` if they have the same shape."""
    if not isinstance(parameter, DTensor) or tensor.shape != parameter.shape:
        return tensor
    mesh, placements = parameter.device_mesh, parameter.placements
    return distribute_tensor(tensor.to(parameter.device), mesh, placements, src_data_rank=None)


def total_norm(gradients: Iterable[Tensor], ranks: Ranks) -> Tensor:
    """√ Σ g² over all entries of all gradients, in float64; replicated entries count once. []"""
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
"""Maximum elements of tensors per file; a rank copies its rows of one file while writing."""


def save_shards(tensors: Mapping[str, Tensor], folder: Path, ranks: Ranks) -> None:
    """Write this rank's shards of tensors to a folder shared by all ranks. Collective.

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
    """Load tensors in place; their sharding may differ from that of the saved ones. Not collective."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        load(dict(tensors), storage_reader=HuggingFaceStorageReader(str(folder)), no_dist=True)


def _files(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """File index of each tensor, counted from 1."""
    numbers, files = 0, {}
    for name, tensor in tensors.items():
        files[name] = 1 + numbers // TOGETHER
        numbers += tensor.numel()
    return files
