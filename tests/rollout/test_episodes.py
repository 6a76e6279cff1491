"""Environments as classes, as TRL's `environment_factory` takes them."""

import pytest
from call_templates import TAGGED
from test_player import LONG, PROMPTS, Script, called, played

from tutelage.base import config
from tutelage.data.records import Prompt, user
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy
from tutelage.rollout.environment import Environment
from tutelage.rollout.episodes import EnvironmentClass
from tutelage.rollout.tools.calculator import calculator
from tutelage.rollout.tools.tool import Toolbox, tool_of


class Map:
    """An environment as TRL's documentation has them, with an object of its own for each episode."""

    def __init__(self):
        self.calls = []

    def reset(self, **row):
        self.row = row
        return f" Go to {row['goal']}." if "goal" in row else None

    def far(self, place: str) -> float:
        """Miles to a place.

        Args:
            place: Its name.
        """
        self.calls.append(place)
        return {"Ayr": 6.5}[place]

    def get_reward(self) -> float:
        return float(len(self.calls)) + len(self.row["prompt"])

    def _hidden(self):
        raise AssertionError

    @property
    def broken(self):
        raise AssertionError


class Later(Map):
    async def reset(self, **row):
        return super().reset(**row)

    async def get_reward(self):
        return super().get_reward()


@pytest.fixture(scope="module")
def policy(tiny_model):
    return Policy(load_backbone(config.Model(tiny_model("qwen3"), device="cpu")))


@pytest.mark.parametrize("made", [Map, Later])
def test_methods_are_tools_of_the_object_of_an_episode(policy, made):
    texts = [f"I look.{called('Ayr')}", called("Ur"), "It is 6.5 miles."]
    script = Script(policy, TAGGED, texts)
    play = EnvironmentClass(made, Toolbox([tool_of(calculator)]))
    assert [tool.name for tool in play.tools.tools] == ["calculator", "far"]
    prompts = [Prompt("x", user("How far?"), data={"goal": "Ayr"}), PROMPTS[0]]
    rollout = played(script, Environment(play, play.tools), prompts, 1, sampling=LONG, generator=script.generator)
    assert rollout.outcome.tolist() == [3.0, 3.0], "two calls, and one message of the prompt"
    assert (play.tools.calls["calls"], play.tools.calls["failures"]) == (4, 2)
    assert "How far? Go to Ayr.<|im_end|>" in "".join(script.asked)
    assert [each.content for each in rollout.transcripts[1]][-1] == "It is 6.5 miles."


def test_a_class_without_a_reward_leaves_it_to_others(policy):
    class Unpaid(Map):
        get_reward = None

    script = Script(policy, TAGGED, ["Six."])
    play = EnvironmentClass(Unpaid, Toolbox(()))
    rollout = played(script, Environment(play, play.tools), PROMPTS[:1], 1, sampling=LONG, generator=script.generator)
    assert rollout.outcome.tolist() == [0.0]
