"""Plans: settings of a run with memory, time and cost on a machine, the best choice, and changes that make a run
fit."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tutelage.engines.plans.hardware import Cluster
from tutelage.engines.plans.rank_memory import Memory, PlanSetting, Sharding, memory
from tutelage.engines.plans.step_time import StepPhase, phases
from tutelage.engines.plans.token_budget import FEWEST
from tutelage.engines.plans.workload import Workload

DAY = 86_400.0
SERVERS = "--rollouts http://HOST:PORT"
"""Flag for generating completions on separate servers."""


@dataclass(frozen=True)
class CostEstimate:
    """Estimate for one setting of a run: memory of a rank and phases of a step."""

    setting: PlanSetting
    memory: Memory
    phases: tuple[StepPhase, ...]
    room: float
    """Device memory in bytes."""

    @property
    def fits(self) -> bool:
        """Whether peak memory is within device memory."""
        return self.memory.peak <= self.room

    @property
    def seconds(self) -> float:
        return sum(phase.seconds for phase in self.phases)

    @property
    def slowest(self) -> StepPhase:
        """The phase that takes the most time."""
        return max(self.phases, key=lambda phase: phase.seconds)


@dataclass(frozen=True)
class RunPlan:
    """The estimates of a run, one per setting."""

    work: Workload
    cluster: Cluster
    estimates: tuple[CostEstimate, ...]
    servers: Cluster | None = None

    @property
    def choice(self) -> CostEstimate | None:
        """The cheapest setting that fits and is available, on fixed devices the fastest; None if there is none."""
        fitting = [one for one in self.estimates if one.fits and one.setting.is_available(self.work)]
        return min(fitting, key=lambda estimate: estimate.seconds, default=None)

    @property
    def devices(self) -> int:
        """Number of paid devices."""
        return self.cluster.count + (self.servers.count if self.servers else 0)

    def cost(self, estimate: CostEstimate, price: float) -> float:
        """The cost of a step at a price of one device per hour."""
        return self.devices * price * estimate.seconds / 3600

    def tokens_per_day(self, estimate: CostEstimate) -> float:
        """Prompt and completion tokens trained on per day."""
        batch = self.work.batch
        return batch.rows * (batch.prompt + batch.length) * DAY / estimate.seconds


@dataclass(frozen=True)
class Change:
    """A change of settings that makes a run fit: its flags, and the resulting memory of a rank in bytes."""

    flags: str
    peak: float


def plan(work: Workload, cluster: Cluster, *, tokens: int | None = None, servers: Cluster | None = None) -> RunPlan:
    """Estimate every setting of a run on a cluster. `tokens` fixes the micro-batch; `servers` generate completions."""
    return RunPlan(
        work, cluster, tuple(estimate(work, cluster, one, servers) for one in settings(cluster, tokens)), servers
    )


def estimate(work: Workload, cluster: Cluster, setting: PlanSetting, servers: Cluster | None = None) -> CostEstimate:
    """The memory and the phases of one setting."""
    parts = memory(work, cluster, setting, serves=servers is None)
    return CostEstimate(setting, parts, phases(work, cluster, setting, parts, servers), cluster.device.memory)


def settings(cluster: Cluster, tokens: int | None) -> Iterator[PlanSetting]:
    """All settings of a run on a cluster: sharding requires several devices, hybrid sharding several nodes, and
    replicas occupy whole nodes."""
    kinds: list[Sharding] = ["none"]
    if cluster.count > 1:
        kinds.append("full")
    if cluster.count > cluster.per_node > 1 and cluster.count % cluster.per_node == 0:
        kinds.append("hybrid")
    for sharding in kinds:
        for checkpointing in (False, True) if cluster.device.is_gpu else (False,):
            yield PlanSetting(sharding, checkpointing, tokens)


def changes(work: Workload, cluster: Cluster, *, serves: bool = True) -> Iterator[Change]:
    """Changes that make a run fit, least intrusive first: available settings, fewer tokens, bf16, rollouts from
    servers, adapters. `serves`: whether the devices currently generate completions."""
    variants = [("", work, serves)]
    if not work.half and cluster.device.is_gpu:
        variants.append(("--model.dtype bf16", replace(work, half=True), serves))
    if work.sampling and serves:
        variants += [(f"{flags} {SERVERS}".strip(), one, False) for flags, one, _ in variants]
    if work.trains and not work.lora:
        variants += [
            (f"{flags} --lora.rank 16".strip(), replace(one, lora=16, has_reference=False), here)
            for flags, one, here in variants
        ]
    for flags, one, here in variants:
        for tokens in (None, FEWEST):
            for setting in settings(cluster, tokens):
                needed = memory(one, cluster, setting, serves=here)
                if setting.is_available(one) and needed.peak <= cluster.device.memory:
                    yield Change(" ".join(filter(None, (flags, setting_flags(setting)))), needed.peak)


def setting_flags(setting: PlanSetting) -> str:
    """The flags of a setting; empty for the defaults."""
    flags = [
        f"--shard {setting.sharding}" * (setting.sharding != "none"),
        "--activation-checkpointing" * setting.checkpointing,
        f"--tokens-at-once {setting.tokens}" * (setting.tokens is not None),
    ]
    return " ".join(filter(None, flags))


def devices_needed(work: Workload, cluster: Cluster, *, serves: bool = True, most: int = 4096) -> int | None:
    """The smallest power of two of devices on which the run fits in some setting; None if above `most`."""
    count = cluster.count
    while count <= most:
        larger = replace(cluster, count=count)
        able = (one for one in settings(larger, None) if one.is_available(work))
        needs = (memory(work, larger, one, serves=serves) for one in able)
        if any(each.peak <= larger.device.memory for each in needs):
            return count
        count *= 2
    return None
