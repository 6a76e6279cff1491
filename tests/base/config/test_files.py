"""Settings in files: written whole, read back exactly, named when they are bad."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from offenders import for_each

from tutelage.base.config import Optimiser, load, resolve, save
from tutelage.base.config.flags import settings_from
from tutelage.base.errors import TutelageError

from .examples import Everything, Inner, everythings


@pytest.mark.parametrize("suffix", ["json", "toml"])
def test_a_file_gives_the_settings_back(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"settings.{suffix}"

    @given(everythings)
    def round_trip(settings: Everything) -> None:
        save(settings, path)
        assert repr(load(Everything, path)) == repr(settings)

    round_trip()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


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


def test_numbers_of_files_are_finite_unless_a_setting_may_be_infinite(tmp_path: Path) -> None:
    for path in (tmp_path / "a.toml", tmp_path / "a.json"):
        save(Optimiser(max_norm=math.inf), path)
        assert load(Optimiser, path).max_norm == math.inf
        for number in (math.inf, -math.inf, math.nan):
            save(Everything("x", inner=Inner(rate=number)), path)
            with pytest.raises(TutelageError, match=rf"--inner\.rate is {number};"):
                load(Everything, path)


@for_each(["inf", "-inf", "nan"])
def test_numbers_of_flags_are_finite(number: str) -> None:
    with pytest.raises(TutelageError, match=rf"--inner\.rate is {number};"):
        settings_from(Everything, ["--text", "x", f"--inner.rate={number}"], prog="test")
    assert settings_from(Optimiser, ["--max-norm", "inf"], prog="test").max_norm == math.inf


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
    path.write_text('{"format": "tutelage-run/1", "settings": {"text": "run"}, "versions": {}}')
    assert load(Everything, path) == Everything("run")
    for other in ("", '"format": "tutelage-run/0", '):
        path.write_text(f'{{{other}"settings": {{"text": "run"}}, "versions": {{}}}}')
        with pytest.raises(TutelageError, match=r"tutelage-run/1'.*version"):
            load(Everything, path)


@for_each(
    [
        ("a.toml", b"text = ", "is not valid TOML"),
        ("a.json", b"{", "is not valid JSON"),
        ("a.yaml", b"text: x", "end in .toml"),
        ("a.json", b"[1]", "not a list"),
        ("a.toml", b"\xff\xfe", "is not UTF-8"),
        ("a.toml", b"count = 'x'", "a.toml: count must"),
        ("missing.toml", None, "Cannot read"),
    ]
)
def test_a_bad_file_is_named(name: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TutelageError) as caught:
        load(Everything, path)
    assert message in str(caught.value)
    assert name in str(caught.value)
