"""Settings and mappings: what goes in comes out, and what is wrong is refused by name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from hypothesis import given
from offenders import for_each

from tutelage.base.config import LATER, difference, from_mapping, identity, to_mapping, with_defaults
from tutelage.base.errors import TutelageError

from .examples import Everything, Inner, Outer, everythings


@given(everythings)
def test_a_mapping_gives_the_settings_back(settings: Everything) -> None:
    again = from_mapping(Everything, to_mapping(settings))
    assert again == settings
    assert repr(again) == repr(settings)  # 1 and 1.0 and True are equal, and not the same


def test_a_stored_mapping_gets_the_defaults_of_settings_that_are_newer() -> None:
    assert with_defaults(Everything, {"text": "x"}) == to_mapping(Everything("x"))
    assert with_defaults(Everything, {}) == {
        name: value for name, value in to_mapping(Everything("x")).items() if name != "text"
    }
    stored = with_defaults(Everything, {"text": "x", "inner": {"kind": 3}, "elsewhere": 1, "count": "3"})
    assert stored["inner"] == to_mapping(Inner(rate=0.25, kind=3))
    assert (stored["elsewhere"], stored["count"]) == (1, "3")
    assert with_defaults(Outer, {}) == {"model": {"dtype": "float32", "device": "auto", "engine": "auto"}}


@dataclass(frozen=True)
class Grown:
    """Settings to which one was added since fingerprints were taken."""

    depth: int = 1
    added: int = field(default=5, metadata=LATER)


@dataclass(frozen=True)
class Outside:
    """Settings with such a section."""

    grown: Grown


def test_the_identity_of_settings_outlives_a_setting_that_is_added_later() -> None:
    assert identity(Grown()) == {"depth": 1}
    assert identity(Grown(added=6)) == {"depth": 1, "added": 6}
    assert identity(Outside(Grown(depth=2))) == {"grown": {"depth": 2}}
    assert identity(Everything("x")) == to_mapping(Everything("x")), "defaults of other settings stay"


@dataclass(frozen=True)
class Range:
    """A section that was added later, into which a setting moved that had been outside."""

    low: int = 0
    high: int = 9


@dataclass(frozen=True)
class Renamed:
    """Settings of which all were renamed since fingerprints were taken."""

    depth: int = 1
    limits: Range = field(default_factory=Range, metadata=LATER)
    added: int = field(default=5, metadata=LATER)
    ALIASES: ClassVar[Mapping[str, str]] = {"k": "depth", "level": "depth", "maximum": "limits.high", "extra": "added"}


@for_each(
    [
        (Renamed(), {"k": 1, "maximum": 9}),
        (Renamed(depth=2, limits=Range(high=3)), {"k": 2, "maximum": 3}),
        (Renamed(limits=Range(low=1)), {"k": 1, "maximum": 9, "limits": {"low": 1}}),
        (Renamed(added=6), {"k": 1, "maximum": 9, "extra": 6}),
    ]
)
def test_the_identity_of_settings_outlives_new_names(settings: Renamed, fingerprinted: dict[str, object]) -> None:
    assert identity(settings) == fingerprinted


@for_each(
    [
        ({"text": "x", "cuont": 1}, "unknown setting 'cuont'; did you mean 'count'? The top level knows text, count"),
        ({"text": "x", "inner": {"rat": 1}}, "'inner.rat'; did you mean 'rate'? [inner] knows rate, kind, pair"),
        ({"text": "x", "inner": {"zzz": 1}}, "unknown setting 'inner.zzz'. [inner] knows rate"),
        ({"text": "x", "count": "3"}, "count must be a whole number, not the text '3'."),
        ({"text": "x", "count": 3.0}, "count must be a whole number, not the number 3.0."),
        ({"text": "x", "count": True}, "count must be a whole number, not true."),
        ({"text": "x", "flag": 1}, "flag must be true or false, not the number 1."),
        ({"text": 3}, "text must be a text, not the number 3."),
        ({"text": None}, "text must be a text, not nothing (null)."),
        ({"text": "x", "inner": {"rate": True}}, "inner.rate must be a number, not true."),
        ({"text": "x", "inner": {"rate": "1e-5"}}, "inner.rate must be a number, not the text '1e-5'."),
        ({"text": "x", "inner": {"kind": "odd"}}, "inner.kind must be one of 'plain', 'fancy', 3, not the text 'odd'."),
        ({"text": "x", "inner": {"kind": 3.0}}, "inner.kind must be one of 'plain', 'fancy', 3, not the number 3.0."),
        (
            {"text": "x", "inner": {"pair": [1]}},
            "inner.pair must be a list of 2 (a whole number, a text), not 1 of them",
        ),
        ({"text": "x", "inner": {"pair": [1, 2]}}, "inner.pair[1] must be a text, not the number 2."),
        ({"text": "x", "inner": {"names": "abc"}}, "inner.names must be a list, each item a text, not the text 'abc'."),
        ({"text": "x", "inner": 3}, "inner must be a section with rate, kind, pair, names, not the number 3."),
        ({"text": "x", "amount": "1"}, "amount must be a whole number or a number, not the text '1'."),
        ({"text": "x", "weights": {"a": "b"}}, "weights.a must be a number, not the text 'b'."),
        ({"text": "x", "limit": "None"}, "limit must be a whole number, not the text 'None'."),
        ({}, "text is required and has no value."),
    ]
)
def test_a_wrong_mapping_is_refused_by_name(mapping: dict[str, object], message: str) -> None:
    with pytest.raises(TutelageError) as caught:
        from_mapping(Everything, mapping)
    assert message in str(caught.value)


def test_a_whole_number_becomes_a_float_and_nothing_else_is_converted() -> None:
    settings = from_mapping(Everything, {"text": "x", "inner": {"rate": 1}, "amount": 1})
    assert repr(settings.inner.rate) == "1.0"
    assert repr(settings.amount) == "1"


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
