"""Tensors in shards as files: every rank writes its own rows, and any number of ranks reads what it needs of them.

The files are safetensors with the place of each shard in their header (`torch.distributed.checkpoint`), so that nothing
is gathered, and reading them runs no code. Tensors are those of one table, by name.
"""

import warnings
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from tutelage.engines.ranks.ranks import Ranks

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
