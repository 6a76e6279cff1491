"""What would make a run fit that ran out of memory, by its plan."""

import torch

from tutelage.base.errors import TutelageError
from tutelage.commands.plan.workloads import Lengths, run_of
from tutelage.engines.plans.estimate import Change, changes
from tutelage.engines.plans.hardware import GIB, Cluster, Device
from tutelage.engines.plans.rank_memory import PlanSetting, memory
from tutelage.engines.plans.token_budget import FEWEST
from tutelage.engines.plans.workload import Workload

LENGTH = 512.0
"""Tokens of a prompt and of a response that are assumed: what is compared differs little with them."""
LESS = 0.9
"""Share of the present need that a change must fall below to be worth naming."""


def change_that_fits(settings: object, device: torch.device) -> str:
    """A sentence with the flags of the least change by which a run needs clearly less memory; empty without one."""
    try:
        work = run_of(settings, Lengths(LENGTH, LENGTH)).work
    except TutelageError:
        return ""
    found = _change(work, on_gpu=device.type == "cuda")
    if found is None:
        return ""
    flags, need, present = found
    now, then = f"{present / GIB:.1f} GiB", f"{need / GIB:.1f} GiB"
    return f"By its plan the run needs {now} and, with {flags}, {then} (see tutelage plan)."


def _change(work: Workload, *, on_gpu: bool) -> tuple[str, float, float] | None:
    """The flags of the first change that needs clearly less, the bytes that it needs, and those needed now."""
    endless = Device("any", float("inf"), 1.0, 1.0, 1.0, 1.0, runtime=0.0, is_gpu=on_gpu)
    cluster = Cluster(endless)
    present = memory(work, cluster, PlanSetting(tokens=FEWEST)).peak
    found: list[Change] = [change for change in changes(work, cluster) if change.peak < LESS * present]
    named = next((change for change in found if f"--tokens-at-once {FEWEST}" in change.flags), None)
    if named is None:
        return None
    return named.flags.replace(f" --tokens-at-once {FEWEST}", ""), named.peak, present
