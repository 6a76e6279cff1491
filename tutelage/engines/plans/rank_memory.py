"""The memory of one rank, by part and at its peak."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from tutelage.engines.plans.hardware import Cluster
from tutelage.engines.plans.token_budget import (
    CHUNK_ELEMENTS,
    KEPT_ELEMENTS,
    bytes_per_token,
    group_tokens,
    rows_at_once,
    tokens_at_once,
)
from tutelage.engines.plans.workload import BatchShape, Workload

Sharding = Literal["none", "full", "hybrid"]
"""Where weights, gradients and moments lie: whole on every rank, in shards over all, or over those of a node."""
RECORDED = 0.6
"""Largest share of the weights, gradients and moments of training all weights that the CPU engine keeps of sampling."""


@dataclass(frozen=True)
class PlanSetting:
    """What may be chosen without changing what a run computes."""

    sharding: Sharding = "none"
    checkpointing: bool = False
    """Activation checkpointing: every layer's forward pass is computed again in the backward pass."""
    tokens: int | None = None
    """Tokens at once; None takes what the memory allows, as a run does."""

    def is_available(self, work: Workload) -> bool:
        """Whether a run can have it; what it cannot have is computed for comparison only."""
        return self.sharding == "none" or (work.trains and work.can_shard)

    def shards(self, cluster: Cluster) -> int:
        """Ranks that hold one copy of the weights together."""
        return {"none": 1, "full": cluster.count, "hybrid": cluster.in_node}[self.sharding]


@dataclass(frozen=True)
class Memory:
    """Bytes of one rank by part. `peak` is the largest sum of the parts that exist together."""

    weights: float = 0.0
    gradients: float = 0.0
    moments: float = 0.0
    reference: float = 0.0
    critic: float = 0.0
    """Weights, gradients and moments of a critic network."""
    rewards: float = 0.0
    copies: float = 0.0
    """Weights in the precision or layout of the arithmetic, and gathered layers of a sharded model."""
    activations: float = 0.0
    logits: float = 0.0
    kv_cache: float = 0.0
    decoding: float = 0.0
    """Weights that decoding reads, beside those of training: copies, and all weights of a sharded model."""
    runtime: float = 0.0
    tokens: int = 0
    """Tokens of one forward pass."""
    rows: int = 0
    """Completions that are sampled at the same time, at most."""

    @property
    def held(self) -> float:
        """Bytes that are there in every phase."""
        return self.weights + self.moments + self.reference + self.critic + self.rewards + self.runtime

    @property
    def updating(self) -> float:
        """Bytes of the update."""
        return self.held + self.gradients + self.copies + self.activations + self.logits

    @property
    def sampling(self) -> float:
        """Bytes of the generation of completions."""
        return self.held + self.decoding + self.kv_cache

    @property
    def peak(self) -> float:
        """Bytes at most."""
        return max(self.updating, self.sampling)


