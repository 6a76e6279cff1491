"""Episodes through the real loop: one step against an independent computation in float64, learning of turns, and the
command with an environment and with tools."""

import copy
import json
import math
import random
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import tiny
import torch
from compilers import needs_compiler
from forked import python
from tiers import long_except
from tiny_training import EpisodeWorld, gradients_of, policy_of, recipe_of

import tutelage as tt
from tutelage.algorithms.recipe import prepare
from tutelage.algorithms.recipe_state import initial_state
from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.core.batch import Rollout
from tutelage.core.rows import EncodedRow, collate
from tutelage.models.backbone import load_backbone
from tutelage.models.budget import Budget
from tutelage.models.heads import new_reward_model
from tutelage.models.policy import Policy
from tutelage.rewards.model_reward import StepReward
from tutelage.rollout.episodes import Truncation
from tutelage.rollout.tools.tool import Fault
from tutelage.train.rl.batch_scores import last_values
from tutelage.train.rl.critic import make_critic
from tutelage.train.rl.rollouts import score_rollout
from tutelage.train.rl.update import minibatch_step
from tutelage.train.run.json_lines import read_lines


async def chat(row, episode):
    """Two or three turns; each is paid by its length, and the last by its letters."""
    answer = await episode.chat()
    for number in range(1 + (len(episode.messages[0].content) % 2)):
        episode.reward(0.3 * len(answer.content))
        answer = await episode.chat({"role": "user", "content": f"And {number}?"})
    return float(sum(character in "aeiou" for character in answer.content))


def contexts_of(rollout, row):
    """(tokens, places of the sampled ones) of each context of an episode."""
    branches = rollout.branches
    for i in (branches.episode == row).nonzero().flatten().tolist():
        prompt = branches.contexts.prompt[i][branches.contexts.prompt_mask[i]].tolist()
        rest = branches.contexts.response[i][branches.contexts.mask[i]].tolist()
        places = branches.sampled[i].nonzero().flatten().tolist()
        yield [*prompt, *rest], [len(prompt) + place for place in places]


def in_double(model, rollout, head=None):
    """Log-probability of every sampled token of each episode, and its value, by transformers alone."""
    for row in range(len(rollout)):
        logp, value = [], []
        for tokens, places in contexts_of(rollout, row):
            out = model(input_ids=torch.tensor([tokens]), output_hidden_states=True)
            table = out.logits[0].log_softmax(-1)
            logp += [table[place - 1, tokens[place]] for place in places]
            if head is not None:
                value += [head(out.hidden_states[-1][0, place - 1])[0] for place in places]
        yield torch.stack(logp), torch.stack(value) if value else None


def turn_rewards(rollout, row):
    """Reward of each token of an episode: those of turns, and what the environment returned."""
    count = int(rollout.mask[row].sum())
    rewards = [0.0] * count
    for place in range(count):
        rewards[place] += float(rollout.turn_reward[row, place])
    rewards[-1] += float(rollout.outcome[row])
    return rewards


def step_of(world):
    """Gradients of the first minibatch, which has all rows, and the rollout."""
    setup, state = world.setup(), initial_state(world.recipe)
    scored, _ = score_rollout(setup, world.collected().answers)
    batch, state, _ = prepare(world.recipe, scored, state, max_length=world.settings.longest)
    kept = {}
    world.learner.update = lambda: kept.update(policy=gradients_of(world.policy)) or {}
    minibatch_step(setup, batch, state, first=True)
    return kept["policy"], scored


def assert_same_gradients(model, loss, found):
    expected = torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True, allow_unused=True)
    largest = max(float(each.abs().max()) for each in expected)
    assert largest > 0
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-3, atol=2e-5 * largest)


NO_SHAPING = "shaping.missing_end=none"


