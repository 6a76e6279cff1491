"""Plan of a run: whether it fits, its duration and its bottleneck, without loading weights."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.base.number_text import duration
from tutelage.commands.plan.settings import PlanSettings
from tutelage.commands.plan.workloads import Lengths, PlannedRun, run_of
from tutelage.engines.choose import engine_name
from tutelage.engines.device_rates import this_device
from tutelage.engines.devices import obstacle
from tutelage.engines.plans.estimate import (
    SERVERS,
    Change,
    CostEstimate,
    RunPlan,
    changes,
    devices_needed,
    setting_flags,
)
from tutelage.engines.plans.estimate import plan as plan_of
from tutelage.engines.plans.hardware import GIB, Cluster, Device, gpu_named
from tutelage.engines.plans.rank_memory import PlanSetting, memory, saving
from tutelage.engines.plans.token_budget import FEWEST
from tutelage.engines.plans.workload import Workload
from tutelage.models.backbone import pick_device

SHORT, LONG = 60.0, 3600.0
"""Seconds of a run below which its time is not estimated, and above which a word is said about it."""
SLOW = Device("a slow machine", float("inf"), 20e9, 20e9, 4e9, 1e9, runtime=0.0, matrix_share=1.0, memory_share=1.0)
"""A machine that is slower than any to train on."""
ELSEWHERE = "the servers of --rollouts are not counted; --servers counts GPUs that serve"
COPIES = 5.0
"""Bytes per weight of the CPU engine's padded panels for decoding in float32. In bf16 they take, and decoding reads,
half as much."""
GPU_FAMILIES = ("llama", "mistral", "ministral", "qwen2", "qwen3", "gemma", "granite", "seed_oss")
"""Families whose layers the GPU engine computes. A run tries each model; a plan reads no weights."""
IN_STEPS = ("llama", "qwen2", "qwen3")
"""Families whose layers the CPU engine computes in steps, which round the weights of a product to bf16 on the fly."""


LENGTH = 512.0
"""Assumed tokens of a prompt and of a response; the comparison hardly depends on them."""
LESS = 0.9
"""Maximum share of the present memory for a change to be suggested."""


@dataclass(frozen=True)
class PlanResult:
    """Plan with the number of steps, and changes to make if nothing fits."""

    plan: RunPlan
    steps: int | None
    notes: tuple[str, ...] = ()
    price: float = 0.0
    changes: tuple[Change, ...] = ()
    devices_needed: int | None = None
    """Minimum number of devices on which the run fits, if it does not fit as it is."""
    devices_beside_servers: int | None = None
    """The same, if separate servers generate the responses."""

    @property
    def fits(self) -> bool:
        """Whether any setting fits."""
        return self.plan.choice is not None

    def to_json(self) -> dict[str, Any]:
        """Return the plan as plain values: bytes, seconds, operations."""
        choice = self.plan.choice
        return {
            "device": asdict(self.plan.cluster.device),
            "devices": self.plan.devices,
            "steps": self.steps,
            "fits": self.fits,
            "choice": None if choice is None else setting_flags(choice.setting),
            "settings": [self._estimate(estimate) for estimate in self.plan.estimates],
            "changes": [asdict(change) for change in self.changes],
            "devices_needed": self.devices_needed,
            "devices_beside_servers": self.devices_beside_servers,
            "notes": list(self.notes),
        }

    def _estimate(self, estimate: CostEstimate) -> Mapping[str, Any]:
        values = {
            "flags": setting_flags(estimate.setting),
            "fits": estimate.fits,
            "memory": asdict(estimate.memory) | {"peak": estimate.memory.peak, "room": estimate.room},
            "phases": [asdict(phase) | {"seconds": phase.seconds, "bound": phase.bound} for phase in estimate.phases],
            "seconds": estimate.seconds,
            "tokens_per_day": self.plan.tokens_per_day(estimate),
        }
        if self.price:
            values["cost_of_step"] = self.plan.cost(estimate, self.price)
        return values


def plan(settings: object, where: PlanSettings | None = None) -> PlanResult:
    """Plan the run of a command's settings on the devices of `where`, by default on this machine, which is measured.

    Reads the configuration of the models, and the data if `where` leaves a length of its texts open. No weights are
    read, and nothing is written.

    Raises:
        TutelageError: the settings name no model, no GPU of the table, or no data to count tokens in.
    """
    where = where or PlanSettings()
    if where.gpu:
        settings = _on_gpus(settings)
    where.check_lengths(has_episodes=getattr(settings, "has_episodes", False))
    lengths = Lengths(where.prompt_tokens, where.response_tokens, turns=where.mean_turns, read=where.result_tokens)
    run = _run_of(settings, lengths, serves=bool(where.servers))
    cluster, servers = _clusters(run, where)
    work = workload_on(run, cluster.device)
    estimated = plan_of(work, cluster, tokens=run.tokens_at_once, servers=servers)
    result = PlanResult(estimated, run.steps, tuple(_notes(run, estimated)), where.price)
    if estimated.choice is not None:
        return result
    here = servers is None
    return replace(
        result,
        changes=tuple(_first(work, cluster, here)),
        devices_needed=devices_needed(work, cluster, serves=here),
        devices_beside_servers=devices_needed(work, cluster, serves=False) if work.sampling else None,
    )


def announcement(settings: object, records: Sequence[Any], steps: int) -> str:
    """Return a sentence about a run of `steps` steps that begins on this machine: its tokens, time and memory.

    `records` are the rows that it trains on. The machine is measured only if the run may take more than `SHORT`
    seconds, so that short runs start at once.
    """
    run = _run_of(settings, Lengths(records=records), serves=False)
    batch, device = run.work.batch, pick_device(run.model.device)
    tokens = batch.rows * (batch.prompt + batch.length)
    bound = "at most" if getattr(settings, "has_episodes", False) else "about"
    head = f"{counted(steps, 'step')} of {bound} {tokens:,.0f} tokens"
    slow = replace(SLOW, is_gpu=device.type == "cuda")
    estimated = plan_of(workload_on(run, slow), Cluster(slow), tokens=run.tokens_at_once)
    if estimated.choice is not None and steps * estimated.choice.seconds < SHORT:
        return f"{head}: minutes at most."
    here = this_device(device, run.work.model.hidden, run.work.model.feed_forward)
    estimated = plan_of(workload_on(run, here), Cluster(here), tokens=run.tokens_at_once)
    best = estimated.choice or min(estimated.estimates, key=lambda one: one.memory.peak)
    seconds = steps * best.seconds
    sentence = (
        f"{head}: about {duration(seconds)} on {here.name}, with {best.memory.peak / GIB:.1f} of its "
        f"{best.room / GIB:.1f} GiB of memory, by the plan."
    )
    if seconds >= LONG:
        what = f"most of it is {best.slowest.name}"
        fewer = "fewer --steps, a smaller --batch-size or shorter completions (--sampling.max-new-tokens)"
        less = fewer if run.work.sampling else "fewer --epochs, less data or a smaller model"
        sentence += f" That is hours: {what}; {less} make it shorter, and --dry-run shows the whole plan."
    return sentence


def _run_of(settings: object, lengths: Lengths, *, serves: bool) -> PlannedRun:
    """Return the run of a command's settings, without the responses of servers that the plan does not count."""
    run = run_of(settings, lengths)
    if getattr(settings, "has_servers", False) and not serves:
        return replace(run, work=replace(run.work, sampling=None), notes=(*run.notes, ELSEWHERE))
    return run


