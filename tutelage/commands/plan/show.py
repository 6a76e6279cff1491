"""Output of `tutelage plan`: the tables of a plan."""

import json

from rich.console import Console
from rich.table import Table

from tutelage.base.nouns import counted
from tutelage.commands.plan.run import PlanResult, plan
from tutelage.commands.plan.settings import PlanFlags
from tutelage.engines.plans.estimate import CostEstimate, setting_flags
from tutelage.engines.plans.hardware import GIB

PARTS = (
    "weights",
    "gradients",
    "moments",
    "reference",
    "critic",
    "rewards",
    "copies",
    "activations",
    "logits",
    "decoding",
    "kv_cache",
    "runtime",
)


def main(settings: PlanFlags) -> int:
    """Print the plan. Returns status 1 if no setting fits."""
    result = plan(settings, settings)
    if settings.json:
        print(json.dumps(result.to_json(), indent=1, allow_nan=False))
    else:
        print_plan(result)
    return 0 if result.fits else 1


def print_plan(result: PlanResult) -> None:
    """Print memory by part for every setting, the time of the chosen one by phase, and a summary."""
    console = Console(highlight=False, soft_wrap=True)
    plan = result.plan
    device, model = plan.cluster.device, plan.work.model
    console.print(
        f"{model.parameters / 1e9:,.3g} G weights of {model.family or 'a transformer'}, "
        f"{plan.work.trainable / 1e9:,.3g} G trained; {plan.devices} × {device.name} "
        f"({device.memory / GIB:,.1f} GiB, {device.rate(half=plan.work.half) / 1e12:,.3g} TFLOP/s and "
        f"{device.reading / 1e9:,.4g} GB/s reached)",
        markup=False,
    )
    console.print(_memory_table(result))
    if not all(one.setting.is_available(plan.work) for one in plan.estimates):
        console.print("† computed for comparison: distill and natural steps do not support shards.")
    estimate = plan.choice or min(plan.estimates, key=lambda one: one.memory.peak)
    console.print(_time_table(estimate))
    _print_sum(console, result, estimate)
    for note in result.notes:
        console.print(f"note: {note}", markup=False)


def _memory_table(result: PlanResult) -> Table:
    """Return a table of memory per device by part, with a column for each setting."""
    estimates = result.plan.estimates
    table = Table(title="Memory of one device, GiB", title_justify="left")
    table.add_column("")
    for one in estimates:
        name = f"shard {one.setting.sharding}" + "\n+ checkpointing" * one.setting.checkpointing
        name += " *" * (one is result.plan.choice) + " †" * (not one.setting.is_available(result.plan.work))
        table.add_column(name, justify="right")
    for part in PARTS:
        values = [getattr(one.memory, part) for one in estimates]
        if any(values):
            table.add_row(part.replace("_", " "), *(f"{value / GIB:,.2f}" for value in values))
    table.add_section()
    table.add_row("peak", *(f"{one.memory.peak / GIB:,.2f}" for one in estimates))
    table.add_row("fits", *("yes" if one.fits else "no" for one in estimates))
    table.add_row("tokens at once", *(f"{one.memory.tokens:,}" for one in estimates))
    table.add_row("seconds a step", *(f"{one.seconds:,.3g}" for one in estimates))
    return table


def _time_table(estimate: CostEstimate) -> Table:
    """Return a table of the phases of a step on one device."""
    table = Table(title="Time of a step, one device", title_justify="left")
    for column in ("phase", "TFLOP", "GB read", "GB sent", "seconds", "bound by"):
        table.add_column(column, justify="left" if column in ("phase", "bound by") else "right")
    for phase in estimate.phases:
        table.add_row(
            phase.name,
            f"{phase.operations / 1e12:,.3g}",
            f"{phase.traffic / 1e9:,.3g}",
            f"{phase.sent / 1e9:,.3g}",
            f"{phase.seconds:,.3g}",
            phase.bound,
        )
    return table


def _print_sum(console: Console, result: PlanResult, estimate: CostEstimate) -> None:
    """Print whether it fits, the time and the cost of the run, or changes to make."""
    plan = result.plan
    if result.fits:
        flags = setting_flags(estimate.setting)
        console.print(f"It fits{' with ' + flags if flags else ''}.", markup=False)
        total = (
            ""
            if result.steps is None
            else f", {duration(result.steps * estimate.seconds)} for {counted(result.steps, 'step')}"
        )
        console.print(
            f"{estimate.seconds:,.3g} s a step{total}; {plan.tokens_per_day(estimate):,.3g} tokens a day; most of it "
            f"is {estimate.slowest.name}, bound by {estimate.slowest.bound}.",
            markup=False,
        )
        if result.price:
            cost = plan.cost(estimate, result.price)
            of_run = "" if result.steps is None else f", {cost * result.steps:,.2f} for the run"
            console.print(f"Cost: {cost:,.4f} a step{of_run}, at {result.price:g} per device and hour.")
        return
    console.print(
        f"It does not fit: at least {estimate.memory.peak / GIB:,.2f} GiB of {estimate.room / GIB:,.2f} GiB are needed."
    )
    for change in result.changes:
        console.print(f"  fits with {change.flags}: {change.peak / GIB:,.2f} GiB", markup=False)
    if result.devices_needed:
        console.print(f"  fits on {counted(result.devices_needed, 'such device')}")
    elif result.devices_beside_servers:
        console.print(
            f"  fits on {counted(result.devices_beside_servers, 'such device')} beside servers for the responses "
            "(--servers)"
        )
    elif not result.changes:
        console.print("  more such devices do not help: each would need the whole model")


def duration(seconds: float) -> str:
    """Format a time in a suitable unit: 95 s, 12.3 min, 4.5 h, 3.2 days."""
    for unit, size in (("days", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.0f} s"
