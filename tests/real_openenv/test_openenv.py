"""Servers of OpenEnv as `--environment openenv:ADDRESS`: actions as texts, tools, rewards of steps.

make test-openenv
"""

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from call_templates import TAGGED
from scripted import ScriptedGenerator

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.data.records import Prompt, user
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy
from tutelage.rollout.environment import Environment
from tutelage.rollout.generator import encode_prompts, prompt_tokens
from tutelage.rollout.player import Player
from tutelage.rollout.serving.asgi_server import listen

pytest.importorskip("openenv")
CALL = '<tool_call>{{"name": "far", "arguments": {{"place": "{}"}}}}</tool_call><|im_end|>'


@contextmanager
def serving(world: Any, action: Any, seen: Any, sessions: int = 8) -> Iterator[str]:
    """Address of a server of a world."""
    import uvicorn
    from openenv.core.env_server.http_server import create_fastapi_app

    listening = listen("127.0.0.1", 0)
    app = create_fastapi_app(world, action, seen, max_concurrent_envs=sessions)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)


@pytest.fixture
def policy(tiny_model: Any, tmp_path: Path) -> Policy:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model("qwen3", max_position_embeddings=2000), folder)
    (folder / "chat_template.jinja").write_text(TAGGED)
    return Policy(load_backbone(config.Model(str(folder), device="cpu")))


def played(policy: Policy, play: Any, prompts: Any, texts: list[str], n: int = 1) -> Any:
    sampled = [policy.tokenizer.encode(text, add_special_tokens=False) for text in texts]

    def script(prompt: tuple[int, ...], number: int) -> list[int]:
        return sampled[policy.tokenizer.decode(prompt).count("assistant\n") - 1]

    generator = ScriptedGenerator(script, frozenset(policy.end_ids), decode=policy.tokenizer.decode)
    environment = Environment(play, play.tools, name=play.name, at_once=1)
    prompts = environment.offer(prompts)
    player = Player(generator, environment, {one.id: one for one in prompts}, policy, policy.context)
    first = prompt_tokens(encode_prompts(prompts, policy.tokenizer))
    return player.generate(first, n, config.Sampling(max_new_tokens=100), seed=1)


def test_texts_are_actions_and_rewards_of_steps_those_of_turns(policy: Policy) -> None:
    from real_openenv.worlds import Guess, Hint, Number
    from tutelage.rollout.openenv_environment import OpenEnvEnvironment

    with serving(Number, Guess, Hint, sessions=2) as address:
        play = OpenEnvEnvironment(address)
        prompts = [Prompt("a", user("Guess."), data={"reset": {"number": 7, "most": 8}}), Prompt("b", user("Guess."))]
        turns = ["2<|im_end|>", "seven<|im_end|>", '{"value": 7}<|im_end|>', "3<|im_end|>"]
        rollout = played(policy, play, prompts, turns, n=2)
    said = [one.content for one in rollout.transcripts[0]]
    assert said[0] == "Guess.\n\nBetween 1 and 8."
    assert said[2] == "Higher."
    assert said[4].startswith("error: ")
    assert [len(one) for one in rollout.transcripts] == [6, 6, 8, 8]
    assert rollout.terminated.all()
    assert rollout.turn_reward.sum(1).tolist() == [0.75, 0.75, 0.5, 0.5]
    last = [int(turn[mask].max()) for turn, mask in zip(rollout.turn, rollout.mask, strict=True)]
    assert [float(r[t == m].sum()) for r, t, m in zip(rollout.turn_reward, rollout.turn, last, strict=True)] == [
        1.0
    ] * 4


def test_tools_of_a_server_are_offered(policy: Policy) -> None:
    from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation

    from real_openenv.worlds import Map
    from tutelage.rollout.openenv_environment import OpenEnvEnvironment

    with serving(Map, CallToolAction, CallToolObservation) as address:
        play = OpenEnvEnvironment(address)
        assert [tool.name for tool in play.tools.tools] == ["far"]
        turns = [CALL.format("Ayr"), CALL.format("Ur"), "It is 6.5 miles.<|im_end|>"]
        rollout = played(policy, play, [Prompt("a", user("How far?"))], turns, n=2)
    found, missing = (one.content for one in rollout.transcripts[0] if one.role == "tool")
    assert found == "6.5"
    assert missing.startswith("error: ")
    assert rollout.texts == ("It is 6.5 miles.",) * 2
    assert rollout.turn_reward.sum(1).tolist() == [-0.25, -0.25]
    assert (play.tools.calls["calls"], play.tools.calls["failures"]) == (4, 2)
    with pytest.raises(TutelageError, match=r"127\.0\.0\.1"):
        OpenEnvEnvironment(address)