def test_a_grpo_step_on_episodes_is_that_of_float64(tiny_model):
    """−mean over episodes of the mean over their tokens of Ψ log π, Ψ the standardised return of the episode."""
    policy = policy_of(tiny_model("qwen3"))
    world = EpisodeWorld(policy, recipe_of("update.minibatches=1", NO_SHAPING, name="grpo"), chat)
    model = copy.deepcopy(policy.model).double()
    found, rollout = step_of(world)
    assert rollout.turn.max() == 2
    returns = [sum(turn_rewards(rollout, row)) for row in range(len(rollout))]
    loss = 0.0
    for row, (logp, _) in enumerate(in_double(model, rollout)):
        group = torch.tensor(returns[row // rollout.group * rollout.group :][: rollout.group], dtype=torch.float64)
        psi = (returns[row] - group.mean()) / (group.std() + 1e-4)
        loss = loss - psi * logp.mean() / len(rollout)
    assert_same_gradients(model, loss, found)


def test_a_ppo_step_on_episodes_is_that_of_float64(tiny_model):
    """GAE over the sampled tokens of all turns, whitened, and the critic's loss on the same states."""
    policy = policy_of(tiny_model("qwen3"))
    recipe = recipe_of("update.epochs=1", "advantage.lam=0.9", NO_SHAPING, name="ppo")
    world = EpisodeWorld(policy, recipe, chat)
    torch.nn.init.normal_(world.critic.head.weight, std=0.3, generator=torch.Generator().manual_seed(5))
    model, head = copy.deepcopy(policy.model).double(), copy.deepcopy(world.critic.head).double()
    found, rollout = step_of(world)
    terms, every = [], []
    for row, (logp, value) in enumerate(in_double(model, rollout, head)):
        rewards, values, later = turn_rewards(rollout, row), value.detach().tolist(), 0.0
        advantage = [0.0] * len(values)
        for t in reversed(range(len(values))):
            after = values[t + 1] if t + 1 < len(values) else 0.0
            later = rewards[t] + after - values[t] + 0.9 * later
            advantage[t] = later
        terms.append((logp, value, advantage, [a + v for a, v in zip(advantage, values, strict=True)]))
        every += advantage
    psi = torch.tensor(every, dtype=torch.float64)
    mean, spread = psi.mean(), psi.std(correction=0)
    loss, count = 0.0, len(every)
    for logp, value, advantage, target in terms:
        own = (torch.tensor(advantage, dtype=torch.float64) - mean) / spread
        loss = loss - (own * logp).sum() / count
        loss = (
            loss + recipe.critic.coef * 0.5 * ((value - torch.tensor(target, dtype=torch.float64)) ** 2).sum() / count
        )
    assert_same_gradients(model, loss, found)


def step_model(folder):
    model = new_reward_model(tt.Model(folder, device="cpu"), tt.Lora(), seed=5)
    model.separator = ""
    return model


def test_scores_of_steps_pay_turns_beside_the_environment(tiny_model):
    policy, reward = policy_of(tiny_model("qwen3")), StepReward(step_model(tiny_model("qwen3")), True, fold="min")
    world = EpisodeWorld(policy, recipe_of(NO_SHAPING, name="turn_rloo"), chat, steps=1)
    world.reward = reward
    answers = world.collected().answers
    rollout, found = answers.rollout, reward.breakdown(answers.completions)
    assert found.credit.abs().max() > 1e-3
    torch.testing.assert_close(answers.score, found.total + rollout.outcome)
    for row, said in enumerate(rollout.transcripts):
        turns = [message.content for message in said if message.role == "assistant"]
        paid = [0.3 * len(turn) for turn in turns[:-1]]
        own = rollout.turn_reward[row] - found.credit[row]
        assert float(own.sum()) == pytest.approx(sum(paid), abs=1e-5)
    (step,) = world.train()
    assert step.metrics["turns/reward"] > 0


async def second_turn(row, episode):
    """Only the second turn counts: it is better, the shorter it is."""
    await episode.chat()
    answer = await episode.chat({"role": "user", "content": "Now."})
    return 1.0 - len(answer.content) / 5


@pytest.mark.parametrize(
    ("name", "lr"), long_except([("rloo", 3e-2)], [("rloo", 3e-2), ("turn_rloo", 3e-2), ("turn_ppo", 1e-2)])
)
def test_a_policy_learns_what_only_its_second_turn_is_paid_for(tiny_model, name, lr):
    """A mean of four steps has a standard deviation of .05 or less."""
    policy = policy_of(tiny_model("qwen3"))
    world = EpisodeWorld(policy, recipe_of(NO_SHAPING, name=name), second_turn, steps=16, lr=lr)
    scores = [step.metrics["score/mean"] for step in world.train()]
    assert sum(scores[-4:]) > sum(scores[:4]) + 0.5, scores


@pytest.mark.parametrize(
    ("name", "place"),
    long_except(
        [("trpo", "network"), ("gspo", "trunk")],
        [("trpo", "network"), ("remax", "trunk"), ("dapo", "trunk"), ("gspo", "trunk"), ("a2c", "network")],
    ),
)
def test_every_kind_of_step_takes_episodes(tiny_model, name, place):
    """Before the first step policy and sampler agree on every token of every turn."""
    policy = policy_of(tiny_model("qwen3"))
    start = tt.Model(tiny_model("qwen3"), device="cpu")
    world = EpisodeWorld(policy, recipe_of(NO_SHAPING, name=name), chat, steps=1, place=place, start=start)
    before = world.everything()
    (step,) = world.train()
    assert step.metrics["turns/mean"] > 1.5
    assert step.metrics["kl/reference"] == pytest.approx(0.0, abs=1e-4)
    assert any(not torch.equal(a, b) for a, b in zip(before, world.everything(), strict=True))
    assert step.texts[0][1].count("assistant:") >= 1


# The command ----------------------------------------------------------------------------------------------------------


async def play(row, episode):
    first = await episode.chat()
    episode.reward(0.1)
    second = await episode.chat({"role": "user", "content": str(row["answer"])})
    return float(len(first.content) > len(second.content))


@pytest.fixture
def files(tmp_path):
    rows = [{"prompt": f"Say {number}.", "answer": number} for number in range(4)]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return tmp_path


def improved(tiny_model, files, out, call=tt.improve, **settings):
    return call(
        prompts=str(files / "prompts.jsonl"),
        recipe="rloo",
        out=files / out,
        batch_size=2,
        sampling={"max_new_tokens": 4, "stop": ["a", "e", "i", " ", "t"]},
        quiet=True,
        **{"model": tt.Model(tiny_model("qwen3"), device="cpu"), "steps": 4, "turns": 2, "environment": play}
        | settings,
    )


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"environment": ""}, "--environment"),
        ({"environment": "", "reward": "rule:length", "turns": 3}, "--turns"),
        (
            {"environment": "", "reward": "rule:length", "turns": 16, "environment_timeout": 1.0},
            "--environment-timeout",
        ),
        ({"environment": "", "reward": "rule:length", "turns": 16, "agent_processes": 3}, "--agent-processes"),
        ({"agent": "python"}, "--environment"),
        ({"environment": "", "agent": "python"}, "--reward"),
        ({"environment": "", "agent": "python", "tools": ["calculator"], "reward": "rule:length"}, "--tools"),
        ({"environment": "", "agent": "no-such-program", "reward": "rule:repetition"}, "no-such-program"),
        ({"turns": 0}, "turns"),
        ({"environment": "nowhere:play"}, "nowhere"),
        ({"environment": "json:JSONDecodeErrorer"}, "JSONDecodeErrorer"),
        ({"tools": ["abacus"]}, "abacus"),
        ({"tools": ["calculator", "calculator"]}, "calculator"),
        ({"tools": ["calculator"]}, "chat template"),
    ],
)
def test_settings_without_effect_and_names_of_nothing_are_refused(tiny_model, files, settings, word):
    with pytest.raises(TutelageError, match=word):
        improved(tiny_model, files, "refused", **settings)


