"""Tools by name."""

import asyncio
import sys

import pytest

from tutelage.base.errors import TutelageError
from tutelage.data.records import ToolCall
from tutelage.rollout.tools.builtin import load_tools

OWN = '''
from tutelage.rollout.tools.tool import tool_of

def double(x: float) -> float:
    """Double a number.

    Args:
        x: The number.
    """
    return 2 * x

def calculator(x: float) -> float:
    """Not the calculator.

    Args:
        x: The number.
    """

NUMBER = 3
SLOW = tool_of(double, timeout=99.0)
'''


@pytest.fixture(autouse=True)
def own_module(tmp_path, monkeypatch):
    (tmp_path / "tools_of_mine.py").write_text(OWN)
    (tmp_path / "facts.txt").write_text("A whale is a mammal.\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("tools_of_mine", None)


def test_tools_of_every_kind(tmp_path):
    box = load_tools(["calculator", "python", f"search:{tmp_path}/facts.txt", "tools_of_mine:double"])
    assert [tool.name for tool in box.tools] == ["calculator", "python", "search", "double"]

    async def results():
        calls = [
            ToolCall("calculator", '{"expression": "0.1 + 0.2"}'),
            ToolCall("python", '{"code": "print(6 * 7)"}'),
            ToolCall("search", '{"query": "mammal"}'),
            ToolCall("double", '{"x": 4}'),
            ToolCall("calculator", '{"expression": "9**9**9"}'),
        ]
        return [(await box.run(call)).content.strip() for call in calls]

    *values, error = asyncio.run(results())
    assert values == ["0.3", "42", "[line 1] A whale is a mammal.", "8"]
    assert error.startswith("error: ")


def test_a_tool_with_limits_of_its_own():
    assert [tool.timeout for tool in load_tools(["tools_of_mine:SLOW"]).tools] == [99.0]


@pytest.mark.parametrize(
    ("names", "word"),
    [
        (["calc"], "'calc'"),
        ([""], "''"),
        (["tools_of_mine:"], "tools_of_mine:"),
        (["tools_of_mine:triple"], "'triple'"),
        (["tools_of_mine:NUMBER"], "NUMBER"),
        (["nowhere_at_all:f"], "nowhere_at_all"),
        (["search:missing.jsonl"], "missing.jsonl"),
        (["calculator", "tools_of_mine:calculator"], "'calculator'"),
        (["tools_of_mine:double", "tools_of_mine:SLOW"], "'double'"),
    ],
)
def test_names_of_no_tool_are_refused(names, word):
    with pytest.raises(TutelageError, match=word):
        load_tools(names)
