"""Requests of a recipe beside samples: greedy responses, prompts with spread, schedules, skipped rows."""

from dataclasses import replace

import pytest
import torch
from simple_goal import low_tokens, share_of_low
from tiers import long_except
from tiny_training import World, assert_close, assert_identical, policy_of, recipe_of, snapshot

from tutelage.algorithms.recipe import zero_gradient_rows
from tutelage.algorithms.recipe_state import initial_state
from tutelage.base.errors import TutelageError
from tutelage.engines.interface import PromptTokens
from tutelage.rewards.composite import WeightedReward
from tutelage.rollout.generator import SampledCompletion, assemble, prompt_tokens
from tutelage.train.rl import update
from tutelage.train.rl.rollouts import episode_metrics, greedy_completions, score_rollout

FREE = "shaping.missing_end=none"


# Greedy answers ---------------------------------------------------------------------------------------------


def test_the_greedy_answer_takes_the_likeliest_token_each_time(tiny_model):
    policy = policy_of(tiny_model("llama"))
    world = World(policy, recipe_of(name="remax"), reward=low_tokens, batch=5, tokens=6, temperature=0.7)
    answers = world.collected().answers
    greedy = greedy_completions(world.generator, answers, world.recipe, world.settings, world.reward)
    assert len(greedy) == 5
    assert greedy.ids == tuple(q.prompt.id for q in answers.prompts)
    for prompt, response, mask in zip(answers.prompts, greedy.response, greedy.mask, strict=True):
        tokens = list(prompt.tokens)
        for token in response[mask].tolist():
            assert token == int(policy.model(torch.tensor([tokens])).logits[0, -1].argmax())
            tokens.append(token)
    assert torch.equal(greedy.score, share_of_low(greedy))
    assert greedy_completions(world.generator, answers, recipe_of(), world.settings, world.reward) is None


def test_remax_measures_each_answer_against_the_greedy_one(tiny_model):
    policy = policy_of(tiny_model("llama"))
    recipe = recipe_of("penalty=none", FREE, name="remax")
    world = World(policy, recipe, steps=1, reward=low_tokens, batch=6, tokens=6)
    answers = world.collected().answers
    greedy = greedy_completions(world.generator, answers, recipe, world.settings, world.reward)
    told = next(world.train()).metrics
    lengths = answers.rollout.mask.sum(1)
    ahead = answers.score - greedy.score
    assert told["advantage/mean"] == pytest.approx(float((ahead * lengths).sum() / lengths.sum()), rel=1e-4)


# What the generator is told ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changes", "dtype", "expected"),
    [
        ("grpo", ("update.epochs=1", "update.minibatches=1"), "float32", [4, 4]),
        ("grpo", ("update.epochs=2", "update.minibatches=1"), "float32", [0, 0]),
        ("grpo", ("update.epochs=1", "update.minibatches=2"), "float32", [2, 2]),
        ("grpo", ("update.epochs=1", "update.minibatches=1"), "bf16", [0, 0]),
        ("dapo", ("update.epochs=1", "update.minibatches=1", "dynamic_sampling=1"), "float32", [0, 0]),
        ("a2c", ("critic.warmup=1",), "float32", [0, 4]),
        ("trpo", (), "float32", [0, 0]),
    ],
)
def test_rows_are_announced_to_the_engine_where_the_weights_that_wrote_them_score_them(
    tiny_model, name, changes, dtype, expected
):
    """The first scores with gradients that follow are those of exactly these rows."""
    policy = policy_of(tiny_model("llama"), dtype=dtype)
    world = World(policy, recipe_of(*changes, name=name), steps=2, reward=low_tokens, batch=4, tokens=4)
    announced, first, scored = [], [], []
    generate, scores = world.generator.generate, policy.scores

    def texts(rows):
        return [str(x[mask].tolist()) for x, mask in zip(rows.response, rows.mask, strict=True)]

    def generating(prompts, *given, **named):
        rollout = generate(prompts, *given, **named)
        announced.append(len(prompts.scored_first))
        first[:] = texts(rollout.rows(torch.tensor([name in prompts.scored_first for name in rollout.ids])))
        scored.clear()
        return rollout

    def scoring(rows, **named):
        if torch.is_grad_enabled():
            scored.extend(texts(rows))
        return scores(rows, **named)

    world.generator.generate, policy.scores = generating, scoring
    for _ in world.train():
        assert sorted(scored[: len(first)]) == sorted(first)
    assert announced == expected


