"""Steps of conversations and texts."""

import json
from pathlib import Path

import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.data.formats import load_traces
from tutelage.data.records import Demonstration, Message, ToolCall, user
from tutelage.data.traces import split_text, split_trace, unrated

CALL = Message("assistant", "", calls=(ToolCall("add", "{}", "c1"),))
RESULT = Message("tool", "4", call_id="c1")
END = Message("assistant", "It is 4.")


def test_a_step_is_a_message_of_the_assistant_with_what_comes_back() -> None:
    prompt = (Message("system", "Be exact."), *user("2 + 2?"))
    asked = Message("user", "Are you sure?")
    assert split_trace((*prompt, CALL, RESULT, END, asked, END)) == (prompt, ((CALL, RESULT), (END, asked), (END,)))
    assert split_trace(prompt) == (prompt, ())


@for_each(
    [
        ("one\n\ntwo\n \n\t\nthree", ("one", "two", "three")),
        ("\n\none\nstill one\n\n", ("one\nstill one",)),
        ("    code\n\nmore", ("    code", "more")),
        ("one\r\n\r\ntwo", ("one\r", "two")),
        ("\n \n", ()),
    ]
)
def test_blank_lines_separate_the_steps_of_a_text(text: str, parts: tuple[str, ...]) -> None:
    assert split_text(text) == parts


def test_a_completion_after_messages_of_the_assistant_is_the_last_step() -> None:
    trace = unrated(Demonstration((*user("2 + 2?"), CALL, RESULT), "It is 4."))
    assert (trace.messages, trace.steps, trace.labels) == (user("2 + 2?"), ((CALL, RESULT), (END,)), (None, None))


def test_every_form_of_rows_gives_the_steps(tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    trace = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "4", "tool_call_id": "c1"},
        {"role": "assistant", "content": "It is 4."},
    ]
    rows = {
        "messages": {"messages": [{"role": "user", "content": "2 + 2?"}, *trace]},
        "completion": {"prompt": [{"role": "user", "content": "2 + 2?"}], "completion": trace},
        "steps": {"prompt": "2 + 2?", "completions": [trace[:2], trace[2:]]},
    }
    for name, row in rows.items():
        path = tmp_path / f"{name}.jsonl"
        path.write_text(json.dumps(row) + "\n")
        (record,) = load_traces(path).records
        assert (record.messages, record.steps) == (user("2 + 2?"), ((CALL, RESULT), (END,))), name
    path.write_text('{"text": "a text without a prompt"}\n')
    with pytest.raises(TutelageError, match="before the first step"):
        load_traces(path)
