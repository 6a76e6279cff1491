"""Training jobs that ranks run in tests. Each is called on every rank, and returns plain values."""

import errno
import os
import signal
from importlib import import_module

import torch
from tiny_training import CPU, PAD, World, learner_of, policy_of, some_rows
from torch.distributed.checkpoint import HuggingFaceStorageWriter
from transformers.models.llama.modeling_llama import LlamaMLP

import tutelage
from tutelage.algorithms.override import override
from tutelage.algorithms.registry import RECIPES
from tutelage.base.errors import TutelageError
from tutelage.commands.distill.run import refer_to_teacher
from tutelage.core.rows import collate
from tutelage.engines.network import layers
from tutelage.engines.ranks.passes import Passes
from tutelage.engines.ranks.processes import join
from tutelage.engines.ranks.sharded_tensors import save_shards, shard_of, whole
from tutelage.models.policy import Policy
from tutelage.models.sharding import shard_
from tutelage.rollout.distributed import dealt_generator, dealt_reward
from tutelage.train.learner import SHARDS


def recipe_job(folder, name, changes, reward, steps, sharded=False, lora=0):
    """Metrics of every step, tokens of the responses, and the final weights, of a recipe on a tiny policy."""
    ranks = join()
    policy = policy_of(folder, lora)
    if sharded:
        shard_(policy, Passes(ranks), CPU, with_reference=True)
    policy.end_ids = tuple(range(100, 200))  # so that some answers end within the limit
    recipe = override(RECIPES[name], changes)
    world = World(policy, recipe, steps=steps, reward=dealt_reward(reward, ranks), tokens=6, batch=7)
    world.generator = dealt_generator(world.generator, ranks, policy.device, policy.gathered)
    world.settings.budget.ranks, world.settings.budget._passes = ranks, policy.passes
    world.learner.ranks, world.learner._norm = ranks, policy.total_norm
    metrics, tokens = [], []
    for step in world.train():
        metrics.append(step.metrics)
        tokens.append(step.sample.response.where(step.sample.mask, -1))
    return metrics, tokens, [whole(p.detach()).clone() for p in world.learner.parameters]


def run(command, settings):
    """A workflow by the name of its command, with settings as keyword arguments."""
    getattr(tutelage, command)(**settings)


def run_until(command, settings, steps):
    """A training workflow that is left after so many steps, as if the ranks were killed; with a checkpoint of each."""
    module = import_module(f"tutelage.commands.{command}.run")
    with getattr(module, f"prepare_{command}")(**settings) as training:
        for step in training:
            if step.index == steps:
                return


def run_short_of_memory(settings):
    """`sft` where the processor of rank 1 has no memory for more than two rows at once."""
    whole = Policy.scores

    def scores(policy, rows, **more):
        if join().rank == 1 and len(rows) > 2:
            raise RuntimeError("not enough memory: you tried to allocate too much")
        return whole(policy, rows, **more)

    Policy.scores = scores
    try:
        run("sft", settings)
    finally:
        Policy.scores = whole


def refused_on_rank_1(completions):
    """A reward that has no score on rank 1."""
    if join().rank == 1:
        raise TutelageError("there is no score for these answers")
    return [0.0 for _ in completions]


def kill_while_saving(settings, at):
    """`sft` whose rank 1 is killed when it is to write its shards for checkpoint number `at`."""
    whole, calls = HuggingFaceStorageWriter.write_data, []

    def write_data(writer, plan, planner):
        calls.append(plan)
        if join().rank == 1 and len(calls) == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return whole(writer, plan, planner)

    HuggingFaceStorageWriter.write_data = write_data
    run("sft", settings)


def run_with_a_full_disk(settings):
    """`sft` where rank 1 cannot write its shards."""
    whole = HuggingFaceStorageWriter.write_data

    def write_data(writer, plan, planner):
        if join().rank == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return whole(writer, plan, planner)

    HuggingFaceStorageWriter.write_data = write_data
    try:
        run("sft", settings)
    finally:
        HuggingFaceStorageWriter.write_data = whole


def saving_job(folder, saved):
    """Weights and moments of a learner in shards that writes them into a folder, whole."""
    learner = _learner_in_shards(folder, seed=1)
    if join().is_first:
        torch.save({"learner": learner.state()}, saved / "state.pt")
    save_shards(learner.shards(), saved / SHARDS, join())
    return _whole_of(learner)


