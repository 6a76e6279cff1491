"""Settings: what goes in comes out, and what is wrong is refused by name."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tutelage.config import (
    Checkpoints,
    Lora,
    Model,
    Optimiser,
    Sampling,
    difference,
    from_mapping,
    load,
    resolve,
    save,
    to_mapping,
    with_defaults,
)
from tutelage.errors import TutelageError


@dataclass(frozen=True)
class Inner:
    rate: float = 0.5
    kind: Literal["plain", "fancy", 3] = "plain"
    pair: tuple[int, str] = (1, "one")
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Everything:
    text: str
    count: int = 0
    flag: bool = True
    limit: int | None = 7
    note: str | None = None
    amount: int | float = 0
    place: Path | None = None
    weights: dict[str, float] = field(default_factory=dict)
    inner: Inner = field(default_factory=lambda: Inner(rate=0.25))
    maybe: Inner | None = None


@dataclass(frozen=True)
class Outer:
    model: Model


floats = st.floats(allow_nan=False)
inners = st.builds(
    Inner,
    rate=floats,
    kind=st.sampled_from(["plain", "fancy", 3]),
    pair=st.tuples(st.integers(), st.text()),
    names=st.lists(st.text()).map(tuple),
)
everythings = st.builds(
    Everything,
    text=st.text(),
    count=st.integers(),
    flag=st.booleans(),
    limit=st.none() | st.integers(),
    note=st.none() | st.text().filter(lambda text: text != "None"),
    amount=st.integers() | floats,
    place=st.none() | st.just(Path("a/b c")),
    weights=st.dictionaries(st.text(), floats),
    inner=inners,
    maybe=st.none() | inners,
)


@given(everythings)
def test_a_mapping_gives_the_settings_back(settings: Everything) -> None:
    again = from_mapping(Everything, to_mapping(settings))
    assert again == settings
    assert repr(again) == repr(settings)  # 1 and 1.0 and True are equal, and not the same


@pytest.mark.parametrize("suffix", ["json", "toml"])
def test_a_file_gives_the_settings_back(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"settings.{suffix}"

    @given(everythings)
    def round_trip(settings: Everything) -> None:
        save(settings, path)
        assert repr(load(Everything, path)) == repr(settings)

    round_trip()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@given(everythings, everythings)
def test_no_difference_means_equal(one: Everything, other: Everything) -> None:
    assert difference(one, one) == []
    assert difference(one, to_mapping(one)) == []
    assert (difference(one, other) == []) == (to_mapping(one) == to_mapping(other))


def test_a_text_that_toml_would_read_as_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TutelageError, match=r"note = 'None'; save to a .json file"):
        save(Everything("x", note="None"), tmp_path / "a.toml")
    save(Everything("None", limit=None), tmp_path / "b.toml")  # only where None may stand is there a doubt
    assert load(Everything, tmp_path / "b.toml") == Everything("None", limit=None)


def test_a_file_that_cannot_be_written_is_named_and_the_old_one_stays(tmp_path: Path) -> None:
    (tmp_path / "a.json").mkdir()
    with pytest.raises(TutelageError, match=r"Cannot write .*a\.json: Is a directory"):
        save(Everything("x"), tmp_path / "a.json")
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_infinity_and_nan_survive_files(tmp_path: Path) -> None:
    for path in (tmp_path / "a.toml", tmp_path / "a.json"):
        save(Everything("x", amount=math.inf, inner=Inner(rate=math.nan)), path)
        again = load(Everything, path)
        assert again.amount == math.inf
        assert math.isnan(again.inner.rate)
        assert difference(again, Everything("x", amount=math.inf, inner=Inner(rate=math.nan))) == []


def test_differences_are_named_with_both_values() -> None:
    stored = to_mapping(Everything("x", flag=True))
    del stored["count"]
    given_now = Everything("x", flag=False, maybe=Inner())
    found = {one.key: str(one) for one in difference(stored, given_now)}
    assert found["flag"] == "flag (True against False)"
    assert found["count"] == "count (not set against 0)"
    assert found["maybe"] == "maybe (None against not set)"
    assert found["maybe.rate"] == "maybe.rate (not set against 0.5)"


def test_a_stored_mapping_gets_the_defaults_of_settings_that_are_newer() -> None:
    assert with_defaults(Everything, {"text": "x"}) == to_mapping(Everything("x"))
    assert with_defaults(Everything, {}) == {
        name: value for name, value in to_mapping(Everything("x")).items() if name != "text"
    }
    stored = with_defaults(Everything, {"text": "x", "inner": {"kind": 3}, "elsewhere": 1, "count": "3"})
    assert stored["inner"] == to_mapping(Inner(rate=0.25, kind=3))
    assert (stored["elsewhere"], stored["count"]) == (1, "3")
    assert with_defaults(Outer, {}) == {"model": {"dtype": "float32", "device": "auto", "engine": "auto"}}


def test_true_is_not_one() -> None:
    assert difference({"a": True}, {"a": 1}) != []


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        (
            {"text": "x", "cuont": 1},
            "unknown setting 'cuont': did you mean 'count'? The top level knows text, count",
        ),
        (
            {"text": "x", "inner": {"rat": 1}},
            "'inner.rat': did you mean 'rate'? [inner] knows rate, kind, pair",
        ),
        ({"text": "x", "inner": {"zzz": 1}}, "unknown setting 'inner.zzz'. [inner] knows rate"),
        ({"text": "x", "count": "3"}, "count must be a whole number, not the text '3'."),
        ({"text": "x", "count": 3.0}, "count must be a whole number, not the number 3.0."),
        ({"text": "x", "count": True}, "count must be a whole number, not true."),
        ({"text": "x", "flag": 1}, "flag must be true or false, not the number 1."),
        ({"text": 3}, "text must be a text, not the number 3."),
        ({"text": None}, "text must be a text, not nothing (null)."),
        ({"text": "x", "inner": {"rate": True}}, "inner.rate must be a number, not true."),
        ({"text": "x", "inner": {"rate": "1e-5"}}, "inner.rate must be a number, not the text '1e-5'."),
        (
            {"text": "x", "inner": {"kind": "odd"}},
            "inner.kind must be one of 'plain', 'fancy', 3, not the text 'odd'.",
        ),
        (
            {"text": "x", "inner": {"kind": 3.0}},
            "inner.kind must be one of 'plain', 'fancy', 3, not the number 3.0.",
        ),
        (
            {"text": "x", "inner": {"pair": [1]}},
            "inner.pair must be a list of 2 (a whole number, a text), not 1 of them",
        ),
        ({"text": "x", "inner": {"pair": [1, 2]}}, "inner.pair[1] must be a text, not the number 2."),
        (
            {"text": "x", "inner": {"names": "abc"}},
            "inner.names must be a list, each item a text, not the text 'abc'.",
        ),
        (
            {"text": "x", "inner": 3},
            "inner must be a section with rate, kind, pair, names, not the number 3.",
        ),
        ({"text": "x", "amount": "1"}, "amount must be a whole number or a number, not the text '1'."),
        ({"text": "x", "weights": {"a": "b"}}, "weights.a must be a number, not the text 'b'."),
        ({"text": "x", "limit": "None"}, "limit must be a whole number, not the text 'None'."),
        ({}, "text is required and was not given."),
    ],
)
def test_a_wrong_mapping_is_refused_by_name(mapping: dict[str, object], message: str) -> None:
    with pytest.raises(TutelageError) as caught:
        from_mapping(Everything, mapping)
    assert message in str(caught.value)


def test_a_whole_number_becomes_a_float_and_nothing_else_is_converted() -> None:
    settings = from_mapping(Everything, {"text": "x", "inner": {"rate": 1}, "amount": 1})
    assert repr(settings.inner.rate) == "1.0"
    assert repr(settings.amount) == "1"


def test_the_file_beats_the_defaults_and_the_overrides_beat_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('text = "file"\ncount = 5\nlimit = "None"\n[inner]\nnames = ["a"]\nkind = "fancy"\n')
    settings = resolve(Everything, path, {"count": 6, "inner.kind": 3, "maybe": {"rate": 2}})
    assert settings == Everything(
        text="file",
        count=6,
        limit=None,
        inner=Inner(rate=0.25, names=("a",), kind=3),  # the default of the field, not of its class
        maybe=Inner(rate=2.0),
    )


def test_a_required_value_may_come_from_either_side(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("count = 5\n")
    assert resolve(Everything, path, {"text": "x"}).text == "x"
    assert resolve(Everything, None, {"text": "x"}).text == "x"
    with pytest.raises(TutelageError, match="text is required"):
        resolve(Everything, path)


def test_the_settings_of_a_run_are_read_from_its_config(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"settings": {"text": "run"}, "versions": {}}')
    assert load(Everything, path) == Everything("run")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.toml", b"text = ", "is not valid TOML"),
        ("a.json", b"{", "is not valid JSON"),
        ("a.yaml", b"text: x", "a TOML file has to end in .toml"),
        ("a.json", b"[1]", "must hold named settings, not a list"),
        ("a.toml", b"\xff\xfe", "is not UTF-8"),
        ("a.toml", b"count = 'x'", "a.toml: count must be a whole number"),
        ("missing.toml", None, "Cannot read the settings file"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TutelageError) as caught:
        load(Everything, path)
    assert message in str(caught.value)
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("cls", "mapping"),
    [
        (Model, {"path": ""}),
        (Lora, {"rank": -1}),
        (Lora, {"rank": 4, "dropout": 1.0}),
        (Lora, {"rank": 4, "alpha": 0.0}),
        (Lora, {"alpha": 16.0}),  # inert without a rank
        (Sampling, {"temperature": -0.1}),
        (Sampling, {"temperature": math.nan}),
        (Sampling, {"top_k": -1}),
        (Sampling, {"top_p": 0.0}),
        (Sampling, {"top_p": 1.1}),
        (Sampling, {"min_p": 1.5}),
        (Sampling, {"max_new_tokens": 0}),
        (Sampling, {"temperature": 0.0, "top_k": 5}),  # inert when greedy
        (Optimiser, {"lr": 0.0}),
        (Optimiser, {"lr": math.nan}),
        (Optimiser, {"betas": [0.9, 1.0]}),
        (Optimiser, {"weight_decay": -1.0}),
        (Optimiser, {"warmup": -0.1}),
        (Optimiser, {"warmup": 10.5}),
        (Optimiser, {"max_norm": 0.0}),
        (Checkpoints, {"every": -1}),
        (Checkpoints, {"keep": 0}),
    ],
)
def test_settings_that_mean_nothing_are_refused(cls: type, mapping: dict[str, object]) -> None:
    with pytest.raises(TutelageError, match=r"\.$"):
        from_mapping(cls, mapping)


@pytest.mark.parametrize(
    ("warmup", "total", "steps"),
    [(0.0, 100, 0), (0.1, 100, 10), (0.5, 3, 2), (1.0, 100, 1), (20.0, 100, 20), (20.0, 5, 5)],
)
def test_warmup_is_a_share_below_one_and_a_count_from_one(warmup: float, total: int, steps: int) -> None:
    assert Optimiser(warmup=warmup).warmup_steps(total) == steps


def test_a_checkpoint_is_due_every_so_many_steps() -> None:
    assert [step for step in range(1, 11) if Checkpoints(every=4).due(step)] == [4, 8]
    assert not any(Checkpoints(every=0).due(step) for step in range(1, 11))
