"""Environments of OpenEnv, with a client of the shape of its release 0.10; `make test-openenv` has real servers."""

import asyncio
import json
import math
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import httpx
import pytest
from call_templates import TAGGED
from test_player import LONG, Script, called, played

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.commands.generators import environment_of
from tutelage.commands.improve.settings import ImproveSettings
from tutelage.data.records import Prompt, user
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy
from tutelage.rollout.environment import REDRAWS

ADDRESS = "http://127.0.0.1:8000"
GUESS = {"title": "Guess", "required": ["value"], "properties": {"value": {"type": "integer"}}}
FAR = {"name": "far", "description": "Miles", "input_schema": {"type": "object", "properties": {"place": {}}}}


class Client:
    """A client whose server is `plays(action, number)`: an observation, a reward and whether the episode is over."""

    opened = closed = 0

    def __init__(self, base_url, message_timeout_s=60.0):
        assert base_url == ADDRESS
        self.steps = 0

    async def __aenter__(self):
        Client.opened += 1
        return self

    async def __aexit__(self, *error):
        Client.closed += 1

    async def reset(self, **arguments):
        return SimpleNamespace(observation=Client.first(arguments), reward=None, done=False)

    async def step(self, action):
        if action == {"type": "list_tools"}:
            return SimpleNamespace(observation={"tools": [FAR]}, reward=None, done=False)
        self.steps += 1
        seen, reward, done = Client.plays(action, self.steps)
        return SimpleNamespace(observation=seen, reward=reward, done=done)


@pytest.fixture
def schema(monkeypatch):
    """The schema of the server's actions, which a test may change."""
    openenv, websockets = ModuleType("openenv"), ModuleType("websockets.exceptions")
    openenv.GenericEnvClient = Client
    websockets.ConnectionClosed = type("ConnectionClosed", (Exception,), {})
    monkeypatch.setitem(sys.modules, "openenv", openenv)
    monkeypatch.setitem(sys.modules, "websockets", ModuleType("websockets"))
    monkeypatch.setitem(sys.modules, "websockets.exceptions", websockets)
    monkeypatch.delitem(sys.modules, "tutelage.rollout.openenv_environment", raising=False)
    held = dict(GUESS)

    def get(url, **_):
        assert url == f"{ADDRESS}/schema"
        return httpx.Response(200, json={"action": held}, request=httpx.Request("GET", url))

    monkeypatch.setattr(httpx, "get", get)
    Client.opened = Client.closed = 0
    Client.first = lambda arguments: {"hint": f"1 to {arguments.get('most', 9)}", "done": None}
    yield held
    sys.modules.pop("tutelage.rollout.openenv_environment", None)


@pytest.fixture(scope="module")
def policy(tiny_model):
    return Policy(load_backbone(config.Model(tiny_model("qwen3", max_position_embeddings=500), device="cpu")))


def environment():
    settings = ImproveSettings(
        model=config.Model("m"), prompts="p", environment=f"openenv:{ADDRESS}", agent_processes=4, out="x"
    )
    return environment_of(settings)


def run(policy, texts, prompts, n=1):
    made, script = environment(), Script(policy, TAGGED, texts)
    assert made.at_once == 4
    rollout = played(script, made, prompts, n, sampling=LONG, generator=script.generator)
    assert Client.opened == Client.closed
    return made, rollout


def guess(action, number):
    value = action["value"]
    if not isinstance(value, int):
        raise RuntimeError("Server error: not a number (code: VALIDATION_ERROR)")
    return ({"hint": "Right."}, 1.0, True) if value == 3 else ({"hint": "Higher.", "tries": number}, -0.25, False)


def test_texts_are_actions_and_rewards_of_steps_those_of_turns(schema, policy):
    Client.plays = guess
    prompts = [Prompt("a", user("Guess."), data={"reset": {"most": 4}})]
    _, rollout = run(policy, ["2", "two", '```json\n{"value": 3}\n```'], prompts, 2)
    said = [one.content for one in rollout.transcripts[0]]
    assert said[:3] == ["Guess.\n\n1 to 4", "2", '{"hint": "Higher.", "tries": 1}']
    assert said[4].startswith("error: ")
    assert "not a number" in said[4]
    assert len(said) == 6
    assert rollout.terminated.all()
    assert rollout.turn_reward.sum(1).tolist() == [0.75, 0.75]
    assert rollout.outcome.tolist() == [0.0, 0.0]