def _on_gpus(settings: Any) -> object:
    """Replace `--model.dtype auto` by its choice on the GPUs of the table, which all have bf16."""
    holder = settings.model if isinstance(getattr(settings, "model", None), config.Model) else settings
    if getattr(holder, "dtype", None) != "auto":
        return settings
    holder = replace(holder, dtype="bf16")
    return replace(settings, model=holder) if isinstance(holder, config.Model) else holder


def _clusters(run: PlannedRun, where: PlanSettings) -> tuple[Cluster, Cluster | None]:
    """Return the training devices and the serving devices."""
    if not where.gpu:
        shape = run.work.model
        return Cluster(this_device(pick_device(run.model.device), shape.hidden, shape.feed_forward)), None
    if where.servers and run.work.sampling is None:
        raise TutelageError("--servers generate responses, but this run generates none: omit it.")
    device, network = gpu_named(where.gpu), where.network * 1e9 / 8
    trainers = Cluster(device, where.gpus - where.servers, where.gpus_per_node, network)
    return trainers, replace(trainers, count=where.servers) if where.servers else None


def workload_on(run: PlannedRun, device: Device) -> Workload:
    """The workload of a run on the engine that computes it on a device."""
    work, engine = run.work, _engine(run, device)
    compiled = engine == "cpu"
    is_exact = compiled and work.half and work.model.family in IN_STEPS
    shared = engine != "plain" or (device.is_gpu and work.batch.packs)
    work = replace(work, batch=replace(work.batch, shared=shared))
    if compiled and work.sampling:
        half = 0.5 if work.half else 1.0
        work = replace(work, sampling=replace(work.sampling, copies=half * COPIES, weights=half * 4.0))
    if work.sampling and engine != "gpu" and not run.rereads:
        work = replace(work, sampling=replace(work.sampling, reread=0.0))
    return replace(
        work,
        keeps=compiled and work.model.family == "llama",
        rescorings=0.0 if is_exact else work.rescorings,
        selects=compiled,
        casts_layers=engine == "gpu" or (compiled and work.model.family in IN_STEPS),
        fused=engine == "gpu",
    )


def _engine(run: PlannedRun, device: Device) -> config.EngineName:
    """The engine of a run on a device, which for a GPU of the table does not depend on this machine."""
    if not device.is_gpu:
        return engine_name(run.model.engine, torch.device("cpu"))
    fused = device.gpu_engine and run.model.engine in ("auto", "gpu") and run.work.model.family in GPU_FAMILIES
    return "gpu" if fused else "plain"


def _notes(run: PlannedRun, plan: RunPlan) -> Iterator[str]:
    yield from run.notes
    work, choice = plan.work, plan.choice
    if work.sampling and work.batch.response == work.sampling.limit and not work.batch.read:
        yield "responses are counted at full length; --response-tokens gives their mean"
    if not work.batch.shared:
        yield "rows are counted without padding"
    device = plan.cluster.device
    if device.gpu_engine and run.model.engine in ("auto", "gpu") and not work.fused:
        yield f"the engine gpu may not support models of the family {work.model.family}: the engine plain is counted"
    if plan.servers:
        yield "training and serving devices wait for each other, as with --staleness 0"
    if choice is not None and choice.setting.sharding != "none":
        yield (
            f"while a checkpoint is written, the machine of rank 0 holds {saving(work) / GIB:,.1f} GiB in CPU "
            "memory: the whole weights"
        )


def _first(work: Workload, cluster: Cluster, serves: bool) -> Iterator[Change]:
    """Yield the first change of every kind that makes the run fit."""
    kinds: set[tuple[bool, ...]] = set()
    for change in changes(work, cluster, serves=serves):
        kind = tuple(flag in change.flags for flag in ("lora", "bf16", SERVERS))
        if kind not in kinds:
            kinds.add(kind)
            yield change


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
