"""The layout of models over the ranks of a run: whole on every rank, or in shards.

The ranks of a machine load a model that is sharded one after another, in the memory of the CPU. So a machine has
one whole model at a time, and a GPU never has more than one layer of it beside its shards.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from tutelage.base import config
from tutelage.base.errors import TutelageError
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
    shard: str,
    run: Run,
    model: config.Model,
    load: Callable[[config.Model], M],
    *,
    with_reference: bool = False,
) -> M:
    """The model that `load` reads, laid out over the ranks of a run as --shard says. `with_reference` takes a policy as
    it is now for its reference too.

    Raises TutelageError where one process would hold all shards, where another engine than the plain one is set, and
    where the machines of hybrid shards have no equal numbers of processes.
    """
    if shard == "none":
        loaded = load(model)
        if with_reference:
            assert isinstance(loaded, Policy)
            loaded.freeze_reference()
        return loaded
    if run.ranks.size == 1:
        raise TutelageError(
            f"--shard {shard} divides a model among several processes, and this is one: add --processes N, or "
            "leave --shard out."
        )
    if model.engine == "cpu":
        raise TutelageError(
            f"--shard {shard} is computed by the plain engine alone: leave --model.engine cpu out."
        )
    in_shards = _on_each_machine(run.ranks) if shard == "hybrid" else run.ranks.size
    return _in_shards(Passes(run.ranks, in_shards), model, load, with_reference=with_reference)


class PolicyTraining(Protocol):
    """Settings of a run that trains a policy."""

    @property
    def shard(self) -> str: ...
    @property
    def model(self) -> config.Model: ...
    @property
    def lora(self) -> config.Lora: ...
    @property
    def seed(self) -> int: ...
    @property
    def activation_checkpointing(self) -> bool: ...


def trained_policy(settings: PolicyTraining, run: Run, *, with_reference: bool = False) -> Policy:
    """The policy that a run begins with, ready to be trained (see `lay_out`)."""

    def load(model: config.Model) -> Policy:
        checkpointing = settings.activation_checkpointing
        return Policy(load_backbone(model, settings.lora, seed=settings.seed, checkpointing=checkpointing))

    return lay_out(settings.shard, run, settings.model, load, with_reference=with_reference)


def lay_out_beside(policy: Policy, model: config.Model, load: Callable[[config.Model], M]) -> M:
    """Another model of a run, laid out as its policy is."""
    return load(model) if policy.passes is None else _in_shards(policy.passes, model, load)


def reward_beside(policy: Policy, names: Sequence[str], model: config.Model) -> Reward:
    """The reward of these names (see `make_reward`), with its reward models laid out as the policy is."""
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
    mesh_of(device.type, passes.ranks.size, passes.in_shards)  # all ranks together, before each has its turn

    def own() -> M:
        loaded = load(_staged(model))
        shard_(loaded, passes, device, with_reference=with_reference)
        return loaded

    return _in_turn(passes.ranks, own)


def _staged(model: config.Model) -> config.Model:
    """The settings by which a model is read into the memory of the CPU, as transformers computes it."""
    return replace(model, device="cpu", engine="plain")


def _in_turn(ranks: Ranks, load: Callable[[], T]) -> T:
    """What `load` returns, which the ranks of a machine call one after another. Its error is raised on every rank."""
    found: list[T] = []

    def take(turn: int) -> None:
        if turn == rank_on_this_machine():
            found.append(load())

    for turn in range(int(ranks.largest(ranks_on_this_machine()))):
        ranks.together(partial(take, turn))
    return found[0]


def _on_each_machine(ranks: Ranks) -> int:
    """The number of ranks on each machine. Raises TutelageError where hybrid shards cannot lie on them."""
    counts = ranks.gather(ranks_on_this_machine())
    if len(set(counts)) > 1:
        raise TutelageError(
            f"--shard hybrid needs as many processes on every machine, and there are {min(counts)} on one and "
            f"{max(counts)} on another."
        )
    if counts[0] == ranks.size:
        raise TutelageError(
            "--shard hybrid keeps a copy of the model on every machine, and this is one machine: use --shard full."
        )
    if counts[0] == 1:
        raise TutelageError(
            "--shard hybrid divides a model among the processes of a machine, and there is one on each: use --shard "
            "full, or leave --shard out."
        )
    return counts[0]
