"""Tools and calls of them: what a policy can cause is a message, what fails around it a Fault."""

import asyncio
import contextvars
import json
import logging
import math
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import Literal

import numpy
import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.data.records import Message, ToolCall
from tutelage.data.tool_calls import read_tools
from tutelage.rollout.tools import tool as module
from tutelage.rollout.tools.tool import Fault, Tool, Toolbox, tool_of, without_middle


def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


def tool_returning(value, **limits) -> Tool:
    def returned():
        """Return the value."""
        return value

    return tool_of(returned, **limits)


def tool_raising(error, **limits) -> Tool:
    def raised():
        """Raise the error."""
        raise error

    return tool_of(raised, **limits)


def run(box: Toolbox, name: str, arguments: str = "") -> str:
    return asyncio.run(box.run(ToolCall(name, arguments, "c1"))).content


def content(tool: Tool, arguments: str = "") -> str:
    return run(Toolbox([tool]), tool.name, arguments)


def test_a_result_is_a_message_with_the_name_and_id_of_its_call():
    message = asyncio.run(Toolbox([tool_of(add)]).run(ToolCall("add", '{"a": 2}', "c7")))
    assert message == Message("tool", "3", name="add", call_id="c7")


def test_the_schema_is_that_of_the_hints_and_the_docstring():
    tool = tool_of(add)
    function = json.loads(tool.schema)["function"]
    assert function["name"] == "add"
    assert function["parameters"]["required"] == ["a"]
    assert function["parameters"]["properties"]["b"] == {"type": "integer", "description": "The second."}
    assert read_tools([tool.schema]) == Toolbox([tool]).schemas


class Colour(Enum):
    RED = "red"


def no_hints(a):
    """Without hints.

    Args:
        a: Something.
    """


def no_docstring(a: int):
    return a


def no_description(a: int):
    """An argument without a description."""


def many(*a: int):
    """Several.

    Args:
        a: Numbers.
    """


def positional(a: int, /):
    """By place.

    Args:
        a: A number.
    """


def of_a_class(a: Fault):
    """A class.

    Args:
        a: An error.
    """


def of_an_enum(a: list[Colour]):
    """Colours.

    Args:
        a: Colours.
    """


@for_each([no_hints, no_docstring, no_description, many, positional, of_a_class, of_an_enum])
def test_functions_that_cannot_be_tools_are_named(function):
    with pytest.raises(TutelageError, match=function.__name__) as error:
        tool_of(function)
    assert "Args:" in str(error.value)


def test_a_function_without_a_name():
    with pytest.raises(TutelageError, match="lambda"):
        tool_of(lambda: 1)


@for_each([{"timeout": 0}, {"timeout": math.nan}, {"longest": 10}, {"retries": -1}])
def test_limits_out_of_their_ranges_are_named(limit):
    with pytest.raises(TutelageError, match=f"{next(iter(limit))}=.*'add'"):
        tool_of(add, **limit)


def test_a_schema_must_be_the_tools():
    with pytest.raises(TutelageError, match="'sum'"):
        Tool("sum", tool_of(add).schema, add)
    with pytest.raises(TutelageError, match="'sum'"):
        Tool("sum", "nonsense", add)


def test_two_tools_of_one_name():
    with pytest.raises(TutelageError, match="'add'"):
        Toolbox([tool_of(add), tool_of(add)])


def test_calls_that_cannot_be_run_say_why_and_are_counted():
    box = Toolbox([tool_of(add)])
    assert "add" in run(box, "multiply")
    assert "'b'" in run(box, "add", '{"a": 1, "b": "x"}')
    assert "JSON" in run(box, "add", '{"a": 1')
    assert "a" in run(box, "add")
    assert run(box, "add", json.dumps('{"a": 1}')) == "2"
    assert box.calls == {"calls": 5, "unknown": 1, "unreadable": 3, "calls/add": 4}
    assert Counter(calls=1) + box.calls == {"calls": 6, "unknown": 1, "unreadable": 3, "calls/add": 4}


