"""What the first steps of reinforcement learning say: on the terminal, through the command, on tiny models."""

from types import SimpleNamespace

import pytest
import torch
from offenders import for_each
from remarks import collected
from tiny_commands import files, improve_settings, read_jsonl

from tutelage.algorithms.override import override
from tutelage.algorithms.registry import recipe_named
from tutelage.base import config
from tutelage.commands.improve.first_steps import PART_STEPS, FirstSteps
from tutelage.commands.table import find
from tutelage.train.learner import Step

improve = find("improve")

ENDS = tuple(range(100, 170))
"""So many end tokens that a random model ends most of its answers soon."""
SHORT = config.Sampling(temperature=0.9, max_new_tokens=4)


@pytest.fixture
def run(tiny_model, tmp_path, capsys, monkeypatch):
    """`run(**settings)`: three steps of the command; what it said, and the metrics of the first."""

    def run(*, ends=(), **changes):
        from tutelage.models import policy

        if ends:
            monkeypatch.setattr(policy, "end_ids_of", lambda backbone: ends)
        given = files(tmp_path / "data")
        usual = {
            "model": config.Model(tiny_model("llama"), device="cpu", engine="plain"),
            "steps": 3,
            "recipe": "grpo",
            "set": ("samples=4",),
            "quiet": False,
        }
        assert improve.main(improve_settings(tiny_model("llama"), given, tmp_path / "run", **usual | changes)) == 0
        return capsys.readouterr().err, read_jsonl(tmp_path / "run" / "metrics.jsonl")[0]

    return run


def test_a_model_that_never_ends_is_trained_on_the_reward_and_this_is_said(run):
    said, first = run()
    assert "Of the first 16 completions 100% were cut at 8 tokens (--sampling.max-new-tokens); they keep the" in said
    assert "shaping.missing_end_penalty=1" in said
    assert said.count("Of the first") == 1
    assert first["score/shaped"] == first["score/mean"]
    assert first["groups/dead"] < 1
    assert "gave no signal" not in said
    assert "score/shaped" in said, "on the terminal"
    assert "ended 0" in said


def test_a_model_that_mostly_ends_learns_to_end_and_this_is_said(run):
    said, first = run(ends=ENDS, sampling=SHORT)
    assert "instead of the reward, since most completions end by themselves" in said
    assert "--set shaping.missing_end=none keeps" in said
    assert first["score/shaped"] < first["score/mean"]


def test_scores_below_minus_one_are_not_replaced_by_a_better_one(run):
    said, first = run(ends=ENDS, sampling=SHORT, reward=("given_rewards:vowels=100", "given_rewards:length=-100"))
    assert "finished completions score less than the −1" in said
    assert first["score/shaped"] == first["score/mean"]


def test_groups_that_are_dead_because_they_are_cut(run):
    said, first = run(set=("samples=4", "shaping.missing_end=-1"), quiet=True)
    assert first["groups/dead"] == 1
    assert (
        "In the first 3 steps 100% of the prompts gave no signal: all 4 completions of one got the same score" in said
    )
    assert "cut at 8 tokens and score -1 instead" in said
    assert "--sampling.max-new-tokens, or --set shaping.missing_end=none" in said


def test_a_reward_that_is_constant(run):
    said, _ = run(reward=("given_rewards:nothing_but_one",))
    assert "because the reward is constant" in said


def test_a_reward_that_is_constant_with_one_answer_to_a_prompt(run):
    said, _ = run(reward=("given_rewards:nothing_but_one",), recipe="ppo", set=())
    assert "In the first 3 steps all completions got the same score, which gives no signal" in said


def test_a_reward_that_tells_prompts_apart_but_not_their_answers(run):
    said, first = run(reward=("given_rewards:of_the_prompt",), steps=1)
    assert first["groups/dead"] == 1
    assert "In the first step 100%" in said
    assert "the reward does not distinguish them" in said
    assert "more completions (--set samples=8)" in said
    assert "dynamic_sampling=3" in said


