"""Operations, bytes and seconds of a step, by phase."""

import math
from dataclasses import dataclass, replace

from tutelage.engines.plans.hardware import Cluster
from tutelage.engines.plans.rank_memory import Memory, PlanSetting, pass_tokens, recorded_tokens
from tutelage.engines.plans.token_budget import GROUP, KEPT_ELEMENTS
from tutelage.engines.plans.workload import BatchShape, Transformer, Workload

FORWARD, BACKWARD = 3.0, 6.0
"""Reads and writes per activation byte in element-wise work, measured on two CPUs."""
LOGITS_FORWARD, LOGITS_BACKWARD = 16.0, 16.0
"""Bytes read and written per logit in a forward and a backward pass."""
FUSED_FORWARD, FUSED_BACKWARD = 2.0, 4.0
"""The same of the GPU engine, whose layers are compiled. Assumed: each activation and each gradient is written once and
read once."""
FUSED_LOGITS_FORWARD, FUSED_LOGITS_BACKWARD = 8.0, 14.0
"""The same per logit of the GPU engine: a float32 product written and read in each pass, and in the backward pass a
gradient in bf16 written once and read twice. Assumed."""
CACHE_SHARE = 0.56
"""Bandwidth of its decoding attention relative to copies; measured on an H200 (copies: 4.30 TB/s, .90 of the data
sheet)."""
DRAW = 80.0
"""Bytes read and written to sample a token, per vocabulary entry."""
ADAM = 28.0
"""Bytes that AdamW reads and writes per weight: weight, gradient and two moments in, weight and two moments out."""
STEP_SECONDS = 2e-3
"""Seconds per decoded token outside the layers on a CPU: masks, random streams, finished rows."""
GRAPH_OVERHEAD = 4e-5
"""Seconds per layer and decoded token in a CUDA graph, of a server or of the GPU engine: the kernels of a layer follow
one another without launches from the CPU, but each takes microseconds. Fitted to Qwen3-0.6B on an H200."""
PASS_SHARE = 0.6
"""Rate of products in passes of the GPU engine relative to large products; fitted to four steps on an H200, of which it
plans .78 to 1.18 of the time (docs/scale.md)."""


@dataclass(frozen=True)
class StepPhase:
    """A phase of a step on one rank, with seconds by cause."""

    name: str
    operations: float
    traffic: float
    """Bytes read from and written to the device's memory."""
    sent: float
    """Bytes transferred between devices."""
    products: float
    """Seconds of matrix products."""
    reading: float
    """Seconds of memory traffic."""
    overhead: float = 0.0
    """Seconds of kernel launches."""
    waiting: float = 0.0
    """Seconds of communication not overlapped with computation."""

    @property
    def seconds(self) -> float:
        """Seconds of the phase, with products, traffic and overhead in sequence, as without fused kernels."""
        return self.products + self.reading + self.overhead + self.waiting

    @property
    def bound(self) -> str:
        """The cause that takes the most time; overlapped communication does not count."""
        if not self.seconds:
            return "hidden"
        causes = {
            "matrix products": self.products,
            "memory bandwidth": self.reading,
            "kernel launches": self.overhead,
            "network": self.waiting,
        }
        return max(causes, key=lambda cause: causes[cause])


def phases(
    work: Workload, cluster: Cluster, setting: PlanSetting, held: Memory, servers: Cluster | None = None
) -> tuple[StepPhase, ...]:
    """The phases of one step on each rank; `servers` are other devices that generate the completions."""
    work = setting.on_engine(work)
    share = work.batch.share(cluster.count)
    steps = []
    if work.sampling:
        steps += _served(work, servers) if servers else _sampled(work, share, cluster, setting, held)
    if work.scorings + work.rescorings or work.reference or work.teacher or work.critic or work.rewards:
        steps.append(_scoring(work, share, cluster, setting))
    if work.trains:
        steps += _update(work, share, cluster, setting, held)
    if servers and work.trains:
        sent = 2.0 * work.model.parameters
        steps.append(StepPhase("weights to servers", 0, 0, sent, 0, 0, waiting=sent / cluster.link(cluster.count + 1)))
    return tuple(steps)


def _phase(
    name: str,
    work: Workload,
    cluster: Cluster,
    operations: float,
    traffic: float,
    *,
    sent: float = 0.0,
    overhead: float = 0.0,
    waiting: float = 0.0,
) -> StepPhase:
    rate = cluster.device.rate(half=work.half) * (PASS_SHARE if work.fused else 1.0)
    products, reading = operations / rate, traffic / cluster.device.reading
    return StepPhase(name, operations, traffic, sent, products, reading, overhead, waiting)


