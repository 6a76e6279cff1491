"""The table of metrics against runs: they write nothing that it lacks, and it has nothing that none of them writes."""

import json
from dataclasses import replace

import pytest
from offenders import for_each
from simple_goal import low_tokens
from tiny_training import EpisodeWorld, World, letters, policy_of, recipe_of, some_rows

import tutelage as tt
from tutelage.data.chat_endpoint import Endpoint, PaidEndpoint
from tutelage.report.metrics import GROUPS, METRICS, PART, metric_of
from tutelage.report.panels import DISTILL, IMPROVE, LANGUAGE, REWARD
from tutelage.rewards.composite import WeightedReward
from tutelage.rewards.judge import JudgeReward
from tutelage.rewards.rules import ExactMatch
from tutelage.rewards.scores import reward_metrics
from tutelage.rollout.environment import Environment
from tutelage.rollout.tools.builtin import load_tools
from tutelage.train.supervised.language import PretrainingMix

ASKED = [f"What is {topic}?" for topic in ("rain", "the sun", "a star", "light", "air", "water", "sugar", "a cloud")]


def loops(folder):
    """The names that the loop of `improve` writes, under recipes and settings that together compute everything."""
    policy = policy_of(folder)
    mix = PretrainingMix(policy, some_rows(4), batch=4, coef=0.1, seed=0)
    world = World(policy, recipe_of("ptx=0.1", "entropy=0.01", "samples=2"), steps=1, mix=mix)
    world.reward = WeightedReward(((1.0, low_tokens), (0.5, letters("a"))))
    more = {"mismatch": "truncated", "staleness": 1, "logged_rewards": {"gold/mean": letters("e")}}
    world.settings = replace(world.settings, **more)
    yield from world.train()
    world = World(policy_of(folder), recipe_of("samples=2", name="grpo"), steps=1)
    world.reward = lambda completions: [None if "sun" in one.messages[-1].content else 1.0 for one in completions]
    yield from world.train()
    for name, changes in {
        "dapo": ("samples=4",),
        "ppo_penalty": (),
        "trpo": (),
        "reinforce": (),
        "grpo": ("samples=2", "penalty.kind=exact", "penalty.where=loss"),
    }.items():
        yield from World(policy_of(folder), recipe_of(*changes, name=name), steps=1, reward=low_tokens).train()


async def paid(row, episode):
    """An episode of one turn with a reward of its own."""
    episode.reward(float(len((await episode.chat()).content)))
    return 0.0


def rounds(base, folder):
    """The rows of DPO on own answers."""
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": question}) + "\n" for question in ASKED))
    tt.dpo(
        model=base, device="cpu", quiet=True, batch_size=4, epochs=1.0, optimiser={"lr": 1e-3}, prompts=str(prompts),
        reward=length, rounds=1, samples=48, held_out=0.25, sampling={"max_new_tokens": 24}, out=folder / "run",
    )  # fmt: skip
    yield from map(json.loads, (folder / "run" / "metrics.jsonl").read_text().splitlines())


def length(completions):
    """A reward that tells answers apart."""
    return [float(len(completion.answer)) for completion in completions]


@pytest.fixture(scope="module")
def written(tiny_model, tiny_runs, tmp_path_factory):
    """The names of all metrics that these runs write, on the engine that writes most."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUTELAGE_ENGINE", "cpu")
        names = {name for step in loops(tiny_model("llama")) for name in step.metrics}
        episodes = EpisodeWorld(policy_of(tiny_model("qwen3")), recipe_of(), paid, steps=1)
        names |= {name for step in episodes.train() for name in step.metrics}
        names |= episodes.generator.environment.metrics().keys()
        names |= Environment(paid, load_tools(["calculator"])).metrics().keys()
        names |= {name for row in rounds(tiny_model("llama"), tmp_path_factory.mktemp("rounds")) for name in row}
    for run in ("sft", "reward", "dpo"):
        for line in (tiny_runs.folder / run / "metrics.jsonl").read_text().splitlines():
            names |= json.loads(line).keys()
    judge = JudgeReward(PaidEndpoint(Endpoint("http://localhost:1/v1", "judge")))
    return names | set(reward_metrics(WeightedReward(((1.0, judge), (1.0, ExactMatch())))))


def test_every_metric_of_a_run_is_in_the_table(written):
    assert sorted(name for name in written if metric_of(name) is None) == []


def test_every_entry_of_the_table_is_written_by_some_run(written):
    entries = {metric.name for name in written if (metric := metric_of(name))}
    assert sorted(set(METRICS) - entries) == []


def test_every_metric_has_a_meaning_and_one_place():
    listed = [metric.name for metrics in GROUPS.values() for metric in metrics]
    assert len(listed) == len(set(listed))
    assert all(metric.meaning for metric in METRICS.values())


def test_panels_draw_metrics_of_the_table():
    drawn = {
        name
        for panel in (*LANGUAGE, *REWARD, *IMPROVE, *DISTILL)
        for curve in panel.curves
        for name in (curve.metric, curve.spread)
        if name
    }
    assert [name for name in drawn if metric_of(name) is None] == []


@for_each(
    [
        ("score/politeness/dead", f"score/{PART}/dead"),
        ("score/mean", "score/mean"),
        ("tools/search/failed", f"tools/{PART}/failed"),
        ("gold/mean", f"{PART}/mean"),
        ("kl/reference", "kl/reference"),
    ]
)
def test_names_with_parts_belong_to_one_entry(name, entry):
    assert metric_of(name) is METRICS[entry]
    assert metric_of("nothing/of/that/kind") is metric_of("nothing") is None