async def unpaid(row, episode):
    await episode.chat()


def test_an_environment_that_returns_no_reward_is_named(tiny_model, files):
    with pytest.raises(TutelageError, match="environment"):
        improved(tiny_model, files, "unpaid", environment=unpaid)


def half(completions):
    return [0.5] * len(completions)


def test_rewards_of_completions_add_to_those_of_the_environment(tiny_model, files):
    improved(tiny_model, files, "alone", steps=1)
    improved(tiny_model, files, "both", steps=1, reward=half)
    one, other = (
        json.loads((files / name / "metrics.jsonl").read_text().splitlines()[0]) for name in ("alone", "both")
    )
    assert other["score/environment/mean"] == one["score/environment/mean"] == pytest.approx(one["score/mean"])
    assert other["score/mean"] == pytest.approx(one["score/mean"] + 0.5)


async def talk(row, episode):
    await episode.chat()
    await episode.chat({"role": "user", "content": "No, 1."})
    return 0.0


def lengths(completions):
    return [float(len(each.answer)) for each in completions]


def test_training_a_program_is_training_the_same_function(tiny_model, files):
    improved(tiny_model, files, "function", steps=2, environment=talk, reward=lengths)
    program = f"{sys.executable} -I {Path(__file__).parents[2] / 'rollout' / 'agent_program.py'}"
    improved(tiny_model, files, "program", steps=2, environment="", agent=program, agent_processes=1, reward=lengths)
    one, other = ((files / name / "model" / "model.safetensors").read_bytes() for name in ("function", "program"))
    assert one == other


