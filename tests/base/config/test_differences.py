"""Differences of two configurations, named by their dotted keys."""

from hypothesis import given

from tutelage.base.config import difference, to_mapping

from .examples import Everything, Inner, everythings


@given(everythings, everythings)
def test_no_difference_means_equal(one: Everything, other: Everything) -> None:
    assert difference(one, one) == []
    assert difference(one, to_mapping(one)) == []
    assert (difference(one, other) == []) == (to_mapping(one) == to_mapping(other))


def test_differences_are_named_with_both_values() -> None:
    stored = to_mapping(Everything("x", flag=True))
    del stored["count"]
    given_now = Everything("x", flag=False, maybe=Inner())
    found = {one.key: str(one) for one in difference(stored, given_now)}
    assert found["flag"] == "flag (True against False)"
    assert found["count"] == "count (not set against 0)"
    assert found["maybe"] == "maybe (None against not set)"
    assert found["maybe.rate"] == "maybe.rate (not set against 0.5)"


def test_true_is_not_one() -> None:
    assert difference({"a": True}, {"a": 1}) != []