def test_answers_that_are_all_the_same(run):
    said, _ = run(sampling=config.Sampling(temperature=1e-3, max_new_tokens=8))
    assert "because they are the same text. Use a higher --sampling.temperature than 0.001" in said


def test_the_parts_of_a_constant_reward_are_not_told_again(run):
    """Neither by the warning after three steps, which is about all of them, nor after ten."""
    constant = ("given_rewards:nothing_but_one=2", "given_rewards:of_the_prompt=0.5")
    said, first = run(reward=constant, steps=PART_STEPS + 1)
    assert first["score/nothing_but_one/dead"] == first["score/of_the_prompt/dead"] == 1
    assert said.count("gave no signal") == 1
    assert "them (the parts 'nothing_but_one' and 'of_the_prompt' never did)" in said


def test_a_part_that_never_varies_is_named_once(run):
    said, _ = run(reward=("given_rewards:vowels", "given_rewards:nothing_but_one=2"), steps=PART_STEPS + 2)
    assert said.count("gave no signal") == 1
    assert (
        f"In each of {PART_STEPS} steps the part 'nothing_but_one' of the reward gave no signal: all 4 "
        "completions of one prompt got the same score. Read a few in samples.jsonl" in said
    )


def remarks(*dead: dict[str, float], silent: tuple[str, ...] = ()) -> list[str]:
    """What is remarked on parts whose answers to a prompt were alike for these shares of the prompts, step by step."""
    lines: list[str] = []
    first = FirstSteps(recipe_named("grpo"), SHORT, len(dead), 1e-3, silent)
    with collected(lines):
        for index, shares in enumerate(dead, 1):
            metrics = {f"score/{name}/dead": share for name, share in shares.items()}
            first.look(Step(index, metrics | {"groups/dead": 1.0, "score/mean": 0.0}))
    return lines


def test_parts_that_never_varied_are_named_together():
    (line,) = remarks(*[{"format": 1.0, "math": 0.9, "length": 1.0}] * (2 * PART_STEPS))
    assert f"In each of {PART_STEPS} steps the parts 'format' and 'length' of the reward gave no signal" in line


def test_an_environment_that_does_not_pay_is_not_named():
    shares = [{"format": 1.0, "environment": 1.0}] * PART_STEPS
    assert "'format' and 'environment'" in remarks(*shares)[0]
    assert "the part 'format' of" in remarks(*shares, silent=("environment",))[0]
    assert remarks(*[{"environment": 1.0}] * PART_STEPS, silent=("environment",)) == []


def test_a_part_that_varied_once_is_not_named():
    assert remarks({"format": 0.99}, *[{"format": 1.0}] * (2 * PART_STEPS)) == []
    assert remarks(*[{"format": 1.0}] * PART_STEPS, {"format": 0.99}) != []
    assert remarks(*[{"format": 1.0}] * (PART_STEPS - 1), *[{"format": 0.99}] * 9) == []
    assert remarks(*[{"format": 1.0}] * (PART_STEPS - 1)) == []


def distances(kl: float, steps: int, *changes: str, name: str = "grpo", dead: float = 0.0) -> list[str]:
    """What is remarked on a run of some steps whose KL grows with their square, to `kl` in step 10."""
    lines: list[str] = []
    first = FirstSteps(override(recipe_named(name), changes), SHORT, steps, 3e-6)
    with collected(lines):
        for index in range(1, steps + 1):
            metrics = {"kl/reference_k3": kl * (index / PART_STEPS) ** 2, "groups/dead": dead, "score/mean": 0.0}
            first.look(Step(index, metrics))
    return lines


def test_a_policy_that_hardly_moves_is_told_a_larger_rate_once():
    (line,) = distances(0.005, 15)
    assert "After 10 steps the policy is 0.005 nats" in line
    assert "--optimiser.lr, for example to 3e-05 (it is 3e-06)" in line


def test_a_policy_that_moves_or_will_move_is_told_nothing():
    assert distances(0.06, 12) == []
    assert distances(0.005, 100) == [], "a hundred times as far at its end"
    assert distances(0.0, 9) == [], "too short"


