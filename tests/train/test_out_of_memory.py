"""A step that runs out of memory ends, bit for bit, with the weights of a smaller budget."""

import gc
from dataclasses import replace

import pytest
import torch
from tiers import every_value, long_except
from tiny_training import (
    CPU,
    PAD,
    World,
    assert_close,
    assert_identical,
    learner_of,
    letters,
    policy_of,
    recipe_of,
    snapshot,
    some_pairs,
    some_rows,
)

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.core.rows import collate
from tutelage.data.chat_tokens import end_token_ids
from tutelage.data.records import Prompt
from tutelage.models.backbone import load_backbone
from tutelage.models.budget import Budget
from tutelage.models.heads import new_reward_model
from tutelage.models.policy import Policy, response_logp
from tutelage.rewards.model_reward import ModelReward
from tutelage.rewards.reward import Completions
from tutelage.train.rl.batch_scores import score_rows
from tutelage.train.supervised.batches import Order
from tutelage.train.supervised.fit import WeightedRows, fit, imitate
from tutelage.train.supervised.language import PretrainingMix, mean_loss
from tutelage.train.supervised.preference_job import completion_logps
from tutelage.train.supervised.reward_model import row_scores


@pytest.fixture(scope="module", autouse=True)
def _little_to_collect():
    """Whenever memory runs out garbage is collected, of which there is none in what earlier tests left."""
    gc.freeze()


class Shortage:
    """A forward pass of the policy fails the n-th time it is asked for more than `room` tokens, or every time.

    With `learning` only those are counted of which a gradient is wanted.
    """

    def __init__(self, monkeypatch, room, when=None, *, learning=False):
        self.room, self.when, self.learning, self.asked, self.failed = room, when, learning, 0, 0
        for name in ("states", "scores", "logits"):
            monkeypatch.setattr(Policy, name, self.short_of_memory(getattr(Policy, name)))

    def short_of_memory(self, forward):
        def failing(policy, rows, **settings):
            out = forward(policy, rows, **settings)
            recorded = getattr(out, "logp", out).requires_grad
            if int(rows.lengths().sum()) > self.room and (recorded or not self.learning):
                self.asked += 1
                if self.when is None or self.asked == self.when:
                    self.failed += 1
                    raise torch.OutOfMemoryError("CUDA out of memory.")
            return out

        return failing


def fine_tuned(folder, budget, rank=0, steps=3, batch=6):
    """A fine-tuned model; with dropout before the adapters where there are any, so that the random state matters."""
    lora = config.Lora(rank=rank, dropout=0.3 if rank else 0.0)
    policy = Policy(load_backbone(config.Model(folder, device="cpu"), lora))
    learner = learner_of({"policy": policy.parameters()}, steps)
    order = Order(some_rows(18), batch, seed=0)

    def rows(step):
        return WeightedRows.of(collate(order(step), PAD, CPU))

    steps = fit(learner, policy, rows, lambda part: imitate(policy, part), budget=budget, seed=0)
    told = [{k: v for k, v in step.metrics.items() if k != "tokens_per_second"} for step in steps]
    return snapshot(policy.parameters()), told


@pytest.mark.parametrize(("rank", "when"), every_value([0, 2], [1, 2, 3]))
def test_fine_tuning_goes_on_as_if_the_budget_had_been_half(tiny_model, monkeypatch, rank, when):
    folder = tiny_model("llama")
    with monkeypatch.context() as patch:
        shortage = Shortage(patch, room=0, when=when)
        got, told = fine_tuned(folder, 64, rank, steps=1, batch=18)
    assert shortage.failed == 1
    usual, expected = fine_tuned(folder, 32, rank, steps=1, batch=18)
    assert_identical(got, usual)
    assert told == expected
    assert told[0]["tokens_at_once"] == 32


def test_the_steps_after_it_keep_the_smaller_budget(tiny_model, monkeypatch):
    monkeypatch.setenv("TUTELAGE_ENGINE", "cpu")  # the room is counted in tokens without padding
    folder = tiny_model("llama")
    with monkeypatch.context() as patch:
        shortage = Shortage(patch, room=40)
        got, told = fine_tuned(folder, 160)
    usual, expected = fine_tuned(folder, 40)
    assert_identical(got, usual)
    assert told == expected
    assert shortage.failed == 1, "in the first step, and never again"


def improved(folder, budget, changes, name="ppo", steps=2):
    policy = policy_of(folder)
    recipe = recipe_of(*changes, name=name)
    mix = PretrainingMix(policy, some_rows(9), 6, recipe.ptx, 0) if recipe.ptx else None
    world = World(policy, recipe, steps=steps, lr=1e-2, budget=budget, reward=letters("e"), mix=mix)
    told = [{k: v for k, v in step.metrics.items() if k != "tokens_per_second"} for step in world.train()]
    return world.everything(), told