def test_evaluation_plays_the_episodes_of_training(tiny_model, files):
    improved(tiny_model, files, "run", steps=1)
    result = tt.evaluate(
        model=tt.Model(tiny_model("qwen3"), device="cpu"),
        against=str(files / "run" / "model"),
        prompts=str(files / "prompts.jsonl"),
        environment=play,
        turns=2,
        reward={"half": half},
        sampling={"max_new_tokens": 4, "stop": ["a", "e", "i", " ", "t"], "temperature": 1.0},
        n=4,
        out=files / "evaluation",
        quiet=True,
    )
    rows = [json.loads(line) for line in (files / "evaluation" / "answers.jsonl").read_text().splitlines()]
    assert result.figures["environment_mean"] == pytest.approx(sum(row["environment_after"] for row in rows) / 16)
    assert result.figures["half_mean"] == 0.5
    assert 1 < result.figures["turns/mean"] <= 2
    assert any("user:" in row["after"] for row in rows)
    assert "environment" in result.summary["win_rate"]


async def paid_but_once(row, episode):
    with suppress(Truncation):
        await episode.chat()
    return None if row["answer"] == 0 else 1.0


def test_evaluation_leaves_out_episodes_without_a_reward(tiny_model, files):
    """As training does: no reward of theirs counts."""
    result = tt.evaluate(
        model=tt.Model(tiny_model("qwen3"), device="cpu"),
        prompts=str(files / "prompts.jsonl"),
        environment=paid_but_once,
        reward={"half": half},
        sampling={"max_new_tokens": 4},
        n=2,
        out=files / "evaluation",
        quiet=True,
    )
    assert (result.figures["half_n"], result.figures["environment_n"], result.figures["environment_mean"]) == (6, 6, 1)


