"""OpenAI's client against `tutelage serve` and in an agent of `--agent`: calls of tools, whole and streamed.

make test-tools
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from call_templates import SCHEMA, TAGGED
from scripted import ScriptedGenerator

import tutelage as tt
from tutelage.base import config
from tutelage.data.records import Prompt, user
from tutelage.engines.interface import PromptTokens
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy
from tutelage.rollout.agent import AgentProgram
from tutelage.rollout.environment import Environment
from tutelage.rollout.generator import encode_prompts, prompt_tokens
from tutelage.rollout.player import Player
from tutelage.rollout.serving import jobs

TURNS = ['So.<tool_call>{"name": "lookup", "arguments": {"x": 1}}</tool_call><|im_end|>', "It is 6.<|im_end|>"]
TOOLS = [json.loads(SCHEMA)]
AGENT = """
import json, sys
from openai import OpenAI

row = json.load(sys.stdin)
client, messages = OpenAI(), row["messages"]
while True:
    with client.chat.completions.stream(model="any", messages=messages, tools=row["tools"]) as stream:
        said = stream.get_final_completion().choices[0].message
    if not said.tool_calls:
        break
    messages += [said, *({"role": "tool", "tool_call_id": call.id, "content": "6"} for call in said.tool_calls)]
"""


@pytest.fixture
def model(tiny_model: Any, tmp_path: Path) -> str:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model("qwen3", max_position_embeddings=600), folder)
    (folder / "chat_template.jinja").write_text(TAGGED)
    return str(folder)


def test_calls_and_results_go_through_the_client(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    openai = pytest.importorskip("openai")
    from transformers import AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(model).encode(TURNS[0], add_special_tokens=False)

    def script(logits: Any, lines: Any) -> Any:
        own = [tokens[line.count] for line in lines]
        return torch.tensor(own), [jobs.TokenLogp(token, 0.0, {}) for token in own]

    with tt.serve(model=model, port=0, max_new_tokens=100) as server:
        monkeypatch.setattr(jobs, "next_tokens", script)
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
        messages: list[Any] = [{"role": "user", "content": "How far?"}]
        asked = {"model": "", "tools": TOOLS, "max_tokens": 100}
        (choice,) = client.chat.completions.create(messages=messages, **asked).choices
        (call,) = choice.message.tool_calls
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", "So.")
        assert (call.function.name, json.loads(call.function.arguments)) == ("lookup", {"x": 1})
        messages += [choice.message, {"role": "tool", "tool_call_id": call.id, "content": "6"}]
        whole = client.chat.completions.create(messages=messages, **asked).choices[0]
        with client.chat.completions.stream(messages=messages, **asked) as stream:
            streamed = stream.get_final_completion().choices[0]
        assert streamed.finish_reason == whole.finish_reason
        assert streamed.message.content == whole.message.content
        assert [c.id for c in streamed.message.tool_calls] == [c.id for c in whole.message.tool_calls]
        with pytest.raises(openai.BadRequestError, match="tool_choice"):
            client.chat.completions.create(messages=messages, tool_choice="required", **asked)


def test_an_agent_with_the_client_is_an_episode(model: str, tmp_path: Path) -> None:
    pytest.importorskip("openai")
    (tmp_path / "agent.py").write_text(AGENT, encoding="utf-8")
    policy = Policy(load_backbone(config.Model(model, device="cpu")))
    texts = [policy.tokenizer.encode(text, add_special_tokens=False) for text in TURNS]

    def script(prompt: tuple[int, ...], number: int) -> list[int]:
        return texts[policy.tokenizer.decode(prompt).count("assistant\n") - 1]

    environment = Environment(AgentProgram(f"{sys.executable} {tmp_path / 'agent.py'}"))
    prompt = Prompt("a", user("How far?"), data={"tools": TOOLS})
    generator = ScriptedGenerator(script, frozenset(policy.end_ids), decode=policy.tokenizer.decode)
    player = Player(generator, environment, {"a": prompt}, policy, policy.context)
    first: PromptTokens = prompt_tokens(encode_prompts([prompt], policy.tokenizer))
    rollout = player.generate(first, 1, config.Sampling(max_new_tokens=100), seed=1)
    assert rollout.response[0][rollout.mask[0]].tolist() == [*texts[0], *texts[1]]
    assert [each.role for each in rollout.transcripts[0]] == ["user", "assistant", "tool", "assistant"]
    assert rollout.terminated.all()
