"""Change that makes a run fit after it ran out of memory, by its plan."""

import torch

from tutelage.base.errors import TutelageError
from tutelage.commands.plan.run import workload_on
from tutelage.commands.plan.workloads import Lengths, run_of
from tutelage.engines.gpu.requirements import obstacle
from tutelage.engines.plans.estimate import Change, changes
from tutelage.engines.plans.hardware import GIB, Cluster, Device
from tutelage.engines.plans.rank_memory import PlanSetting, memory
from tutelage.engines.plans.token_budget import FEWEST
from tutelage.engines.plans.workload import Workload

LENGTH = 512.0
"""Assumed tokens of a prompt and of a response; the comparison hardly depends on them."""
LESS = 0.9
"""Maximum share of the present memory for a change to be suggested."""


def change_that_fits(settings: object, device: torch.device) -> str:
    """Return a sentence with the flags of the least change that clearly reduces memory, or "" if there is none."""
    try:
        run = run_of(settings, Lengths(LENGTH, LENGTH))
    except TutelageError:
        return ""
    on_gpu = device.type == "cuda"
    usable = on_gpu and not obstacle(device)
    endless = Device("any", float("inf"), 1.0, 1.0, 1.0, 1.0, runtime=0.0, is_gpu=on_gpu, gpu_engine=usable)
    change = _change(workload_on(run, endless), Cluster(endless))
    if change is None:
        return ""
    flags, need, present = change
    now, then = f"{present / GIB:.1f} GiB", f"{need / GIB:.1f} GiB"
    return f"The plan of the run needs {now}, and {then} with {flags} (see tutelage plan)."


def _change(work: Workload, cluster: Cluster) -> tuple[str, float, float] | None:
    """Return the flags of the first change that clearly reduces memory, the bytes it needs, and those needed now."""
    present = memory(work, cluster, PlanSetting(tokens=FEWEST)).peak
    smaller: list[Change] = [change for change in changes(work, cluster) if change.peak < LESS * present]
    first = next((change for change in smaller if f"--tokens-at-once {FEWEST}" in change.flags), None)
    if first is None:
        return None
    return first.flags.replace(f" --tokens-at-once {FEWEST}", ""), first.peak, present
