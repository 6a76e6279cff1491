"""Conversion of cells to calls of tools and to the schemas of tools."""

import json
import re
from collections.abc import Mapping

from tutelage.data.json_values import parse_json
from tutelage.data.readers import a_type
from tutelage.data.records import ToolCall
from tutelage.data.row_values import Unusable, encodable


def read_calls(value: object, column: str) -> tuple[ToolCall, ...]:
    """Calls of a list, of a single object, or of the JSON text of either."""
    value = _loaded(value, f"a call in {column}")
    return tuple(read_call(item, column) for item in (value if isinstance(value, list) else [value]))


def without_nulls(value: object) -> object:
    """The value without the keys of its objects whose value is null: a table gives each object the keys of all."""
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def read_call(value: object, column: str) -> ToolCall:
    """Call with a `name` and `arguments` (an object or its JSON text), in `function` if there is one."""
    call = value if isinstance(value, Mapping) else {}
    function = call.get("function") if isinstance(call.get("function"), Mapping) else call
    assert isinstance(function, Mapping)
    name, arguments = function.get("name"), function.get("arguments", function.get("parameters"))
    if not isinstance(name, str) or not name.strip():
        raise Unusable(f"{column} has a call of a tool without a name")
    arguments = _loaded(arguments or {}, f"the arguments of a call in {column}")
    if not isinstance(arguments, Mapping):
        raise Unusable(f"{column} has a call of a tool whose arguments are {a_type(arguments)}, not an object")
    key = call.get("id")
    return ToolCall(name, _json(arguments, column), key if isinstance(key, str) else "" if key is None else str(key))


_SCHEMAS = re.compile(r"\s*(?:\[\s*(?:[{\]]|\"\s*\{)|null\s*\Z|\Z)")


def are_schemas(value: object) -> bool:
    """Whether a cell lists schemas of tools, or offers none: a list of objects or its JSON text. Other values, such as
    the name of a tool, have another meaning."""
    if isinstance(value, str):
        return _SCHEMAS.match(value) is not None
    return value is None or (
        isinstance(value, list)
        and all(isinstance(item, Mapping) or (isinstance(item, str) and item.lstrip()[:1] == "{") for item in value)
    )


def read_tools(value: object) -> tuple[str, ...]:
    """JSON schemas of tools in the form {"type": "function", "function": {"name": …}}: a list, or its JSON text. The
    schema of a function alone is put into this form."""
    value = _loaded(value, "tools")
    if value is None:
        return ()
    if not isinstance(value, list):
        raise Unusable(f"tools is {a_type(value)}, not a list of schemas")
    return tuple(_json(_schema(_loaded(item, "tools")), "tools") for item in value)


def _schema(item: object) -> Mapping[str, object]:
    if isinstance(item, Mapping):
        if isinstance(item.get("function"), Mapping) and item["function"].get("name"):
            return item
        if isinstance(item.get("name"), str):
            return {"type": "function", "function": item}
    raise Unusable("tools holds something other than the schema of a function with a name")


def _loaded(value: object, what: str) -> object:
    """The value of a JSON text; any other value as it is."""
    if not isinstance(value, str):
        return value
    try:
        return parse_json(value) if value.strip() else None
    except ValueError:
        raise Unusable(f"{what}: text that is not JSON") from None


def _json(value: object, column: str) -> str:
    try:
        return encodable(json.dumps(value, ensure_ascii=False, allow_nan=False), column)
    except (TypeError, ValueError, RecursionError):
        raise Unusable(f"{column} has a tool with values that JSON cannot hold") from None


# Calls in texts ------------------------------------------------------------------------------------------------------

_CALL = re.compile(r"<tool_call>\s*([{\[](?:(?!</tool_call>).)*[}\]])\s*</tool_call>", re.DOTALL)
_RESULT = re.compile(r"<tool_response>(.*?)</tool_response>", re.DOTALL)


def split_calls(content: str, column: str) -> tuple[str, tuple[ToolCall, ...]]:
    """(text, calls) of a text that ends with calls in <tool_call> marks: objects (Hermes) or lists (SmolLM2)."""
    if "<tool_call>" not in content:
        return content, ()
    text, calls = content.rstrip(), list[str]()
    for match in reversed(list(_CALL.finditer(content))):
        if match.end() != len(text):
            break
        text = content[: match.start()].rstrip()
        calls.append(match[1])
    if not calls:
        return content, ()
    return text, tuple(call for each in reversed(calls) for call in read_calls(each, column))


def results_in(content: str) -> list[str]:
    """Results of tools, each without its <tool_response> marks (Hermes); a text without marks is one result."""
    results = [result.strip() for result in _RESULT.findall(content)]
    return results if results and not _RESULT.sub("", content).strip() else [content]


def split_schemas(text: str) -> tuple[str, tuple[str, ...]]:
    """(text before the first schema, schemas) of a text that ends with the JSON schemas of functions (Glaive)."""
    decoder, start = json.JSONDecoder(), text.find("{")
    before, schemas = text if start < 0 else text[:start], list[object]()
    while start >= 0:
        try:
            schema, end = decoder.raw_decode(text, start)
        except ValueError:
            raise Unusable("the system text has functions that are not JSON") from None
        schemas.append(schema)
        start = text.find("{", end)
    return before, read_tools(schemas)
