"""An environment of verifiers as `--environment verifiers:NAME`: its tasks, its tools, its rewards.

make test-verifiers
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
from call_templates import TAGGED
from scripted import ScriptedGenerator

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.data.records import Message
from tutelage.models.backbone import load_backbone
from tutelage.models.policy import Policy
from tutelage.rollout.environment import Environment
from tutelage.rollout.generator import encode_prompts, prompt_tokens
from tutelage.rollout.player import Player

CALL = '<tool_call>{{"name": "{}", "arguments": {{"place": "Ayr"}}}}</tool_call><|im_end|>'
TURNS = [f"I look.{CALL.format('map_far')}", CALL.format("near"), "It is 6.5 miles.<|im_end|>"]


@pytest.fixture(autouse=True)
def tasksets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the taskset, for this process and those of its tools."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


@pytest.fixture
def policy(tiny_model: Any, tmp_path: Path) -> Policy:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model("qwen3", max_position_embeddings=2000), folder)
    (folder / "chat_template.jinja").write_text(TAGGED)
    return Policy(load_backbone(config.Model(str(folder), device="cpu")))


def played(policy: Policy, play: Any, prompts: Any, texts: Any = tuple(TURNS), **limits: Any) -> Any:
    sampled = [policy.tokenizer.encode(text, add_special_tokens=False) for text in texts]

    def script(prompt: tuple[int, ...], number: int) -> list[int]:
        return sampled[policy.tokenizer.decode(prompt).count("assistant\n") - 1]

    generator = ScriptedGenerator(script, frozenset(policy.end_ids), decode=policy.tokenizer.decode)
    environment = Environment(play, name=play.name, **limits)
    player = Player(generator, environment, {one.id: one for one in prompts}, policy, policy.context)
    first = prompt_tokens(encode_prompts(prompts, policy.tokenizer))
    return player.generate(first, 2, config.Sampling(max_new_tokens=100), seed=1), sampled


def test_tasks_are_prompts_and_their_functions_rewards(policy: Policy) -> None:
    pytest.importorskip("verifiers")
    from tutelage.rollout.verifiers_environment import VerifiersEnvironment

    play = VerifiersEnvironment("miles_v1")
    prompts = play.prompts()
    assert prompts[0].messages == (Message("system", "Be brief."), Message("user", "How far is Ayr?"))
    assert prompts[1].data["answer"] == "6.5"
    rollout, sampled = played(policy, play, prompts[:2])
    assert rollout.response[3][rollout.mask[3]].tolist() == [token for turn in sampled for token in turn]
    assert [each.role for each in rollout.transcripts[0]] == ["system", "user", *["assistant", "tool"] * 2, "assistant"]
    found, missing = (each.content for each in rollout.transcripts[0] if each.role == "tool")
    assert found == "6.5"
    assert "near" in missing
    assert rollout.terminated.all()
    assert rollout.outcome.tolist() == [2.5] * 4
    cut, _ = played(policy, play, prompts[:1], turns=2)
    assert cut.truncated.all()
    assert cut.outcome.tolist() == [0.0, 0.0]


def test_a_mistake_of_an_environment_stops_the_run(policy: Policy, tmp_path: Path) -> None:
    pytest.importorskip("verifiers")
    from tutelage.rollout.verifiers_environment import VerifiersEnvironment

    file = tmp_path / "env.toml"
    file.write_text('[env.taskset]\nid = "miles_v1"\n[env.agent]\nmax_turns = 2\n')
    play = VerifiersEnvironment(str(file))
    *_, broken = play.prompts()
    with pytest.raises(TutelageError, match="no gold"):
        played(policy, play, [broken])
    rollout, sampled = played(policy, play, play.prompts()[:1])
    assert rollout.response[0][rollout.mask[0]].tolist() == sampled[0] + sampled[1]
    assert rollout.outcome.tolist() == [0.25, 0.25], (
        "the limit of verifiers ends the episode, and what its trace has is scored"
    )
    with pytest.raises(TutelageError, match="no_such_taskset"):
        VerifiersEnvironment("no_such_taskset")
