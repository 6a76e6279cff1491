"""Tools and results in the form of MCP."""

import json
import math

import pytest
from offenders import for_each

from tutelage.rollout.tools.mcp import ResultError, content_of, observation_text, tool_of_description


def test_a_tool_has_the_schema_of_its_description_and_no_time_of_its_own() -> None:
    parameters = {"type": "object", "properties": {"place": {"type": "string"}}}
    tool = tool_of_description({"name": "far", "description": "Miles", "input_schema": parameters}, print)
    assert json.loads(tool.schema)["function"] == {"name": "far", "description": "Miles", "parameters": parameters}
    assert (tool.name, tool.timeout) == ("far", math.inf)
    assert tool_of_description({"name": "now"}, print).parameters == {"type": "object", "properties": {}}


@for_each(
    [
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
        ({"content": [{"type": "image", "data": "x"}]}, '{"type": "image", "data": "x"}'),
        ({"content": "text"}, "text"),
        ({"miles": 6, "why": None}, '{"miles": 6}'),
        ([1, "ä"], '[1, "ä"]'),
        (None, "null"),
        ({}, ""),
    ]
)
def test_a_result_is_its_texts_or_its_json(result: object, text: str) -> None:
    assert content_of(result) == text


def test_a_result_that_is_an_error_is_raised() -> None:
    with pytest.raises(ResultError, match="no such place"):
        content_of({"content": [{"type": "text", "text": "no such place"}], "is_error": True})


def test_an_observation_is_its_only_text_or_what_it_has() -> None:
    assert observation_text({"hint": "1 to 9", "done": None, "metadata": {}}) == "1 to 9"
    assert observation_text({"hint": "1 to 9", "tries": 0}) == '{"hint": "1 to 9", "tries": 0}'