def loading_job(folder, saved):
    """Weights and moments of a learner in shards that goes on from a folder, whole."""
    learner = _learner_in_shards(folder, seed=2)
    learner.load(saved / "state.pt")
    return _whole_of(learner)


def _learner_in_shards(folder, seed):
    """A learner in shards after a step that depends on the seed."""
    policy = policy_of(folder, engine="plain")
    shard_(policy, Passes(join()), CPU)
    learner = learner_of({"policy": policy.parameters()}, steps=2)
    learner._norm, learner.ranks = policy.total_norm, join()
    policy.backward(policy.scores(collate(some_rows(3, seed=seed), PAD, CPU)).logp.sum())
    learner.update()
    return learner


def _whole_of(learner):
    """Weights, then moments."""
    moments = [value for each in learner.optimiser.state.values() for value in each.values()]
    return [whole(tensor.detach()).clone() for tensor in (*learner.parameters, *moments)]


def short_of_memory_on_rank_1(completions):
    """A reward after which a layer of rank 1 has no memory for a pass with gradients."""
    if join().rank == 1:
        whole = LlamaMLP.forward

        def forward(layer, states):
            if states.requires_grad:
                raise RuntimeError("not enough memory: you tried to allocate too much")
            return whole(layer, states)

        LlamaMLP.forward = forward
    return [float(number) for number in range(len(completions))]


def teacher_job(settings):
    """Numbers that this rank holds of a teacher beside a policy in shards, and all numbers of the teacher."""
    settings = tutelage.DistillSettings(**settings)
    passes = Passes(join())
    policy = policy_of(settings.model.path, engine="plain")
    shard_(policy, passes, CPU)
    refer_to_teacher(settings, policy, whole=True)
    weights = list(policy._reference.model.parameters())
    return sum(shard_of(p).numel() for p in weights), sum(p.numel() for p in weights)


def half_precision_job(folder, sharded):
    """Of a pass in bf16: bytes of the weights of layers that wait for the backward pass, log-probabilities, and the
    norm of the gradient."""
    policy = policy_of(folder, engine="plain", dtype="bf16")
    if sharded:
        shard_(policy, Passes(join()), CPU)
    shapes = {p.shape for layer in layers(policy.model) for p in layer.parameters() if p.dim() == 2}
    shapes |= {shape[::-1] for shape in shapes}
    saved = []

    def keep(tensor):
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logp = policy.scores(collate(some_rows(3), PAD, CPU)).logp
    storages = {t.untyped_storage()._cdata: t.untyped_storage() for t in saved if t.shape in shapes}
    waiting = sum(storage.nbytes() for storage in storages.values())
    policy.backward(logp.sum())
    return waiting, logp.detach(), policy.total_norm(p.grad for p in policy.parameters())


def memory_job(folder, sharded):
    """Numbers in this rank's memory for weights, gradients and moments, after a step of AdamW."""
    policy = policy_of(folder, engine="plain")
    if sharded:
        shard_(policy, Passes(join()), CPU)
    learner = learner_of({"policy": policy.parameters()}, steps=1)
    learner._norm = policy.total_norm
    policy.backward(policy.scores(collate(some_rows(3), PAD, CPU)).logp.sum())
    held = [shard_of(p.grad) for p in learner.parameters]
    learner.update()
    held += [shard_of(p) for p in learner.parameters]
    held += [shard_of(each[name]) for each in learner.optimiser.state.values() for name in ("exp_avg", "exp_avg_sq")]
    seen = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in held}
    return sum(seen.values())


def run_with_nan(command, settings, rank, step):
    """A run whose loss is no number in one step on one rank. The kind and the words of the error of each."""
    from tutelage.train.supervised import language

    ranks, inner = join(), language.imitate

    def imitate(policy, rows):
        loss, metrics = inner(policy, rows)
        seen.append(rows)
        return (loss * float("nan") if ranks.rank == rank and len(seen) == step else loss), metrics

    seen, language.imitate = [], imitate
    try:
        run(command, settings)
    except TutelageError as error:
        return type(error).__name__, str(error)
    finally:
        language.imitate = inner
    return "", ""