def test_an_action_of_several_fields_is_an_object(schema, policy):
    schema["required"] = ["value", "why"]
    Client.plays = guess
    _, rollout = run(policy, ["3", '{"value": 3, "why": "so"}'], [Prompt("a", user("Guess."))])
    assert "value, why" in rollout.transcripts[0][2].content
    assert rollout.turn_reward.sum(1).tolist() == [1.0]


@pytest.mark.usefixtures("schema")
def test_tools_of_a_server_are_offered(schema, policy):
    schema["title"] = "CallToolAction"
    Client.first = lambda arguments: {"metadata": {}}

    def plays(action, number):
        assert (action["type"], action["tool_name"]) == ("call_tool", "far")
        if action["arguments"]["place"] == "Ayr":
            return {"result": {"content": [{"type": "text", "text": "6.5"}], "is_error": False}}, -0.5, False
        return {"result": None, "error": {"message": "no such place"}}, None, False

    Client.plays = plays
    made, rollout = run(policy, [called("Ayr"), called("Ur"), "6.5 miles."], [Prompt("a", user("How far?"))])
    assert [tool.name for tool in made.tools.tools] == ["far"]
    found, missing = (one.content for one in rollout.transcripts[0] if one.role == "tool")
    assert (found, "no such place" in missing) == ("6.5", True)
    assert rollout.turn_reward.sum(1).tolist() == [-0.5]
    assert made.tools.calls["failures"] == 1


def test_arguments_of_a_tool_have_any_name(schema, policy):
    schema["title"] = "CallToolAction"
    Client.first = lambda arguments: {}
    names = {"name": "Ayr", "self": "Ur", "arguments": "Ely"}
    own = {**FAR, "input_schema": {"type": "object", "properties": {key: {"type": "string"} for key in names}}}
    Client.plays = lambda action, number: ({"result": action["arguments"]}, None, False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "FAR", own)
        call = f"<tool_call>{json.dumps({'name': 'far', 'arguments': names})}</tool_call>"
        _, rollout = run(policy, [call, "Done."], [Prompt("a", user("How far?"))])
    (result,) = (one.content for one in rollout.transcripts[0] if one.role == "tool")
    assert json.loads(result) == names


def test_a_call_without_an_answer_in_time_is_a_fault(schema, policy):
    """The client of OpenEnv begins another session, without a reset, after a call that is given up."""
    schema["title"] = "CallToolAction"
    made = environment()
    assert {tool.timeout for tool in made.tools.tools} == {math.inf}
    begun = []

    async def step(self, action):
        await asyncio.sleep(60)

    def first(arguments):
        begun.append(arguments)
        return {}

    Client.first = first
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "step", step)
        script = Script(policy, TAGGED, [called("Ayr"), "6.5 miles."])
        made = replace(made, seconds=0.05)
        rollout = played(script, made, [Prompt("a", user("Far?"))], 1, sampling=LONG, generator=script.generator)
    assert rollout.outcome.isnan().all()
    assert len(begun) == REDRAWS + 1
    assert [one.role for one in rollout.transcripts[0]] == ["user", "assistant"]


def test_a_server_that_is_lost_is_a_fault_also_in_a_tool(schema, policy):
    def plays(action, number):
        raise ConnectionError("gone")

    Client.plays = plays
    for title, text in (("Guess", "3"), ("Action", called("Ayr"))):
        schema["title"] = title
        _, rollout = run(policy, [text], [Prompt("a", user("Guess."))])
        assert rollout.outcome.isnan().all()
        assert not (rollout.terminated | rollout.truncated).any()


def test_what_a_user_can_mend_is_named(schema, policy, monkeypatch):
    import tutelage.rollout.openenv_environment as module

    monkeypatch.setattr(module, "PAUSE", 0.001)

    def first(arguments):
        code = "EXECUTION_ERROR" if "most" in arguments else "CAPACITY_REACHED"
        raise RuntimeError(f"Server error: no (code: {code})")

    Client.first = first
    with pytest.raises(TutelageError, match="--agent-processes"):
        run(policy, ["3"], [Prompt("a", user("Guess."))])
    with pytest.raises(TutelageError, match="most"):
        run(policy, ["3"], [Prompt("a", user("Guess."), data={"reset": {"most": 4}})])
    with pytest.raises(TutelageError, match="column reset"):
        run(policy, ["3"], [Prompt("a", user("Guess."), data={"reset": 4})])
    monkeypatch.setattr(httpx, "get", lambda url, **_: httpx.Response(404, request=httpx.Request("GET", url)))
    with pytest.raises(TutelageError, match=ADDRESS):
        run(policy, ["3"], [Prompt("a", user("Guess."))])
