"""Arguments of a call: JSON text, checked against the JSON schema of the function's parameters; and actions."""

import json
from collections.abc import Mapping
from typing import Any

from tutelage.base.nouns import counted
from tutelage.data.json_values import parse_json
from tutelage.data.readers import a_type

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


class UnfitArguments(Exception):
    """Raised for arguments that are no JSON, or that the schema does not allow. The text is for the policy."""


def read_arguments(text: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name of a JSON text; an empty text has none. `parameters` is the schema of an object.

    Checked are `type`, `nullable`, `enum`, `anyOf`, `items`, `prefixItems`, `properties`, `required` and
    `additionalProperties` (false unless the schema has it), which are all that `transformers.utils.get_json_schema`
    writes. Where the schema allows an object or an array and no text, the JSON text of either is read as well: models
    often encode twice. Integral numbers such as 3.0 become integers where an integer is required.

    Raises UnfitArguments.
    """
    schema = {"type": "object", "additionalProperties": False, **parameters}
    value = _fit(_parse(text, "the arguments") if text.strip() else {}, schema, "the arguments")
    assert isinstance(value, dict)
    return value


def read_action(text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Action of a text: a JSON object, also in a fence, or the value of the only required field of the schema. Raises
    UnfitArguments."""
    body = text.strip()
    if body.startswith("```") and body.endswith("```") and "\n" in body:
        body = body.partition("\n")[2].removesuffix("```").strip()
    try:
        value: Any = parse_json(body)
    except ValueError:
        value = body
    if isinstance(value, dict):
        return value
    required = schema.get("required", [])
    if len(required) != 1:
        raise UnfitArguments(f"an action is a JSON object with {', '.join(required) or 'the fields of its schema'}")
    kind = schema.get("properties", {}).get(required[0], {}).get("type")
    return {required[0]: body if kind == "string" else value}


def _parse(text: str, place: str) -> object:
    try:
        return parse_json(text, strict=True)
    except ValueError as error:
        raise UnfitArguments(f"{place} are not valid JSON: {error}") from None


def _fit(value: Any, schema: Mapping[str, Any], place: str) -> Any:
    """The value as the schema allows it."""
    if value is None and schema.get("nullable"):
        return None
    if "anyOf" in schema:
        return _first_fit(value, schema["anyOf"], place)
    types = schema.get("type", ())
    types = (types,) if isinstance(types, str) else tuple(types)
    if isinstance(value, str) and "string" not in types and {"object", "array"} & set(types):
        value = _parse(value, place)
    if "integer" in types and isinstance(value, float) and value.is_integer():
        value = int(value)
    if types and not any(_is_of(value, name) for name in types):
        expected = " or ".join(types)
        raise UnfitArguments(f"{place} must be of type {expected}, not {a_type(value)}")
    if "enum" in schema and not any(type(value) is type(one) and value == one for one in schema["enum"]):
        raise UnfitArguments(f"{place} must be one of {json.dumps(schema['enum'], ensure_ascii=False)}")
    if isinstance(value, list):
        return _fit_items(value, schema, place)
    return _fit_object(value, schema, place) if isinstance(value, dict) else value


def _is_of(value: object, name: str) -> bool:
    """Whether a value is of a type of JSON schema. True and false are no numbers; unknown types allow any value."""
    if name not in _TYPES or isinstance(value, bool):
        return name not in _TYPES or name == "boolean"
    return isinstance(value, _TYPES[name])


def _first_fit(value: Any, schemas: list[Mapping[str, Any]], place: str) -> Any:
    reasons = []
    for schema in schemas:
        try:
            return _fit(value, schema, place)
        except UnfitArguments as error:
            reasons.append(str(error))
    raise UnfitArguments("; or ".join(reasons))


def _fit_items(values: list[Any], schema: Mapping[str, Any], place: str) -> list[Any]:
    first = schema.get("prefixItems")
    if first is not None and len(first) != len(values):
        raise UnfitArguments(f"{place} must have {counted(len(first), 'item')}, not {len(values)}")
    schemas = first or [schema.get("items", {})] * len(values)
    pairs = enumerate(zip(values, schemas, strict=True))
    return [_fit(value, item, f"item {number} of {place}") for number, (value, item) in pairs]


def _fit_object(values: dict[str, Any], schema: Mapping[str, Any], place: str) -> dict[str, Any]:
    properties = schema.get("properties", {})
    missing = [name for name in schema.get("required", ()) if name not in values]
    if missing:
        raise UnfitArguments(f"{place} lack {', '.join(missing)}")
    others = schema.get("additionalProperties", True)
    unknown = [name for name in values if name not in properties]
    if unknown and others is False:
        expected = f"allowed are {', '.join(properties)}" if properties else "none is allowed"
        raise UnfitArguments(f"{place} have an unknown name {json.dumps(unknown[0], ensure_ascii=False)}; {expected}")
    rest = others if isinstance(others, Mapping) else {}
    return {name: _fit(value, properties.get(name, rest), f"{name!r}") for name, value in values.items()}
