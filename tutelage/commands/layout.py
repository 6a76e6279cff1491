"""Layout of models over the ranks of a run: whole on every rank, or sharded.

The ranks of a machine load a sharded model one after another in CPU memory, so that a machine holds one whole model at
a time, and a GPU at most one whole layer in addition to its shards.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch
from torch.distributed.fsdp import FSDPModule

from tutelage.base import config
from tutelage.base.config.bases import WeightSettings
from tutelage.base.errors import TutelageError
from tutelage.data.tokenizer import same_vocabulary
from tutelage.engines.ranks.passes import Passes
from tutelage.engines.ranks.processes import rank_on_this_machine, ranks_on_this_machine
from tutelage.engines.ranks.ranks import Ranks
from tutelage.engines.ranks.sharded_tensors import mesh_of
from tutelage.models.backbone import load_backbone, pick_device
from tutelage.models.heads import ScalarModel
from tutelage.models.policy import Policy
from tutelage.models.sharding import shard_
from tutelage.rewards.factory import make_reward
from tutelage.rewards.model_reward import ModelReward
from tutelage.rewards.reward import Reward, made_of
from tutelage.train.run.folder import Run

M = TypeVar("M", bound=Policy | ScalarModel)
T = TypeVar("T")


def lay_out(
    shard: str, run: Run, model: config.Model, load: Callable[[config.Model], M], *, with_reference: bool = False
) -> M:
    """Load a model with `load` and lay it out over the ranks of a run as --shard sets.

    `with_reference` keeps the initial policy as its reference too. Raises TutelageError if one process would hold all
    shards, if an engine other than plain is set, if this PyTorch cannot reduce gradients of unused weights, or if the
    machines of hybrid shards have different numbers of processes.
    """
    if shard == "none":
        loaded = load(model)
        if with_reference:
            assert isinstance(loaded, Policy)
            loaded.freeze_reference()
        return loaded
    if run.ranks.size == 1:
        raise TutelageError(
            f"--shard {shard} divides a model among several processes, but there is one: add --processes N, or "
            "omit --shard."
        )
    if model.engine not in ("auto", "plain"):
        raise TutelageError(f"--shard {shard} needs the plain engine: omit --model.engine {model.engine}.")
    if not hasattr(FSDPModule, "set_reduce_scatter_unused_params"):
        raise TutelageError(
            f"--shard {shard} needs PyTorch 2.13: {torch.__version__} does not reduce the gradients of weights that a "
            "rank leaves unused. Install it, or omit --shard: each rank then holds the whole model."
        )
    in_shards = _on_each_machine(run.ranks) if shard == "hybrid" else run.ranks.size
    return _in_shards(Passes(run.ranks, in_shards), model, load, with_reference=with_reference)


def trained_policy(settings: WeightSettings, run: Run, *, with_reference: bool = False) -> Policy:
    """Load the initial policy of a run for training (see `lay_out`)."""

    def load(model: config.Model) -> Policy:
        checkpointing = settings.activation_checkpointing
        return Policy(load_backbone(model, settings.lora, seed=settings.seed, checkpointing=checkpointing))

    return lay_out(settings.shard, run, settings.model, load, with_reference=with_reference)


def lay_out_beside(policy: Policy, model: config.Model, load: Callable[[config.Model], M]) -> M:
    """Load another model of a run, laid out as its policy is."""
    return load(model) if policy.passes is None else _in_shards(policy.passes, model, load)


def policy_beside(policy: Policy, model: config.Model, name: str, advice: str = "") -> Policy:
    """Load another policy of a run, laid out as its policy is. Raises TutelageError, in which it has this name, if the
    vocabularies differ."""
    other = lay_out_beside(policy, model, lambda own: Policy(load_backbone(own)))
    if not same_vocabulary(policy.tokenizer, other.tokenizer):
        raise TutelageError(
            f"The vocabulary of the {name} {model.path!r} differs from that of --model, and probabilities of the same "
            f"tokens are compared. Give a {name} of the same model family{advice}."
        )
    return other


def reward_beside(policy: Policy, names: Sequence[str], model: config.Model) -> Reward:
    """Load the reward with these names (see `make_reward`), its reward models laid out as the policy is."""
    passes = policy.passes
    if passes is None:
        return make_reward(names, policy, model)
    device = pick_device(model.device)

    def load() -> Reward:
        reward = make_reward(names, policy, _staged(model))
        for part in made_of(reward):
            if isinstance(part, ModelReward):
                shard_(part.model, passes, device)
        return reward

    return _in_turn(passes.ranks, load)


def _in_shards(
    passes: Passes, model: config.Model, load: Callable[[config.Model], M], *, with_reference: bool = False
) -> M:
    device = pick_device(model.device)
    mesh_of(
        device.type, passes.ranks.size, passes.in_shards
    )  # collective: all ranks together, before they load in turn

    def own() -> M:
        loaded = load(_staged(model))
        shard_(loaded, passes, device, with_reference=with_reference)
        return loaded

    return _in_turn(passes.ranks, own)


def _staged(model: config.Model) -> config.Model:
    """Return the settings that load a model into CPU memory with the plain engine."""
    return replace(model, device="cpu", engine="plain")


def _in_turn(ranks: Ranks, load: Callable[[], T]) -> T:
    """Call `load` on the ranks of a machine one after another, and return its result. An error is raised on every
    rank."""
    results: list[T] = []

    def take(turn: int) -> None:
        if turn == rank_on_this_machine():
            results.append(load())

    for turn in range(int(ranks.largest(ranks_on_this_machine()))):
        ranks.together(partial(take, turn))
    return results[0]


def _on_each_machine(ranks: Ranks) -> int:
    """Return the number of ranks per machine. Raises TutelageError if it does not allow hybrid shards."""
    counts = ranks.gather(ranks_on_this_machine())
    if len(set(counts)) > 1:
        raise TutelageError(
            f"--shard hybrid needs the same number of processes on every machine, but there are {min(counts)} on one "
            f"and {max(counts)} on another."
        )
    if counts[0] == ranks.size:
        raise TutelageError(
            "--shard hybrid replicates the model across machines, but there is one machine: use --shard full."
        )
    if counts[0] == 1:
        raise TutelageError(
            "--shard hybrid divides a model among the processes of a machine, but each has one: use --shard full, or "
            "omit --shard."
        )
    return counts[0]