def test_a_policy_that_has_no_reason_or_no_rate_to_move_is_told_no_rate():
    assert distances(0.0, 15, dead=0.9) == []
    assert distances(0.0, 15, name="trpo") == []
    assert distances(0.0, 15, "critic.warmup=10", name="ppo") == []


class Sample:
    """As much of a rollout as the first steps read: two answers to each prompt."""

    group = 2
    outcome = turn_reward = None

    def __init__(self, kinds):
        scores = {"live": (1, 2), "cut": (1, 2), "half cut": (1, 2)}
        ended = {"cut": (False, False), "cut and equal": (False, False), "half cut": (True, False)}
        self.score = torch.tensor([scores.get(kind, (3, 3)) for kind in kinds]).flatten()
        self.terminated = torch.tensor([ended.get(kind, (True, True)) for kind in kinds]).flatten()

    def __len__(self):
        return len(self.score)


@for_each(
    [
        ({"equal": 2, "live": 2}, None, ""),
        ({"equal": 3, "live": 2}, "60%", "does not distinguish them"),
        ({"half cut": 3, "live": 1}, None, ""),
        ({"equal": 1, "cut": 3}, "100%", "because they were cut"),
        ({"cut": 1, "equal": 3, "same": 2}, "100%", "does not distinguish them"),
        ({"cut": 1, "equal": 1, "same": 2, "live": 1}, "80%", "because they are the same text"),
        ({"cut and equal": 2, "live": 1}, "67%", "does not distinguish them"),
    ]
)
def test_the_warning_names_the_cause_of_most_groups(kinds, share, cause, caplog):
    each = [kind for kind, count in kinds.items() for _ in range(count)]
    texts = [("p", "alike" if kind == "same" else str(n)) for kind in each for n in range(2)]
    first = FirstSteps(override(recipe_named("grpo"), ("shaping.missing_end=-1",)), SHORT, 9, 1e-3)
    for index in range(1, 4):
        first.look(Step(index, {}, Sample(each), tuple(texts), SimpleNamespace(shaping={})))
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == (share is not None)
    for line in said:
        assert line.startswith(f"In the first 3 steps {share} of the prompts gave no signal")
        assert cause in line


def test_answers_that_are_cut_keep_their_scores_where_the_settings_say_so(caplog):
    first = FirstSteps(override(recipe_named("grpo"), ("shaping.missing_end=none",)), SHORT, 9, 1e-3)
    texts, lines = (("p", "a"), ("p", "b")) * 2, []
    with collected(lines):
        for index in range(1, 4):
            first.look(Step(index, {}, Sample(["cut", "cut"]), texts, SimpleNamespace(shaping={})))
    assert lines == [
        (
            "Of the first 4 completions 100% were cut at 4 tokens (--sampling.max-new-tokens); they keep the reward's "
            "scores (shaping.missing_end=none)."
        )
    ]
    assert not [record for record in caplog.records if record.levelname == "WARNING"], "their scores differ"


def test_episodes_that_differ_in_rewards_of_turns_are_no_constant_reward(caplog):
    sample = Sample(["equal", "equal"])
    sample.turn_reward = torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    first, lines = FirstSteps(override(recipe_named("grpo"), ("shaping.missing_end=none",)), SHORT, 9, 1e-3), []
    with collected(lines):
        for index in range(1, 4):
            first.look(Step(index, {}, sample, (("p", "a"),) * 4, SimpleNamespace(shaping={})))
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_episodes_that_are_cut_name_all_their_limits():
    sample, lines = Sample(["cut", "live"]), []
    sample.outcome = torch.zeros(4)
    first = FirstSteps(override(recipe_named("grpo"), ("shaping.missing_end=none",)), SHORT, 9, 1e-3)
    with collected(lines):
        first.look(Step(1, {}, sample, (("p", "a"),) * 4, SimpleNamespace(shaping={})))
    assert "--turns" in lines[0]