RUNS = {
    "ppo": ("ppo", ("update.epochs=2", "update.minibatches=2")),
    "text": ("ppo", ("update.epochs=1", "update.minibatches=1", "ptx=0.5")),
    "bounded": ("ppo", ("update.epochs=3", "update.minibatches=1", "update.max_kl=1e-4")),
    "group": ("grpo", ("samples=4",)),
    "natural": ("trpo", ("update.cg=3",)),
}


@pytest.mark.parametrize("kind", long_except(["text", "bounded", "natural"], RUNS))
def test_improve_goes_on_as_if_the_budget_had_been_smaller(tiny_model, monkeypatch, kind):
    folder = tiny_model("llama")
    name, changes = RUNS[kind]
    with monkeypatch.context() as patch:
        shortage = Shortage(patch, room=50)
        got, told = improved(folder, 200, changes, name)
    assert shortage.failed
    lowered = int(told[0]["tokens_at_once"])
    assert lowered < 200
    usual, expected = improved(folder, lowered, changes, name)
    assert_identical(got, usual)
    assert told == expected


STEPS = {"ppo": ("update.epochs=1", "update.minibatches=1"), "trpo": ("update.cg=3",)}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_of_the_policy_is_repeated_from_its_start(tiny_model, monkeypatch, name):
    """One minibatch in several micro-batches and a text beside it. Whichever of them fails, the result is that of the
    first having failed, when no other had left a gradient."""
    folder = tiny_model("llama")
    changes = (*STEPS[name], "ptx=0.5", "critic=none", "advantage=RewardToGo")

    def failing(when):
        with monkeypatch.context() as patch:
            shortage = Shortage(patch, room=0, when=when, learning=True)
            found = improved(folder, 64, changes, name, steps=1)
        assert shortage.failed == 1
        return found

    first, told_first = failing(1)
    for when in (2, 5):
        got, told = failing(when)
        assert_identical(got, first)
        assert told == told_first
    # Before the step its answers were judged in parts of 64: other products, other last bits.
    usual, _ = improved(folder, 32, changes, name, steps=1)
    assert_close(first, usual, atol=1e-5 if name == "ppo" else 2e-4)


def reading(policy, budget, rows):
    batch = collate(rows, PAD, CPU)
    return [
        score_rows(policy, batch, temperature=0.7, budget=Budget.of(budget)).logp,
        response_logp(policy, batch, budget=budget),
        completion_logps(policy, rows, budget),
        torch.tensor(mean_loss(policy, rows, budget)),
    ]


def test_scoring_is_repeated_in_smaller_parts(tiny_model, monkeypatch):
    policy, rows = policy_of(tiny_model("gpt2")), some_rows(12)
    expected = reading(policy, 30, rows)
    with monkeypatch.context() as patch:
        shortage = Shortage(patch, room=34)
        got = reading(policy, Budget(120), rows)
    assert shortage.failed == 2, "the passes after the first one know"
    assert_identical(got, expected)


def test_rewards_are_scored_in_smaller_parts(tiny_model, monkeypatch):
    model = new_reward_model(config.Model(tiny_model("gpt2"), device="cpu"), config.Lora(), seed=0)
    end = end_token_ids(model.tokenizer)[0]
    rows = [replace(one.chosen, response=(*one.chosen.response[:-1], end)) for one in some_pairs(12)]
    expected, original = row_scores(model, rows, 30), type(model).scores

    def scores(model, batch):
        if int(batch.lengths().sum()) > 34:
            raise RuntimeError("[enforce fail at alloc_cpu.cpp:1] . DefaultCPUAllocator: can't allocate memory")
        return original(model, batch)

    monkeypatch.setattr(type(model), "scores", scores)
    assert torch.equal(row_scores(model, rows, Budget(120)), expected)
    reward = ModelReward(model, same_tokens=True, budget=Budget(120))
    asked = Completions([Prompt("p", ())] * 12, [""] * 12, collate(rows, PAD, CPU))
    torch.testing.assert_close(reward(asked), expected, rtol=0, atol=1e-5)
    assert reward.budget.tokens == 30


def test_an_example_that_never_fits_ends_the_run_with_an_error(tiny_model, monkeypatch):
    Shortage(monkeypatch, room=0)
    with pytest.raises(TutelageError, match="single example"):
        fine_tuned(tiny_model("llama"), 100)