@pytest.mark.parametrize("sizes", [{}, pytest.param(tiny.MIXED, marks=needs_compiler)])
def test_a_run_with_an_environment_resumes_to_the_same_bits(tiny_model, files, sizes):
    """Turn by turn on any engine, and in any order on the compiled step of the CPU engine; what is read again depends
    on when each turn comes."""
    model = tt.Model(tiny_model("qwen3", **sizes), device="cpu", engine="cpu" if sizes else "plain")
    settings = {"model": model, "checkpoints": {"every": 2}, "deterministic": not sizes}
    improved(tiny_model, files, "whole", **settings)
    with improved(tiny_model, files, "halves", call=tt.prepare_improve, **settings) as training:
        for _ in zip(range(3), training, strict=False):
            pass
    improved(tiny_model, files, "halves", **settings, resume=True)
    one, other = (
        [json.loads(line) for line in (files / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("whole", "halves")
    )
    timed = ("seconds", "tokens_per_second", "elapsed", "tokens/read", "tokens/reread", "tokens/rejected")
    for a, b in zip(one, other, strict=True):
        assert {k: v for k, v in a.items() if not k.startswith(timed)} == {
            k: v for k, v in b.items() if not k.startswith(timed)
        }
    assert max(row["turns/mean"] for row in one) > 1


def test_the_value_after_a_cut_is_that_of_the_state_after_the_last_token(tiny_model):
    policy = policy_of(tiny_model("qwen3"))
    recipe = recipe_of("critic.bootstrap=true", NO_SHAPING, name="ppo")
    world = EpisodeWorld(policy, recipe, chat)
    torch.nn.init.normal_(world.critic.head.weight, std=0.3, generator=torch.Generator().manual_seed(5))
    scored, _ = score_rollout(world.setup(), world.collected().answers)
    assert scored.truncated.any()
    assert scored.terminated.any()
    for row in range(len(scored)):
        *_, (tokens, _) = contexts_of(scored, row)
        with torch.no_grad():
            hidden = policy.model(input_ids=torch.tensor([tokens]), output_hidden_states=True).hidden_states[-1]
            after = float(world.critic.head(hidden[0, -1]))
        assert float(scored.last_value[row]) == pytest.approx(after * float(scored.truncated[row]), abs=1e-5)
    batch, _, _ = prepare(recipe, scored, initial_state(recipe), max_length=world.settings.longest)
    none, _, _ = prepare(recipe, replace(scored, last_value=None), initial_state(recipe))
    last = scored.mask.sum(1) - 1
    difference = (batch.target - none.target)[torch.arange(len(scored)), last]
    torch.testing.assert_close(difference, scored.last_value)


def test_the_value_after_a_cut_at_the_end_of_the_context_is_that_without_the_first_token(tiny_model):
    policy = Policy(load_backbone(config.Model(tiny_model("gpt2"), device="cpu", engine="plain")))
    critic = make_critic(policy, "trunk", None, seed=1)
    torch.nn.init.normal_(critic.head.weight, std=0.3, generator=torch.Generator().manual_seed(5))
    texts = [list(range(5, 5 + policy.context)), list(range(5, 40))]
    rows = collate([EncodedRow(tuple(one[:8]), tuple(one[8:])) for one in texts], 0, policy.device)
    cut = torch.ones(2, dtype=torch.bool)
    rollout = Rollout(
        prompt=rows.prompt, prompt_mask=rows.prompt_mask, response=rows.response, mask=rows.mask,
        logp=torch.zeros(rows.mask.shape), terminated=~cut, truncated=cut, group=1, ids=("a", "b"),
    )  # fmt: skip
    found = last_values(policy, critic, rollout, Budget.of(4096))
    for value, tokens in zip(found, (texts[0][1:], texts[1]), strict=True):
        with torch.no_grad():
            hidden = policy.model(input_ids=torch.tensor([tokens]), output_hidden_states=True).hidden_states[-1]
            expected = critic.head(hidden[0, -1])[0]
        torch.testing.assert_close(value, expected, rtol=0, atol=1e-5)


def test_a_prompt_whose_greedy_episode_is_lost_to_faults_leaves_the_step(tiny_model):
    policy = policy_of(tiny_model("qwen3"))
    world = EpisodeWorld(policy, recipe_of("penalty=none", NO_SHAPING, name="remax"), None, batch=4, steps=1)
    unlucky, played = world.order(0)[1].prompt.messages, []

    async def chat_until_greedy(row, episode):
        prompt = episode.messages
        answer = await episode.chat()
        played.append(prompt)
        if prompt == unlucky and played.count(unlucky) > world.recipe.samples:
            raise Fault("no host for the greedy episode")
        return float(len(answer.content))

    world.generator.environment = replace(world.generator.environment, play=chat_until_greedy)
    step = next(world.train())
    assert len(step.sample.ids) == 3 * world.recipe.samples
    assert world.order(0)[1].prompt.id not in step.sample.ids
    assert all(math.isfinite(step.metrics[name]) for name in ("advantage/mean", "policy/objective"))


SLEEPY = """
import asyncio, random

async def play(row, episode):
    answer = await episode.chat()
    await asyncio.sleep(random.random() / 20)
    answer = await episode.chat({"role": "user", "content": str(row["answer"])})
    return float(len(answer.content))
"""


@pytest.mark.parametrize(
    ("moments", "seed"), [(2, 2), *(pytest.param(10, seed, marks=pytest.mark.long) for seed in range(5))]
)
def test_a_run_that_is_killed_at_any_moment_resumes_to_the_same_bits(tiny_model, files, monkeypatch, moments, seed):
    """In a tool, while a turn waits, while a checkpoint is written: by SIGKILL, in the schedule turn by turn."""
    monkeypatch.chdir(files)
    (files / "sleepy.py").write_text(SLEEPY)
    steps, draws = 3 * moments, random.Random(seed)
    words = ["improve", "--model.path", tiny_model("qwen3"), "--model.device", "cpu", "--prompts", "prompts.jsonl"]
    words += ["--environment", "sleepy:play", "--deterministic", "--recipe", "rloo", "--batch-size", "2", "--quiet"]
    words += ["--sampling.max-new-tokens", "4", "--sampling.stop", "a", "e", "i", "t", "--steps", str(steps)]
    words += ["--checkpoints.every", "1", "--checkpoints.keep", "2"]
    code = "import sys; sys.path.insert(0, '.'); from tutelage.commands.line import main; sys.exit(main(sys.argv[1:]))"
    whole = python(code, *words, "--out", "whole")
    assert whole.communicate(300)[1] == ""
    one, metrics = read_lines(files / "whole" / "metrics.jsonl"), files / "parts" / "metrics.jsonl"
    pace, killed = (one[-1]["seconds"] - one[0]["seconds"]) / (steps - 1), 0
    while True:
        started = (files / "parts" / "config.json").is_file()
        part = python(code, *words, "--out", "parts", *(["--resume"] if started else []))
        before = len(metrics.read_text().splitlines()) if metrics.is_file() else 0
        while part.poll() is None and killed < moments:
            if metrics.is_file() and len(metrics.read_text().splitlines()) > before:
                time.sleep(1.5 * pace * draws.random())
                part.kill()
                break
            time.sleep(0.005)
        error = part.communicate(300)[1]
        if part.returncode == 0:  # before its turn to be killed, on a machine that others keep busy
            break
        assert part.returncode == -signal.SIGKILL, error
        killed += 1
    assert killed > 0
    other = read_lines(metrics)
    timed = ("seconds", "tokens_per_second", "elapsed")
    assert [{k: v for k, v in row.items() if not k.startswith(timed)} for row in one] == [
        {k: v for k, v in row.items() if not k.startswith(timed)} for row in other
    ]
    weights = [(files / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "parts")]
    assert weights[0] == weights[1]
