"""Invariances of the loops: the order of rows, padding, the size of micro-batches."""

import pytest
import torch
from simple_goal import low_tokens
from tiers import long_except
from tiny_training import World, assert_close, learner_of, policy_of, recipe_of, snapshot, some_pairs, some_rows

from tutelage.base import config
from tutelage.core.preferences import PREFERENCE_LOSSES
from tutelage.core.rows import EncodedRow, collate
from tutelage.models.heads import new_reward_model
from tutelage.train.supervised.batches import EncodedPair, collate_pairs
from tutelage.train.supervised.fit import WeightedPairs, WeightedRows, fit, imitate
from tutelage.train.supervised.preference_job import paired_job, refer
from tutelage.train.supervised.reward_model import prefer

ONE_BATCH = ("update.minibatches=1",)  # minibatches are drawn, so that with several the order decides who meets whom


def improved(folder, recipe, *, turn, budget):
    policy = policy_of(folder)
    policy.end_ids = tuple(range(100, 200))
    world = World(policy, recipe, steps=2, lr=1e-3, reward=low_tokens, tokens=6, budget=budget)
    if turn:
        order = world.order
        world.order = lambda step: order(step)[::-1]
    for _ in world.train():
        pass
    return world.everything()


@pytest.mark.parametrize(
    "name",
    long_except(
        ["grpo", "ppo", "trpo"], ["ppo", "grpo", "rloo", "dapo", "minimum_variance", "off_policy", "trpo", "a2c"]
    ),
)
def test_neither_the_order_of_the_prompts_nor_the_micro_batches_matter_to_improve(tiny_model, name):
    recipe = recipe_of(*(("update.cg=4",) if name == "trpo" else ONE_BATCH), name=name)
    folder = tiny_model("llama")
    usual = improved(folder, recipe, turn=False, budget=100_000)
    assert_close(improved(folder, recipe, turn=True, budget=37), usual, atol=2e-4)


def supervised(folder, kind, order, budget, padding):
    """Three steps on one batch in some order; `padding` adds a far longer item of weight 0."""
    long = EncodedRow(tuple(range(20, 60)), tuple(range(60, 90)))
    if kind == "reward":
        model = new_reward_model(config.Model(folder, device="cpu"), config.Lora(), seed=3)
    else:
        model = policy_of(folder)
    if kind == "sft":
        rows = [some_rows(6)[i] for i in order] + ([long] if padding else [])

        def batch(step):
            whole = collate(rows, 1, model.device)
            if padding:  # counted among the rows, so that it is there and says nothing
                whole.mask[-1] = False
            return WeightedRows.of(whole)

        def objective(part):
            return imitate(model, part)
    else:
        nothing = EncodedPair(long, EncodedRow(long.prompt, long.response[::-1]), weightless())
        pairs = [some_pairs(6, p_chosen=0.9)[i] for i in order] + ([nothing] if padding else [])
        if kind == "reward":

            def batch(step):
                return WeightedPairs.of(collate_pairs(pairs, 1, model.device))

            def objective(part):
                return prefer(model, part)
        else:
            known = refer(model, pairs, 1000, drift=False, max_length=90)
            job = paired_job(model, PREFERENCE_LOSSES[kind], lambda step: known, 3, budget=budget)
            batch, objective = job.batch, job.objective
    learner = learner_of({"all": model.parameters()}, 3, 1e-3)
    for _ in fit(learner, model, batch, objective, budget=budget, seed=0):
        pass
    return snapshot(model.parameters())


def weightless():
    return some_pairs(1)[0].source.__class__((), "a", "b", weight=0.0)


@pytest.mark.parametrize(
    "kind", long_except(["sft", "reward", "dpo"], ["sft", "reward", "dpo", "ipo", "orpo", "simpo", "slic"])
)
def test_neither_order_nor_padding_nor_micro_batches_matter_to_fit(tiny_model, kind):
    folder = tiny_model("llama")
    usual = supervised(folder, kind, range(6), 100_000, padding=False)
    for order, budget, padding in (
        ([3, 1, 5, 0, 4, 2], 100_000, False),
        (range(6), 1, False),
        (range(6), 99_999, True),
    ):
        found = supervised(folder, kind, order, budget, padding)
        assert_close(found, usual, atol=2e-5)
    assert not torch.equal(usual[0], policy_of(folder).parameters()[0]), "something was learnt"


def test_ppo_with_one_step_and_no_clip_is_a2c_with_gae(tiny_model):
    """The law between the two, through the loop: everything but the surrogate's name is the same."""
    common = ("update.epochs=1", "critic.clip=none", "entropy=0", "critic.coef=0.5", "penalty.coef=0.05")
    ppo = recipe_of(*common, "surrogate=Clipped", name="ppo")
    a2c = recipe_of(
        "advantage=Gae", "critic.clip=none", "entropy=0", "critic.coef=0.5", "penalty.coef=0.05", name="a2c"
    )
    folder = tiny_model("llama")
    one, other = (improved(folder, recipe, turn=False, budget=1000) for recipe in (ppo, a2c))
    assert_close(one, other, atol=1e-6)
