"""JSON texts have the values of the standard library, up to one depth; a key given twice is found wherever it is."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.data.json_values import DEEPEST, DeepJson, parse_json, repeated_key

KEYS = st.sampled_from(["a", "b", 'c": ', "d\\", ""])
TREES = st.recursive(
    st.none() | st.integers() | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(KEYS, inner), max_size=3).map(tuple),
    max_leaves=8,
)
"""A tuple is an object, as its pairs."""


def written(tree, gap):
    if isinstance(tree, tuple):
        return "{" + ",".join(f"{json.dumps(key)}{gap}:{gap}{written(item, gap)}" for key, item in tree) + "}"
    if isinstance(tree, list):
        return "[" + ",".join(written(item, gap) for item in tree) + "]"
    return json.dumps(tree)


def repeats(tree):
    """Keys that some object of a tree gives twice."""
    if isinstance(tree, tuple):
        keys = [key for key, _ in tree]
        return {key for key in keys if keys.count(key) > 1}.union(*(repeats(item) for _, item in tree))
    return set().union(*map(repeats, tree)) if isinstance(tree, list) else set()


@given(TREES, st.sampled_from(["", " ", "\n\t"]))
def test_a_key_is_found_twice_exactly_where_it_is(tree, gap):
    text = written(tree, gap).encode()
    key = repeated_key(text, parse_json(text))
    assert key in repeats(tree) if repeats(tree) else key is None


@given(TREES, st.booleans())
def test_values_are_those_of_the_standard_library(tree, strict):
    text = written(tree, "")
    assert parse_json(text, strict=strict) == parse_json(text.encode(), strict=strict) == json.loads(text)


@pytest.mark.parametrize("around", ["[%s]", '{"a": %s}', '[1, {"b": %s}]'])
@pytest.mark.parametrize("text", ["0", '"[["', "[]"])
def test_one_depth_is_refused_whatever_the_containers(around, text):
    levels = around.count("[") + around.count("{")
    for _ in range((DEEPEST - 2) // levels):
        text = around % text
    assert parse_json(text) == parse_json(text.encode())
    for deep in (around % (around % text), "[" * 100_000, "[" * 100_000 + "]" * 100_000):
        for form in (deep, deep.encode()):
            with pytest.raises(DeepJson):
                parse_json(form)


def test_numbers_that_json_does_not_have_are_read_unless_strict():
    for text, value in (("NaN", math.nan), ("-Infinity", -math.inf)):
        assert repr(parse_json(text)) == repr(value)
        with pytest.raises(ValueError, match=text.removeprefix("-")):
            parse_json(text, strict=True)