def test_an_exception_is_a_message_and_its_first_is_logged(caplog):
    box = Toolbox([tool_raising(KeyError("x"))])
    assert run(box, "raised") == run(box, "raised") == "error: KeyError: 'x'"
    assert box.calls == {"calls": 2, "failures": 2, "calls/raised": 2, "failed/raised": 2}
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "test_tool.py" in caplog.text


@for_each([StopIteration(3), SystemExit(2), RecursionError("deep"), MemoryError(), asyncio.CancelledError()])
def test_exceptions_with_a_meaning_for_python_are_messages_too(error):
    assert content(tool_raising(error)).startswith(f"error: {type(error).__name__}")

    async def raised():
        """Raise the error."""
        raise error

    assert content(tool_of(raised)).startswith("error: ")


@dataclass
class Pair:
    a: int
    b: str


@for_each(
    [
        ("as it is", "as it is"),
        ("", ""),
        (None, "null"),
        (3, "3"),
        (["é", 1.5], '["é", 1.5]'),
        ({"a": [True]}, '{"a": [true]}'),
        (numpy.arange(3), "[0, 1, 2]"),
        (numpy.float32(0.5), "0.5"),
        ([Pair(1, "x")], '[{"a": 1, "b": "x"}]'),
        ("half \ud800", "half \\ud800"),
    ]
)
def test_results_are_texts_or_json(value, text):
    assert content(tool_returning(value)) == text
    message = content(tool_returning(value))
    message.encode()


@pytest.mark.parametrize("value", [b"12345", {"data": b"12345"}])
def test_a_binary_result_is_a_sentence(value):
    assert "5 bytes" in content(tool_returning(value))


def test_results_that_are_no_json_are_failures():
    circle: list[object] = []
    circle.append(circle)
    for value in (object(), {(1, 2): 3}, circle, {1, 2}):
        box = Toolbox([tool_returning(value)])
        assert run(box, "returned").startswith("error: ")
        assert box.calls["failures"] == 1


def test_a_long_result_keeps_its_beginning_and_end():
    text = content(tool_returning("a" * 5_000_000 + "z" * 5_000_000, longest=1_000))
    assert len(text) == 1_000
    assert text[0] == "a"
    assert text[-1] == "z"
    assert "9,999,000" in text


@for_each([199, 200, 201, 250, 10**6])
def test_a_shorter_text_has_exactly_its_limit(length):
    assert len(without_middle("x" * length, 200)) == min(length, 200)


def test_long_arguments_make_no_long_message():
    box = Toolbox([tool_of(add, longest=200)])
    assert len(run(box, "x" * 10**6)) < 300
    assert len(run(box, "add", json.dumps({"x" * 10**6: 1}))) <= 200


def test_a_fault_passes_after_the_repetitions(monkeypatch):
    monkeypatch.setattr(module, "PAUSE", 0.001)
    outcomes = iter([Fault("down"), Fault("down"), "up", Fault("gone"), Fault("gone"), Fault("gone")])

    def lookup():
        """Look it up."""
        outcome = next(outcomes)
        if isinstance(outcome, Fault):
            raise outcome
        return outcome

    box = Toolbox([tool_of(lookup, retries=2)])
    assert run(box, "lookup") == "up"
    with pytest.raises(Fault, match="gone"):
        run(box, "lookup")
    assert box.calls == {"calls": 2, "faults": 5, "calls/lookup": 2, "failed/lookup": 1}


def test_a_timeout_is_a_message():
    async def sleeper():
        """Sleep."""
        await asyncio.sleep(30)

    async def stubborn():
        """Ignore its cancellation."""
        for _ in range(3):
            try:
                await asyncio.sleep(0.3)
            except asyncio.CancelledError:
                continue

    def blocker():
        """Block."""
        time.sleep(1)

    def own():
        """Time out by itself."""
        raise TimeoutError("after three tries")

    start = time.monotonic()
    for function in (sleeper, stubborn, blocker, own):
        box = Toolbox([tool_of(function, timeout=0.05)])
        assert run(box, function.__name__).startswith("error: ")
        name = function.__name__
        assert box.calls == {"calls": 1, "timeouts": 1, f"calls/{name}": 1, f"failed/{name}": 1}
    assert time.monotonic() - start < 10


