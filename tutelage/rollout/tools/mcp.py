"""Tools and results in the form of MCP, the Model Context Protocol."""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from tutelage.rollout.tools.tool import Tool


class ResultError(Exception):
    """Raised for a result that is an error of the tool. The text is for the policy."""


def tool_of_description(described: Mapping[str, Any], function: Callable[..., object]) -> Tool:
    """Tool with the name, the description and the schema of a server, whose calls have no time-out of their own."""
    parameters = described.get("input_schema") or {"type": "object", "properties": {}}
    own = {"name": described["name"], "description": described.get("description", ""), "parameters": parameters}
    return Tool(described["name"], json.dumps({"type": "function", "function": own}), function, timeout=math.inf)


def content_of(result: object) -> str:
    """Text of a result: its blocks, or any other value. Raises ResultError for one that is an error."""
    blocks = result.get("content") if isinstance(result, Mapping) else None
    if not isinstance(blocks, list):
        return observation_text(result)
    text = "\n".join(each["text"] if each.get("type") == "text" else json.dumps(each) for each in blocks)
    if isinstance(result, Mapping) and result.get("is_error"):
        raise ResultError(text)
    return text


def observation_text(observation: object) -> str:
    """An observation as text: of an object its only text, or else its JSON; nothing for an empty one."""
    if isinstance(observation, Mapping):
        held = {name: value for name, value in observation.items() if value not in (None, "", [], {})}
        texts = [value for value in held.values() if isinstance(value, str)]
        return texts[0] if len(texts) == len(held) == 1 else json.dumps(held, ensure_ascii=False) if held else ""
    return observation if isinstance(observation, str) else json.dumps(observation, ensure_ascii=False)