# Dynamic sampling -------------------------------------------------------------------------------------------


def dull_about(*words):
    """A reward that scores all answers to prompts with these words alike."""

    def reward(completions):
        score = low_tokens(completions)
        dull = [any(word in one.messages[-1].content for word in words) for one in completions]
        return torch.where(torch.tensor(dull), 0.25, score)

    return reward


def test_prompts_without_spread_are_replaced(tiny_model):
    recipe = recipe_of("shaping.overlong=none", name="dapo")
    world = World(policy_of(tiny_model("llama")), recipe, reward=dull_about("sun", "blue"), batch=4, tokens=8)
    dull = {q.prompt.id for q in world.order.items if {"sun", "blue"} & set(q.prompt.messages[-1].content.split())}
    assert 0 < len(dull) < len(world.order.items)
    for step in range(4):
        collection = world.collected(step)
        answers, told = collection.answers, collection.metrics
        asked = [q.prompt.id for q in answers.prompts]
        assert not dull & set(asked)
        spread = answers.score.reshape(-1, 8)
        assert bool((spread.amax(1) > spread.amin(1)).all())
        assert answers.rollout.ids == tuple(name for name in asked for _ in range(8))
        assert len(answers.texts) == len(answers.rollout) == 8 * len(asked)
        assert len(asked) == 4 or told["sampling/rounds"] == recipe.dynamic_sampling
        first = [q.prompt.id for q in world.order(step)]
        assert (
            asked[: len(first)]
            == [name for name in first if name not in dull][: len(asked)]
            + asked[len([name for name in first if name not in dull]) :]
        )
        if dull & set(first):
            assert told["groups/dead"] > 0
            assert collection.tokens > int(answers.rollout.mask.sum())


def test_a_repeated_prompt_gets_other_responses(tiny_model):
    world = World(policy_of(tiny_model("llama")), recipe_of(name="dapo"), reward=dull_about("sun"), batch=8, tokens=8)
    collection = world.collected()
    answers = collection.answers
    assert collection.metrics["sampling/rounds"] > 1
    ids = [q.prompt.id for q in answers.prompts]
    again = next(name for name in ids if ids.count(name) > 1)
    one, other = (i for i, name in enumerate(ids) if name == again)
    assert answers.texts[8 * one : 8 * one + 8] != answers.texts[8 * other : 8 * other + 8]


def test_without_any_spread_the_first_rollout_is_kept_and_no_weight_moves(tiny_model):
    policy = policy_of(tiny_model("llama"))
    world = World(policy, recipe_of(FREE, "shaping.overlong=none", name="dapo"), steps=1, reward=dull_about(""))
    before = snapshot(policy.parameters())
    step = next(world.train())
    assert_identical(policy.parameters(), before)
    assert step.metrics["groups/dead"] == 1.0
    assert step.metrics["sampling/rounds"] == 3
    assert step.metrics["skipped"] == 1.0
    assert len(step.sample) == 64


def test_logged_scores_are_those_of_all_sampled_responses(tiny_model):
    world = World(policy_of(tiny_model("llama")), recipe_of(name="dapo"), steps=1, reward=dull_about("sun"), batch=8)
    collection = world.collected()
    told = collection.metrics
    assert told["score/mean"] != pytest.approx(float(collection.answers.score.mean()), rel=1e-6)
    assert next(world.train()).metrics["score/mean"] == told["score/mean"]


# Completions to which a reward does not apply ------------------------------------------------------------------


def silent_about(*words):
    """A reward that applies to no answer to prompts with these words."""

    def reward(completions):
        scores = low_tokens(completions).tolist()
        mute = [any(word in one.messages[-1].content for word in words) for one in completions]
        return [None if each else score for each, score in zip(mute, scores, strict=True)]

    return reward


