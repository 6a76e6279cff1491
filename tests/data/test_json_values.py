"""Values of JSON texts: keys that an object gives twice are found, whatever stands around them."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tutelage.data.json_values import parse_json, repeated_key

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