def _sampled(
    work: Workload, share: BatchShape, cluster: Cluster, setting: PlanSetting, held: Memory
) -> list[StepPhase]:
    """Prefill and decoding on the ranks that train."""
    assert work.sampling is not None
    model, sampling, shards = work.model, work.sampling, setting.shards(cluster)
    gathered = 4.0 * model.parameters * (shards - 1) / shards
    prompt = BatchShape(share.prompts if share.shared else share.rows, 1, 0, share.prompt)
    rounds, read = sampling.rounds, share.rows * (sampling.read + sampling.reread)
    prefill = _phase(
        "prefill",
        work,
        cluster,
        rounds * (model.forward(prompt.tokens, prompt.pairs, share.prompts) + _reading(work, share)),
        rounds * (FUSED_FORWARD if work.fused else FORWARD) * (prompt.tokens + read) * model.kept(half=work.half),
        sent=gathered,
        waiting=gathered / cluster.link(shards) if shards > 1 else 0.0,
    )
    if work.fused:
        return [prefill, _decoded_in_slots(work, share, cluster, held)]
    batches = math.ceil(share.rows / held.rows)
    rounds, together = rounds * batches, share.share(batches)
    rows = together.scored / sampling.limit  # average number of unfinished rows
    prompts = together.prompts if together.shared else rows
    operations, traffic, cached = _decoding(work, together, rows, prompts, sampling.weights, 2.0 if work.half else 4.0)
    operations, traffic = sampling.limit * operations, sampling.limit * (traffic + cached)
    device, steps = cluster.device, rounds * sampling.limit
    overhead = steps * (model.layers * device.step_overhead if device.is_gpu else STEP_SECONDS)
    return [prefill, _phase("decode", work, cluster, rounds * operations, rounds * traffic, overhead=overhead)]


def _decoded_in_slots(work: Workload, share: BatchShape, cluster: Cluster, held: Memory) -> StepPhase:
    """Decoding by the captured graph of the GPU engine: a slot takes the next row once its row has ended, and the keys
    and values of a prompt are read once per group of slots."""
    assert work.sampling is not None
    steps = work.sampling.rounds * max(work.sampling.limit, share.scored / held.rows)
    rows = work.sampling.rounds * share.scored / steps
    prompts, each = rows / min(share.samples, GROUP), 2.0 if work.half else 4.0
    operations, streamed, cached = _decoding(work, share, rows, prompts, each, each)
    phase = _phase(
        "decode",
        work,
        cluster,
        steps * operations,
        steps * (streamed + cached),
        overhead=steps * work.model.layers * GRAPH_OVERHEAD,
    )
    return replace(phase, reading=steps * (streamed + cached / CACHE_SHARE) / cluster.device.reading)


def _decoding(
    work: Workload, share: BatchShape, rows: float, prompts: float, weights: float, cached: float
) -> tuple[float, float, float]:
    """Operations, bytes of weights and logits, and bytes of keys and values of a decoding step of so many rows, which
    reads the keys and values of so many prompts."""
    model = work.model
    pairs = rows * (share.prompt + share.length / 2)
    positions = prompts * share.prompt + rows * share.length / 2
    operations = 2 * (model.matrices + model.head) * rows + 4 * model.layers * model.attention * pairs
    streamed = weights * (model.matrices + model.head) + DRAW * rows * model.vocabulary
    return operations, streamed, cached * model.key_values * positions


def _reading(work: Workload, share: BatchShape) -> float:
    """Operations of what rows read between their turns, on the average after half of their tokens."""
    assert work.sampling is not None
    read = share.rows * (work.sampling.read + work.sampling.reread)
    return work.model.forward(read, read * (share.prompt + share.length / 2), 0)