@pytest.mark.parametrize("name", long_except(["grpo", "ppo"], ["grpo", "rloo", "ppo", "reinforce_pp"]))
def test_a_step_is_that_of_the_prompts_with_scores(tiny_model, name):
    """Against the same rollout without the other prompts, which no reward function sees."""
    reward = silent_about("sun", "blue")
    mute = World(policy_of(tiny_model("llama")), recipe_of(FREE, name=name), steps=2, reward=reward)
    told = [step.metrics for step in mute.train()]

    other = World(policy_of(tiny_model("llama")), recipe_of(FREE, name=name), steps=2, reward=low_tokens)
    generate, order = other.generator.generate, other.order

    def is_scored(prompt):
        return not {"sun", "blue"} & set(prompt.messages[-1].content.rstrip("?").split())

    def generating(prompts, n, *given, **named):
        rollout = generate(prompt_tokens(order(other.learner.step)), n, *given, **named)
        return rollout.rows(torch.tensor([name in prompts.ids for name in rollout.ids]))

    other.generator.generate = generating
    other.order = lambda step: [encoded for encoded in order(step) if is_scored(encoded.prompt)]
    fewer = [step.metrics for step in other.train()]
    assert told[0]["sampling/unscored"] == 8 - len(other.order(0)) > 0
    assert_close(mute.everything(), other.everything(), atol=1e-6)
    assert told[1]["score/mean"] == pytest.approx(fewer[1]["score/mean"])


def test_dynamic_sampling_replaces_prompts_without_scores(tiny_model):
    world = World(policy_of(tiny_model("llama")), recipe_of(name="dapo"), reward=silent_about("sun"), batch=4)
    for step in range(3):
        answers = world.collected(step).answers
        assert not any("sun" in encoded.prompt.messages[-1].content for encoded in answers.prompts)
        assert not answers.score.isnan().any()


def test_a_step_without_any_score_is_refused(tiny_model):
    for name in ("grpo", "dapo"):
        world = World(policy_of(tiny_model("llama")), recipe_of(FREE, name=name), reward=silent_about(""))
        with pytest.raises(TutelageError, match=r"reward silent_about\S* .*8 prompts"):
            world.collected()


def test_a_part_that_does_not_apply_is_no_part_of_the_sum(tiny_model):
    reward = WeightedReward(((1.0, low_tokens), (0.5, silent_about("sun"))))
    world = World(policy_of(tiny_model("llama")), recipe_of(FREE, name="grpo"), reward=reward)
    answers = world.collected().answers
    (name,) = set(answers.parts) - {"low_tokens"}
    low, part = answers.parts["low_tokens"], answers.parts[name]
    assert 0 < int(part.isnan().sum()) < len(part)
    assert_close(answers.score, torch.where(part.isnan(), low, low + 0.5 * part), 1e-6)
    assert answers.part_metrics()[f"score/{name}/mean"] == pytest.approx(float(part.nanmean()))


# Rows that cannot move anything -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", long_except(["dr_grpo", "gspo"], ["dr_grpo", "rloo", "gspo", "cispo", "grpo"]))
def test_leaving_out_rows_without_gradient_changes_nothing(tiny_model, name, monkeypatch):
    """Against the same update with every row in it; a KL in the loss (grpo) keeps them in."""
    changes = [FREE] + (["penalty=none"] if name == "rloo" else [])
    found, rows = [], []
    scores = update.policy_scores

    def counted(setup, part, **more):
        rows[-1] += len(part)
        return scores(setup, part, **more)

    monkeypatch.setattr(update, "policy_scores", counted)
    for leave_out in (True, False):
        if not leave_out:
            monkeypatch.setattr(update, "zero_gradient_rows", lambda recipe, rows, state: torch.zeros(len(rows)) > 0)
        rows.append(0)
        reward = dull_about("sun", "blue")
        world = World(policy_of(tiny_model("llama")), recipe_of(*changes, name=name), steps=1, reward=reward)
        told = next(world.train()).metrics
        found.append(world.everything())
        assert (told["skipped"] > 0) == (leave_out and name != "grpo")
    assert_close(found[0], found[1], atol=1e-6)
    assert (rows[0] < rows[1]) == (name != "grpo")