def test_many_sleeping_tools_wait_side_by_side():
    together = threading.Barrier(64, timeout=20)

    def meet(number: int):
        """Wait until 64 calls are there.

        Args:
            number: A number.
        """
        together.wait()
        return number

    box = Toolbox([tool_of(meet, timeout=30.0)])

    async def all_of_them():
        return await asyncio.gather(*(box.run(ToolCall("meet", f'{{"number": {n}}}')) for n in range(64)))

    assert [message.content for message in asyncio.run(all_of_them())] == [str(n) for n in range(64)]


def test_a_cancelled_call_cancels_its_function():
    ended = []

    async def sleeper():
        """Sleep."""
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(True)

    async def cancel():
        call = asyncio.ensure_future(Toolbox([tool_of(sleeper)]).run(ToolCall("sleeper", "")))
        await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.sleep(0.01)

    asyncio.run(cancel())
    assert ended == [True]


def test_a_wrapped_async_function_is_awaited_and_threads_see_context_variables():
    variable = contextvars.ContextVar("variable", default="none")

    async def inner():
        return variable.get()

    def outer():
        """Return what is to be awaited."""
        return inner()

    def plain():
        """Read the variable."""
        return variable.get()

    async def call(function):
        variable.set("episode 3")
        return (await Toolbox([tool_of(function)]).run(ToolCall(function.__name__, ""))).content

    assert asyncio.run(call(outer)) == asyncio.run(call(plain)) == "episode 3"


def test_a_thread_that_never_ends_does_not_hold_the_program(tmp_path):
    import subprocess

    code = """
import asyncio, threading
from tutelage.data.records import ToolCall
from tutelage.rollout.tools.tool import Tool, Toolbox
schema = '{"type": "function", "function": {"name": "wait"}}'
box = Toolbox([Tool("wait", schema, lambda: threading.Event().wait(), timeout=0.05)])
print(asyncio.run(box.run(ToolCall("wait", ""))).content)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith("error: ")


def test_literals_are_enums():
    def pick(unit: Literal["km", "mi"]):
        """Pick.

        Args:
            unit: A unit.
        """
        return unit

    assert content(tool_of(pick), '{"unit": "km"}') == "km"
    assert "km" in content(tool_of(pick), '{"unit": "m"}')


def test_arguments_that_the_function_does_not_take_are_a_message():
    schema = json.dumps({"type": "function", "function": {"name": "add", "parameters": {"additionalProperties": True}}})

    async def wait(a: int) -> int:
        return a

    for function in (add, wait):
        assert content(Tool("add", schema, function), '{"c": 1}').startswith("error: TypeError")


def test_half_a_surrogate_pair_in_a_name():
    asyncio.run(Toolbox([]).run(ToolCall("\ud800", ""))).name.encode()


def test_tools_bound_to_an_object_are_its_own_methods_alone():
    class Shop:
        def __init__(self, price):
            self.price = price

        def cost(self) -> int:
            """What it costs."""
            return self.price

        def add(self):
            raise AssertionError("no tool")

    box = Toolbox([tool_of(Shop(1).cost), tool_of(add)])
    bound = box.bound(Shop(7))
    assert (run(bound, "cost"), run(bound, "add", '{"a": 1}'), run(box, "cost")) == ("7", "2", "1")
    assert box.calls["calls"] == 3
    assert [run(box.among([box.schemas[0]]), name)[:5] for name in ("cost", "add")] == ["1", "error"]
    assert (box.calls["calls"], box.calls["unknown"]) == (5, 1)
