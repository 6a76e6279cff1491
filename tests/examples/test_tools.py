"""`examples/8_tools.py`: its demonstrations are what it says, and the policy learns to use its tools."""

import asyncio
from pathlib import Path
from random import Random
from types import ModuleType

import example_files
import pytest

from tutelage.data.records import Message, ToolCall
from tutelage.data.tool_calls import TAGGED, call_form
from tutelage.rollout.tools.tool import Toolbox, tool_of


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return example_files.example("8_tools")


def test_three_in_ten_demonstrations_call_the_tools_for_a_right_answer(example: ModuleType) -> None:
    dice, tools = Random(1), Toolbox([tool_of(example.price), tool_of(example.times)])
    rows = [example.demonstration(dice.randint(2, 9), "figs", dice)["messages"] for _ in range(400)]
    shown = [row for row in rows if len(row) > 2]
    assert 0.3 * 400 - 3 * 9.2 < len(shown) < 0.3 * 400 + 3 * 9.2
    for row in shown:
        for asked, result in zip(row[1:-1:2], row[2:-1:2], strict=True):
            (call,) = asked["tool_calls"]
            arguments = call["function"]["arguments"]
            own = ToolCall(call["function"]["name"], str(arguments).replace("'", '"'))
            assert asyncio.run(tools.run(own)).content == result["content"]
        assert row[-1]["content"] == row[-2]["content"]


def test_its_template_writes_calls_in_a_form_that_is_read(example: ModuleType, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(example.new_model(["3 figs"], tmp_path))
    assert call_form(tokenizer) is TAGGED


def test_its_environment_pays_for_a_right_answer_alone(example: ModuleType) -> None:
    class Scripted:
        def __init__(self, answer: str) -> None:
            call = ToolCall("times", '{"a": 2, "b": 3}')
            self.turns = [Message("assistant", "", calls=(call,)), Message("assistant", answer)]

        async def chat(self, *new: Message) -> Message:
            return self.turns.pop(0)

        async def run(self, call: ToolCall) -> Message:
            return Message("tool", "6", name=call.name)

    assert [asyncio.run(example.shop({"total": 6}, Scripted(answer))) for answer in ("6", "7")] == [1.0, 0.0]


@pytest.mark.long
def test_the_policy_learns_to_use_its_tools(example: ModuleType, tmp_path: Path) -> None:
    before, after = example.main(tmp_path)
    assert before < 0.5
    assert after > 0.8