def test_a_critic_an_entropy_bonus_and_a_kl_in_the_loss_keep_every_row(tiny_model):
    world = World(policy_of(tiny_model("llama")), recipe_of("penalty=none", FREE, name="rloo"), reward=dull_about(""))
    scored, _ = score_rollout(world.setup(), world.collected().answers)
    batch = batch_of(scored)

    def skipped(recipe):
        return zero_gradient_rows(recipe, batch, initial_state(recipe))

    assert bool(skipped(world.recipe).all())
    for changes in (("entropy=0.01",), ("penalty=Penalty", "penalty.where=loss", "penalty.kind=k3")):
        recipe = recipe_of("penalty=none", FREE, *changes, name="rloo")
        assert not skipped(recipe).any()
    assert not skipped(recipe_of()).any()
    assert not skipped(recipe_of("surrogate=KlPenalised", "penalty=none", name="rloo")).any()


def batch_of(scored):
    from tutelage.core.batch import Batch, ScoredRollout

    known = {name: getattr(scored, name) for name in ScoredRollout.__dataclass_fields__}
    return Batch(**known, advantage=torch.zeros_like(scored.logp))


# Schedules --------------------------------------------------------------------------------------------------


def test_an_entropy_bonus_raises_the_entropy_until_its_schedule_ends(tiny_model):
    changes = ("entropy=Linear", "entropy.start=1.0", "entropy.end=0.0", "entropy.steps=3", "penalty=none", FREE)
    policy = policy_of(tiny_model("llama"))
    world = World(policy, recipe_of(*changes, name="rloo"), steps=5, lr=1e-2, reward=dull_about(""), betas=(0.0, 0.9))
    told = [step.metrics for step in world.train()]
    assert told[0]["entropy/full"] < told[1]["entropy/full"] < told[2]["entropy/full"]
    norms = [m["grad_norm"] for m in told]
    assert norms[0] > norms[1] > norms[2] > 0
    assert norms[3] == norms[4] == 0, "a bonus of 0 has no gradient"


# Rewards with parts ------------------------------------------------------------------------------------------


def share_of_ones(completions):
    return [float(one.tokens[0] % 2) for one in completions]


def test_every_part_of_a_reward_is_logged_by_its_name(tiny_model):
    """The metrics are those of the part's own scores, before its weight."""
    reward = WeightedReward(((2.0, low_tokens), (0.5, share_of_ones), (1.0, lambda answers: [3.0] * len(answers))))
    world = World(policy_of(tiny_model("llama")), recipe_of(FREE, name="grpo"), reward=reward, batch=4, tokens=6)
    answers = world.collected().answers
    names = ("low_tokens", "share_of_ones", list(answers.parts)[2])
    assert tuple(answers.parts) == names
    low, ones, constant = (answers.parts[name] for name in names)
    assert_close(answers.score, 2 * low + 0.5 * ones + constant, 1e-6)
    told = answers.part_metrics()
    assert told[f"score/{names[0]}/mean"] == pytest.approx(float(low.mean()))
    assert told[f"score/{names[1]}/std"] == pytest.approx(float(ones.std(correction=0)))
    assert told[f"score/{names[2]}/dead"] == 1.0
    groups = ones.reshape(4, -1)
    same = [len(set(group.tolist())) == 1 for group in groups]
    assert told[f"score/{names[1]}/dead"] == pytest.approx(sum(same) / 4)
    half = answers.only(torch.tensor([True, False, True, False]))
    assert torch.equal(half.parts[names[1]], groups[::2].flatten())
    assert told.items() <= next(world.train()).metrics.items()


def test_an_episode_without_a_turn_has_none():
    turns = SampledCompletion((3, 4), (-1.0, -1.0), True, "x"), SampledCompletion((), (), False, "")
    rollout = replace(assemble(PromptTokens(((1,),), ("a",)), turns, pad=0), outcome=torch.tensor([1.0, torch.nan]))
    assert episode_metrics([rollout])["turns/mean"] == 1 / 2
    assert episode_metrics([replace(rollout, turn=torch.tensor([[0, 1], [0, 0]]))])["turns/mean"] == 2 / 2
