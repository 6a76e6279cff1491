"""Memory of one rank by part, and its peak."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from tutelage.engines.plans.hardware import Cluster
from tutelage.engines.plans.token_budget import (
    CHUNK_ELEMENTS,
    HEAD_ELEMENTS,
    KEPT_ELEMENTS,
    SLOTS,
    bytes_per_token,
    group_tokens,
    rows_at_once,
    tokens_at_once,
)
from tutelage.engines.plans.workload import BatchShape, Workload

Sharding = Literal["none", "full", "hybrid"]
"""Sharding of weights, gradients and moments: none, over all ranks, or over the ranks of a node."""
RECORDED = 0.6
"""Limit of activations that the CPU engine caches from sampling, relative to weights, gradients and moments of full
training."""


@dataclass(frozen=True)
class PlanSetting:
    """Settings that do not change the results of a run."""

    sharding: Sharding = "none"
    checkpointing: bool = False
    """Activation checkpointing: layers are recomputed in the backward pass."""
    tokens: int | None = None
    """Tokens per micro-batch; None chooses by available memory, as a run does."""

    def is_available(self, work: Workload) -> bool:
        """Whether a run supports it; other settings are estimated for comparison only."""
        return self.sharding == "none" or (work.trains and work.can_shard)

    def on_engine(self, work: Workload) -> Workload:
        """The workload on the engine of this setting: a sharded model is computed by the plain one."""
        return work if self.sharding == "none" else work.on_shards()

    def shards(self, cluster: Cluster) -> int:
        """Number of ranks that share one copy of the weights."""
        return {"none": 1, "full": cluster.count, "hybrid": cluster.in_node}[self.sharding]


@dataclass(frozen=True)
class Memory:
    """Bytes of one rank by part. `peak` is the largest sum of parts that coexist."""

    weights: float = 0.0
    gradients: float = 0.0
    moments: float = 0.0
    reference: float = 0.0
    critic: float = 0.0
    """Weights, gradients and moments of a critic network."""
    rewards: float = 0.0
    copies: float = 0.0
    """Weights in the dtype or layout of the arithmetic, and gathered layers of a sharded model."""
    activations: float = 0.0
    logits: float = 0.0
    kv_cache: float = 0.0
    decoding: float = 0.0
    """Additional weights for decoding: copies, and all weights of a sharded model."""
    runtime: float = 0.0
    tokens: int = 0
    """Tokens of one forward pass."""
    rows: int = 0
    """Maximum number of completions sampled at once."""

    @property
    def held(self) -> float:
        """Bytes allocated in every phase."""
        return self.weights + self.moments + self.reference + self.critic + self.rewards + self.runtime

    @property
    def updating(self) -> float:
        """Bytes of the update."""
        return self.held + self.gradients + self.copies + self.activations + self.logits

    @property
    def sampling(self) -> float:
        """Bytes of generating completions."""
        return self.held + self.decoding + self.kv_cache

    @property
    def peak(self) -> float:
        """Peak memory in bytes."""
        return max(self.updating, self.sampling)


def memory(work: Workload, cluster: Cluster, setting: PlanSetting, *, serves: bool = True) -> Memory:
    """The memory of one rank. `serves`: whether the training ranks also generate the completions."""
    work = setting.on_engine(work)
    shards, arithmetic = setting.shards(cluster), 2 if work.half else 4
    frozen = arithmetic if work.fused else 4
    model, stored = work.model, (frozen if work.lora else 4) if work.trains else arithmetic
    critic = 16 * work.critic.parameters if work.critic else 0
    teacher = work.teacher.parameters if work.teacher else 0
    fixed = Memory(
        weights=stored * model.parameters / shards,
        gradients=4 * work.trainable / shards,
        moments=8 * work.trainable / shards,
        reference=(frozen * model.parameters * (work.has_reference and not work.lora) + arithmetic * teacher) / shards,
        critic=critic / shards,
        rewards=sum(arithmetic * reward.parameters for reward in work.rewards) / shards,
        copies=_copies(work, shards),
        runtime=cluster.device.runtime,
    )
    tokens = setting.tokens or _automatic(work, fixed, cluster, setting)
    share = work.batch.share(cluster.count)
    together = pass_tokens(share, tokens, work.minibatches)
    activations, logits = _activations(work, share, together, setting)
    decoding, rows = 0.0, 0
    if work.sampling is not None:
        if serves:
            gathered = 4.0 * model.parameters if shards > 1 else 0.0
            rounded = 2.0 * (work.fused and work.half and not work.lora)
            decoding = (work.sampling.copies + rounded) * model.parameters + gathered
        rows = _rows(work, share, cluster.device.memory - fixed.held - decoding)
    return replace(
        fixed,
        activations=activations,
        logits=logits,
        kv_cache=_kv_cache(work, share, rows) if serves else 0.0,
        decoding=decoding,
        tokens=tokens,
        rows=rows,
    )


def _rows(work: Workload, share: BatchShape, free: float) -> int:
    """Completions sampled at once: on the GPU engine the slots for all, or as many as memory holds."""
    assert work.sampling is not None
    model, limit = work.model, work.sampling.longest
    if not work.fused:
        itemsize = 2 if work.half else 4
        return rows_at_once(free, layers=model.layers, hidden=model.hidden, limit=limit, itemsize=itemsize)
    enough = next((count for count in SLOTS if count >= share.rows), SLOTS[-1])
    fitting = [count for count in SLOTS if count <= enough and _kv_cache(work, share, count) <= free]
    return max(fitting, default=SLOTS[0])


def saving(work: Workload) -> float:
    """Host memory of rank 0, in bytes, while a checkpoint of a sharded run is written: the gathered weights. Every rank
    writes its own moments."""
    critic = work.critic.parameters if work.critic else 0
    return 4.0 * (work.model.parameters + critic)


def pass_tokens(share: BatchShape, tokens: int, minibatches: float) -> float:
    """Tokens of the largest forward pass of a rank: as many whole prompts with their completions as fit."""
    one = share.tokens / share.prompts
    whole = max(tokens // one * one, min(float(tokens), one))
    return min(whole, max(share.tokens / minibatches, share.tokens / share.rows))


def recorded_tokens(work: Workload, share: BatchShape) -> float:
    """Tokens of a rank whose activations the CPU engine caches from sampling for the update: those of the first
    minibatch of one epoch, if the activations of all tokens would fit at maximum length and minibatches are not
    distributed over ranks."""
    if not work.keeps or work.sampling is None or work.epochs > 1 or work.minibatches > share.prompts:
        return 0.0
    if work.minibatches > 1 and share.prompts < work.batch.prompts:
        return 0.0
    longest = BatchShape(share.prompts, share.samples, share.prompt, work.sampling.longest)
    if work.model.recorded(half=work.half) * longest.tokens > RECORDED * 16 * work.model.parameters:
        return 0.0
    return min(1.0, math.ceil(share.prompts / work.minibatches) / share.prompts) * share.tokens


def _copies(work: Workload, shards: int) -> float:
    """Bytes of autocast's bf16 copy, of one layer or head if the engine casts one at a time, none of frozen weights on
    the GPU engine. For a sharded model, two
    gathered layers in the dtype of the arithmetic, and the weights outside of layers in float32 with such a copy. A
    teacher's head is resident beside the policy's; its layers are not."""
    model, half = work.model, work.half
    if shards == 1:
        cast = max(model.largest_layer, model.head) if work.casts_layers else model.parameters
        return 2.0 * cast * (half and work.trains and not (work.fused and work.lora))
    models = [model, *([work.teacher] if work.teacher else [])]
    outside = sum(max(0, one.parameters - one.layers * one.largest_layer) for one in models)
    layer = max(one.largest_layer for one in models)
    return (2.0 if half else 4.0) * 2 * layer + (6.0 if half else 4.0) * outside


def _automatic(work: Workload, fixed: Memory, cluster: Cluster, setting: PlanSetting) -> int:
    """Tokens per micro-batch as chosen by a run."""
    model, shards = work.model, setting.shards(cluster)
    others = work.critic.parameters if work.critic else 0
    sizes = (model.layers, model.hidden, model.feed_forward)
    each = bytes_per_token(*sizes, half=work.half, checkpointing=setting.checkpointing)
    group, batch = 0, work.batch
    if work.sampling is not None and batch.shared:
        group = group_tokens(max(1, round(batch.prompt)), round(batch.samples), work.sampling.longest)
    return tokens_at_once(
        cluster.device.memory - fixed.held + fixed.moments + 0.75 * fixed.critic,
        weights=(model.parameters + others) // shards,
        trainable=(work.trainable + others) // shards,
        vocabulary=model.vocabulary,
        each=each,
        half=work.half,
        on_cpu=not cluster.device.is_gpu,
        group=group,
    )


def _activations(work: Workload, share: BatchShape, together: float, setting: PlanSetting) -> tuple[float, float]:
    """Bytes of the activations of one pass and of its logits: the saved ones or one chunk, and the gradient of a
    chunk. The GPU engine saves none, and the gradient has the dtype of the arithmetic."""
    model = work.model
    scored = 0.0 if work.is_scalar else together * share.scored / share.tokens
    all_logits = scored * model.vocabulary
    chunk = min(HEAD_ELEMENTS if work.fused else CHUNK_ELEMENTS, all_logits)
    if not work.trains:
        return together * model.kept(half=work.half) / model.layers, 4 * chunk
    logits = 4 * (chunk + (all_logits if all_logits <= KEPT_ELEMENTS else chunk))
    if work.fused:
        logits = (4 + (2 if work.half else 4)) * chunk
    recorded, activations = recorded_tokens(work, share), 0.0
    if recorded < share.tokens:
        activations = together * model.kept(half=work.half, checkpointing=setting.checkpointing)
    return max(model.recorded(half=work.half) * recorded, activations), logits


def _kv_cache(work: Workload, share: BatchShape, rows: int) -> float:
    """Bytes of keys and values of the rows sampled together, at maximum length; shared prompts count once.

    The GPU engine holds all prompts of a rollout, with room for the next power of two of tokens.
    """
    if work.sampling is None:
        return 0.0
    each = work.model.key_values * (2.0 if work.half else 4.0)
    if work.fused:
        prompt_tokens = 2.0 ** math.ceil(math.log2(max(1024.0, share.prompts * share.prompt)))
        return (prompt_tokens + rows * work.sampling.longest) * each
    prompts = share.prompts if share.shared else share.rows
    positions = prompts * share.prompt + share.rows * work.sampling.longest
    together = min(1.0, rows / share.rows)
    return together * positions * each
