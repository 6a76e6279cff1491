"""Arguments of calls against schemas, and against the validator of jsonschema where both define a value."""

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from offenders import for_each

from tutelage.rollout.tools.arguments import UnfitArguments, read_action, read_arguments

PARAMETERS = {
    "type": "object",
    "properties": {
        "count": {"type": "integer"},
        "rate": {"type": ["integer", "number"]},
        "name": {"type": "string", "nullable": True},
        "flag": {"type": "boolean"},
        "unit": {"type": "string", "enum": ["km", "mi"]},
        "list": {"type": "array", "items": {"type": "integer"}},
        "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}]},
        "map": {"type": "object", "additionalProperties": {"type": "number"}},
        "either": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "string"}}]},
    },
}


@for_each(
    [
        {},
        {"count": 3, "rate": 0.5, "name": None, "flag": True, "unit": "km"},
        {"list": [1, 2], "pair": [1, "a"], "map": {"x": 1.5}, "either": ["a"]},
    ]
)
def test_values_that_fit_are_unchanged(values):
    assert read_arguments(json.dumps(values), PARAMETERS) == values


@for_each(
    [
        ('{"count": "3"}', "count"),
        ('{"count": true}', "count"),
        ('{"count": 1.5}', "count"),
        ('{"count": null}', "count"),
        ('{"rate": NaN}', "NaN"),
        ('{"unit": "m"}', "unit"),
        ('{"flag": 1}', "flag"),
        ('{"list": [1, "2"]}', "item 1"),
        ('{"list": 1}', "list"),
        ('{"pair": [1]}', "pair"),
        ('{"map": {"x": "1"}}', "x"),
        ('{"either": "a"}', "either"),
        ('{"other": 1}', "other"),
        ('{"count": 3', "JSON"),
        ("[1]", "object"),
        ("3", "object"),
        ("[" * 100_000, "deep"),
    ]
)
def test_values_that_do_not_fit_are_named(text, word):
    with pytest.raises(UnfitArguments, match=word):
        read_arguments(text, PARAMETERS)


def test_required_arguments():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    assert read_arguments('{"a": 1}', schema) == {"a": 1}
    for text in ("{}", "", "  "):
        with pytest.raises(UnfitArguments, match="a"):
            read_arguments(text, schema)


def test_json_within_json_is_read_where_an_object_or_array_is_required():
    values = {"list": [1, 2], "map": {"x": 1}}
    twice = json.dumps(json.dumps({name: json.dumps(value) for name, value in values.items()}))
    assert read_arguments(twice, PARAMETERS) == values
    assert read_arguments('{"name": "{}"}', PARAMETERS) == {"name": "{}"}


def test_an_integral_number_is_an_integer():
    value = read_arguments('{"count": 3.0}', PARAMETERS)["count"]
    assert value == 3
    assert isinstance(value, int)


def test_an_empty_text_has_no_arguments():
    assert read_arguments("", {}) == {}
    with pytest.raises(UnfitArguments, match="x"):
        read_arguments('{"x": 1}', {})


@for_each(
    [
        ('{"value": 3, "why": "so"}', ["value", "why"], {"value": 3, "why": "so"}),
        ('```json\n{"value": 3}\n```', ["value"], {"value": 3}),
        ("3", ["value"], {"value": 3}),
        ("[3]", ["name"], {"name": "[3]"}),
        ("three", ["value"], {"value": "three"}),
        ("[" * 100_000, ["name"], {"name": "[" * 100_000}),
    ]
)
def test_a_text_is_an_action(text, required, action):
    properties = {"value": {"type": "integer"}, "name": {"type": "string"}}
    assert read_action(text, {"required": required, "properties": properties}) == action


def test_a_text_is_no_action_of_several_fields():
    with pytest.raises(UnfitArguments, match="value, why"):
        read_action("3", {"required": ["value", "why"]})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.5, "km", "q"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["x", "y"]), inner, max_size=2),
    max_leaves=4,
)


@given(name=st.sampled_from(sorted(set(PARAMETERS["properties"]) - {"name", "pair"})), value=VALUES)
def test_what_fits_is_what_jsonschema_calls_valid(name, value):
    """Without `nullable`, which is OpenAPI's, and the length of `prefixItems`, which jsonschema leaves open."""
    valid = jsonschema.Draft202012Validator(PARAMETERS).is_valid({name: value})
    try:
        fits = read_arguments(json.dumps({name: value}), PARAMETERS) == {name: value}
    except UnfitArguments:
        fits = False
    assert fits == valid