def memory(work: Workload, cluster: Cluster, setting: PlanSetting, *, serves: bool = True) -> Memory:
    """The memory of one rank. `serves` says whether the ranks that train also generate the completions."""
    shards, arithmetic = setting.shards(cluster), 2 if work.half else 4
    model, stored = work.model, 4 if work.trains else arithmetic
    critic = 16 * work.critic.parameters if work.critic else 0
    teacher = work.teacher.parameters if work.teacher else 0
    fixed = Memory(
        weights=stored * model.parameters / shards,
        gradients=4 * work.trainable / shards,
        moments=8 * work.trainable / shards,
        reference=(4 * model.parameters * (work.has_reference and not work.lora) + arithmetic * teacher)
        / shards,
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
            decoding = work.sampling.copies * model.parameters + gathered
        rows = rows_at_once(
            cluster.device.memory - fixed.held - decoding,
            layers=model.layers,
            hidden=model.hidden,
            limit=work.sampling.limit,
            itemsize=arithmetic,
        )
    return replace(
        fixed,
        activations=activations,
        logits=logits,
        kv_cache=_kv_cache(work, share, rows) if serves else 0.0,
        decoding=decoding,
        tokens=tokens,
        rows=rows,
    )


def saving(work: Workload) -> float:
    """Bytes in the memory of the first rank's CPU while a checkpoint of a sharded run is written: the gathered
    weights. Moments are written by every rank."""
    critic = work.critic.parameters if work.critic else 0
    return 4.0 * (work.model.parameters + critic)


def pass_tokens(share: BatchShape, tokens: int, minibatches: float) -> float:
    """Tokens of the largest forward pass of a rank: whole prompts with their completions, as many as fit."""
    one = share.tokens / share.prompts
    whole = max(tokens // one * one, min(float(tokens), one))
    return min(whole, max(share.tokens / minibatches, share.tokens / share.rows))


def recorded_tokens(work: Workload, share: BatchShape) -> float:
    """Tokens of a rank's share whose activations the CPU engine keeps of sampling for the update: those of the first
    minibatch of one epoch, if those of all would fit at the longest, and if minibatches are not dealt to ranks."""
    if not work.keeps or work.sampling is None or work.epochs > 1 or work.minibatches > share.prompts:
        return 0.0
    if work.minibatches > 1 and share.prompts < work.batch.prompts:
        return 0.0
    longest = BatchShape(share.prompts, share.samples, share.prompt, work.sampling.limit)
    if work.model.recorded(half=work.half) * longest.tokens > RECORDED * 16 * work.model.parameters:
        return 0.0
    return min(1.0, math.ceil(share.prompts / work.minibatches) / share.prompts) * share.tokens


def _copies(work: Workload, shards: int) -> float:
    """The copy in bf16 that autocast keeps, of the layer or head at work where the engine casts one at a time; of a
    sharded model two layers in the precision of the arithmetic, and what lies outside the layers in float32, with such
    a copy. A teacher's head is there beside the policy's, its layers are not."""
    model, half = work.model, work.half
    if shards == 1:
        cast = max(model.largest_layer, model.head) if work.casts_layers else model.parameters
        return 2.0 * cast * (half and work.trains)
    models = [model, *([work.teacher] if work.teacher else [])]
    outside = sum(max(0, one.parameters - one.layers * one.largest_layer) for one in models)
    layer = max(one.largest_layer for one in models)
    return (2.0 if half else 4.0) * 2 * layer + (6.0 if half else 4.0) * outside


def _automatic(work: Workload, fixed: Memory, cluster: Cluster, setting: PlanSetting) -> int:
    """Tokens at once as a run chooses them."""
    model, shards = work.model, setting.shards(cluster)
    others = work.critic.parameters if work.critic else 0
    sizes = (model.layers, model.hidden, model.feed_forward)
    each = bytes_per_token(*sizes, half=work.half, checkpointing=setting.checkpointing)
    return tokens_at_once(
        cluster.device.memory - fixed.held + fixed.moments + 0.75 * fixed.critic,
        weights=(model.parameters + others) // shards,
        trainable=(work.trainable + others) // shards,
        vocabulary=model.vocabulary,
        each=each,
        half=work.half,
        on_cpu=not cluster.device.is_gpu,
        group=_group(work),
    )


def _group(work: Workload) -> int:
    """Tokens of a pass through a prompt and its completions at their limit; 0 where a run samples none, or where they
    do not share it."""
    if work.sampling is None or not work.batch.shared:
        return 0
    return group_tokens(max(1, round(work.batch.prompt)), round(work.batch.samples), work.sampling.limit)


def _activations(
    work: Workload, share: BatchShape, together: float, setting: PlanSetting
) -> tuple[float, float]:
    """Bytes of the activations of one pass, and of its logits: those that are kept or a chunk, and the gradient of a
    chunk."""
    model = work.model
    scored = 0.0 if work.is_scalar else together * share.scored / share.tokens
    all_logits = scored * model.vocabulary
    chunk = min(CHUNK_ELEMENTS, all_logits)
    if not work.trains:
        return together * model.kept(half=work.half) / model.layers, 4 * chunk
    logits = 4 * (chunk + (all_logits if all_logits <= KEPT_ELEMENTS else chunk))
    recorded, activations = recorded_tokens(work, share), 0.0
    if recorded < share.tokens:
        activations = together * model.kept(half=work.half, checkpointing=setting.checkpointing)
    return max(model.recorded(half=work.half) * recorded, activations), logits


def _kv_cache(work: Workload, share: BatchShape, rows: int) -> float:
    """Keys and values of the rows that are sampled together, at full length; those of a shared prompt once."""
    if work.sampling is None:
        return 0.0
    prompts = share.prompts if share.shared else share.rows
    positions = prompts * share.prompt + share.rows * work.sampling.limit
    together = min(1.0, rows / share.rows)
    return together * positions * work.model.key_values * (2.0 if work.half else 4.0)