def _served(work: Workload, servers: Cluster) -> list[StepPhase]:
    """Prefill and decoding on servers, in bf16; each replica uses the fewest devices that hold the weights."""
    assert work.sampling is not None
    model, device = work.model, servers.device
    across = 1 << max(0, math.ceil(math.log2(2.0 * model.parameters / (0.7 * device.memory))))
    replicas = max(1, servers.count // across)
    share, half = work.batch.share(replicas), work.sampling.rounds / across
    prompt = BatchShape(share.prompts, 1, 0, share.prompt)
    steps = work.sampling.limit
    rows = share.scored / steps
    operations, streamed, cached = _decoding(work, share, rows, share.prompts if share.shared else rows, 2.0, 2.0)
    prefill = model.forward(prompt.tokens, prompt.pairs, share.rows)
    result = []
    for name, done, moved, times in (
        ("prefill (server)", prefill + _reading(work, share), 2.0 * model.matrices, 1),
        ("decode (server)", steps * operations, steps * (streamed + cached), steps),
    ):
        products, reading = half * done / device.rate(half=True), half * moved / device.reading
        overhead = work.sampling.rounds * times * model.layers * GRAPH_OVERHEAD
        result.append(StepPhase(name, half * done, half * moved, 0.0, products, reading, overhead))
    return result


def _scoring(work: Workload, share: BatchShape, cluster: Cluster, setting: PlanSetting) -> StepPhase:
    """Forward passes without gradients: log-probabilities, reference, values, reward models."""
    passes = [(work.model, work.scorings + work.rescorings + work.reference, not work.is_scalar)]
    if work.teacher:
        passes.append((work.teacher, 1.0, True))
    if work.critic:
        passes.append((work.critic, 1.0, False))
    passes += [(reward, 1.0, False) for reward in work.rewards]
    operations = traffic = weights = 0.0
    judges = {id(reward) for reward in work.rewards}
    for model, times, logits in passes:
        forward = model.forward(share.tokens, share.pairs, share.scored * logits)
        is_scalar = work.is_scalar or id(model) in judges
        operations += times * (forward - _unread(work, model, share, is_scalar=is_scalar))
        element_wise = (FUSED_FORWARD if work.fused else FORWARD) * share.tokens * model.kept(half=work.half)
        each = FUSED_LOGITS_FORWARD if work.fused else LOGITS_FORWARD
        traffic += times * (element_wise + each * share.scored * model.vocabulary * logits)
        weights += times * model.parameters
    shards = setting.shards(cluster)
    sent = (2.0 if work.half else 4.0) * weights * (shards - 1) / shards
    compute = _phase("scoring", work, cluster, operations, traffic)
    waiting = max(0.0, sent / cluster.link(shards) - compute.seconds) if shards > 1 else 0.0
    return _phase("scoring", work, cluster, operations, traffic, sent=sent, waiting=waiting)


def _unread(work: Workload, model: Transformer, share: BatchShape, *, is_scalar: bool) -> float:
    """Operations skipped in the last layer of one forward pass."""
    read = share.rows if is_scalar else min(share.scored, share.tokens)
    return model.unread(share.tokens - read) * work.selects


def _update(work: Workload, share: BatchShape, cluster: Cluster, setting: PlanSetting, held: Memory) -> list[StepPhase]:
    """Passes with gradients, the optimiser step, and gradient synchronisation."""
    shards, ranks = setting.shards(cluster), cluster.count
    largest = pass_tokens(share, held.tokens, work.minibatches)
    parts = max(1, math.ceil(share.tokens / work.minibatches / largest))
    operations, traffic = _training(work, work.model, share, held, setting, heads=not work.is_scalar)
    trained, gathered = float(work.trainable), float(work.model.parameters)
    if work.critic:
        more = _training(work, work.critic, share, held, setting, heads=False)
        operations, traffic = operations + more[0], traffic + more[1]
        trained, gathered = trained + work.critic.parameters, gathered + work.critic.parameters
    passes = parts * work.updates
    rounded = trained if work.fused else gathered / shards
    casts = 6.0 * rounded * passes if work.half else 0.0
    traffic += work.updates * ADAM * trained / shards + casts
    compute = _phase("update", work, cluster, operations, traffic)
    if ranks == 1:
        return [compute]
    if shards == 1:
        sent = work.updates * 4.0 * trained * 2 * (ranks - 1) / ranks
        return [compute, _phase("sync", work, cluster, 0, 0, sent=sent, waiting=sent / cluster.link(ranks))]
    each = (4.0 if work.half else 8.0) * gathered + 4.0 * trained  # gathered twice, gradients scattered once
    sent = passes * each * (shards - 1) / shards
    waiting = max(0.0, sent / cluster.link(shards) - compute.seconds)
    copies = ranks // shards
    if copies > 1:
        between = work.updates * 4.0 * trained / shards * 2 * (copies - 1) / copies
        sent, waiting = sent + between, waiting + between / cluster.link(ranks)
    return [compute, _phase("sync", work, cluster, 0, 0, sent=sent, waiting=waiting)]


def _training(
    work: Workload, model: Transformer, share: BatchShape, held: Memory, setting: PlanSetting, *, heads: bool
) -> tuple[float, float]:
    """Operations and element-wise bytes of all passes with gradients.

    A backward pass costs two forward passes, or one if only adapters are trained, since weight gradients are not
    needed. Activation checkpointing adds a forward pass; the head is recomputed if a pass has more logits than are
    saved, and always by the GPU engine.
    """
    trunk = model.forward(share.tokens, share.pairs, 0)
    trunk -= _unread(work, model, share, is_scalar=work.is_scalar)
    head = 2 * model.head * share.scored * heads
    frozen = bool(work.lora) and model is work.model
    scored = pass_tokens(share, held.tokens, work.minibatches) * share.scored / share.tokens
    chunked = heads and (work.fused or scored * model.vocabulary > KEPT_ELEMENTS)
    spared = recorded_tokens(work, share) / share.tokens if model is work.model else 0.0
    times = (2 if frozen else 3) + setting.checkpointing - spared
    operations = times * trunk + ((2 if frozen else 3) + chunked) * head
    if frozen:
        operations += 6 * work.lora * model.adapter * share.tokens
    forward, backward = (FUSED_FORWARD, FUSED_BACKWARD) if work.fused else (FORWARD, BACKWARD)
    element_wise = (forward * (1 + setting.checkpointing - spared) + backward) * model.kept(half=work.half)
    each = LOGITS_FORWARD * (1 + chunked) + LOGITS_BACKWARD
    if work.fused:
        each = FUSED_LOGITS_FORWARD + FUSED_LOGITS_BACKWARD
    logits = each * model.vocabulary * heads
    return work.epochs * operations, work.epochs * (share.tokens * element_wise + share.scored * logits)
