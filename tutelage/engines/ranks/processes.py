"""Launch of the ranks of a run and initialisation of their communication.

torchrun starts the processes and sets environment variables in each (RANK, WORLD_SIZE, LOCAL_RANK, ...). `launch` runs
torchrun on this machine; for several machines call torchrun directly:

    torchrun --nnodes 2 --nproc-per-node 8 --rdzv-endpoint HOST:29500 -m tutelage improve ...
"""

import atexit
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tutelage.base.errors import TutelageError

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

    from tutelage.engines.ranks.ranks import Ranks

REPORTS = "TUTELAGE_REPORTS"
"""Environment variable of the ranks that `launch` starts: the file that is not empty once a rank has printed its
error."""


def world_size() -> int:
    """The number of ranks from the environment; 1 for a single process."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def world_rank() -> int:
    """The global rank of this process."""
    return int(os.environ.get("RANK", "0"))


def ranks_on_this_machine() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def rank_on_this_machine() -> int:
    """The local rank of this process on this machine."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def is_restart() -> bool:
    """Whether torchrun has restarted the ranks after a failure (`--max-restarts`)."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


@cache
def join() -> "Ranks":
    """The ranks given by the environment, or a single one. The first call initialises communication.

    Raises TutelageError if the machine has GPUs, but fewer than ranks.
    """
    from tutelage.engines.ranks.ranks import ALONE, Ranks

    if world_size() == 1:
        return ALONE
    import torch
    import torch.distributed as dist

    backend = "gloo"
    if torch.cuda.is_available():
        if ranks_on_this_machine() > torch.cuda.device_count():
            raise TutelageError(
                f"{ranks_on_this_machine()} processes need a GPU each, but torch finds {torch.cuda.device_count()}: "
                "start fewer (--processes), or hide the GPUs from runs on the CPU (CUDA_VISIBLE_DEVICES=)."
            )
        torch.cuda.set_device(rank_on_this_machine())
        backend = "cpu:gloo,cuda:nccl"
    if not dist.is_initialized():
        dist.init_process_group(backend, store=_store(), rank=world_rank(), world_size=world_size())
        atexit.register(dist.destroy_process_group)
    return Ranks(world_rank(), world_size())


@cache
def _store() -> "Store":
    """The rendezvous store of the ranks."""
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    store, _, _ = next(iter(rendezvous("env://")))
    return PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def reports(error: Exception) -> bool:
    """Whether this rank should print the error: the first rank with an error, or a single process."""
    if world_size() == 1:
        return True
    from tutelage.engines.ranks.ranks import PeerError

    if isinstance(error, PeerError):
        return False
    if join.cache_info().currsize == 0:
        return world_rank() == 0  # an error in the settings, raised on all ranks
    try:
        return int(_store().add("errors", 1)) == 1
    except RuntimeError:  # the store ended with the launcher
        return True


def name_of_rank() -> str:
    """Message prefix of this rank, such as "rank 1 of 4: "; empty for a single process."""
    return f"rank {world_rank()} of {world_size()}: " if world_size() > 1 else ""


def note_report() -> None:
    """Tell `launch`, if it started this rank, that the rank has printed its error."""
    if file := os.environ.get(REPORTS):
        Path(file).write_text("1", encoding="utf-8")


def launch(processes: int, words: Sequence[str]) -> int:
    """Run `tutelage WORDS` in `processes` ranks on this machine by torchrun's agent. Returns the exit status. Raises
    TutelageError if a signal killed a rank and no other rank has reported that: the agent ends them at once."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cpus // processes)))
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    settings = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=f"tutelage-{os.getpid()}",
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        max_restarts=0,
        monitor_interval=0.1,
        local_addr="127.0.0.1",
    )
    with tempfile.NamedTemporaryFile(prefix="tutelage-") as reports:
        os.environ[REPORTS] = reports.name
        try:
            elastic_launch(settings, sys.executable)("-m", "tutelage", *words)
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            if failure.exitcode < 0 and not os.path.getsize(reports.name):
                number = -failure.exitcode
                reason = ", as the system does when memory runs out" if number == signal.SIGKILL else ""
                raise TutelageError(
                    f"rank {rank} of {processes}: signal {number} ({signal.strsignal(number)}) ended it{reason}. The "
                    "latest checkpoint, if there is one, is complete: continue a training with --resume."
                ) from None
            return failure.exitcode if failure.exitcode >= 0 else 128 - failure.exitcode  # as a shell does
        except SignalException as stopped:
            return 128 + int(stopped.sigval)
        finally:
            del os.environ[REPORTS]
    return 0


def processes_of(words: Sequence[str]) -> tuple[int, list[str]]:
    """The value of `--processes` and the other words; see `count_of`."""
    return count_of(words, "processes")


def count_of(words: Sequence[str], what: str) -> tuple[int, list[str]]:
    """The value of the flag `--what` (default 1) and the other words. Raises TutelageError where it is no number."""
    rest, count = [], "1"
    remaining = iter(words)
    for word in remaining:
        name, equals, value = word.partition("=")
        if name == f"--{what}":
            count = value if equals else next(remaining, "")
        else:
            rest.append(word)
    if not count.isdecimal() or int(count) < 1:
        raise TutelageError(f"--{what} is {count!r}: give the number of {what}, 1 or more.")
    return int(count), rest
