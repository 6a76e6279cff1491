"""The round of a chat model with one tool, in seconds: a tiny random model in the place of SmolLM2."""

import json
from pathlib import Path

import tiny
from transformers import AutoTokenizer

from tutelage.commands.line import main
from tutelage.data.chat_tokens import encode
from tutelage.data.formats import load_prompts
from tutelage.data.records import message_from
from tutelage.data.tool_calls import call_form
from tutelage.demo.rounds.real_tool import OFFERED, RealToolRound, RealToolScale
from tutelage.demo.rounds.round import RoundPlace, run_round
from tutelage.rollout.environment import Environment
from tutelage.rollout.episodes import play_with_tools
from tutelage.rollout.tools.builtin import load_tools


def test_the_stages_are_done_and_episodes_read_what_demonstrations_showed(tmp_path: Path) -> None:
    model = tiny.save("llama", tmp_path / "chat", words={"chat": True, "pad": tiny.PAD}, max_position_embeddings=600)
    scale = RealToolScale(
        model=model, demonstrations=4, train_prompts=8, steps=1, batch=2, turn_tokens=8, test_prompts=3
    )
    out = tmp_path / "round"
    summary = run_round(RealToolRound(place=RoundPlace(out, 0, quiet=True), scale=scale))
    stages = json.loads((out / "round.json").read_text())["stages"]
    assert [(one["name"], one["status"]) for one in stages] == [
        (name, "done") for name in ("alone", "sft", "improve", "evaluate")
    ]
    assert 0 <= summary["alone"] <= 1
    tokenizer = AutoTokenizer.from_pretrained(out / "improve" / "model")
    call_form(tokenizer)  # the template shows tools, and its calls can be read
    (row, *_) = (json.loads(line) for line in (out / "data" / "demonstrations.jsonl").read_text().splitlines())
    environment = Environment(play_with_tools, load_tools(["calculator"]))
    (asked, *_) = environment.offer(load_prompts(str(out / "data" / "prompts_train.jsonl")).records[:1])
    first = message_from(row["messages"][0])
    shown, said = (
        tokenizer.decode(encode(messages, None, tokenizer)[0])
        for messages in ((first.__class__("user", first.content, tools=(json.dumps(OFFERED),)),), asked.messages)
    )
    assert shown.replace(first.content, "") == said.replace(asked.messages[0].content, "")


def test_the_tool_belongs_to_the_real_world(tmp_path: Path) -> None:
    assert main(["demo", "--tool", "--out", str(tmp_path)]) == 2
