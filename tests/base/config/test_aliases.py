"""Old names of settings and commands: they go on working, say so once, and never fight the present name."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from offenders import for_each

from tutelage.base.config import from_mapping, load, to_mapping, with_defaults
from tutelage.base.config.aliases import Alias, aliases, used_aliases, without_aliases
from tutelage.base.config.flags import settings_from
from tutelage.base.errors import TutelageError
from tutelage.commands import line as cli
from tutelage.commands import table
from tutelage.commands.calls import settings_from as settings_from_keywords


@dataclass(frozen=True)
class Filter:
    """Which tokens stay."""

    top_k: int = 0
    """How many."""
    strict: bool = True
    """Whether."""
    ALIASES: ClassVar[Mapping[str, str]] = {"k": "top_k", "harsh": "strict"}


@dataclass(frozen=True)
class Base:
    """What every command has."""

    seed: int = 0
    """The seed."""
    ALIASES: ClassVar[Mapping[str, str]] = {"random_state": "seed"}


@dataclass(frozen=True)
class Settings(Base):
    """A command whose settings were renamed, and one moved into another section."""

    filter: Filter = field(default_factory=Filter)
    """Tokens."""
    fallback: Filter | None = None
    """Tokens otherwise."""
    note: str = ""
    """A note."""
    ALIASES: ClassVar[Mapping[str, str]] = {"filter.comment": "note", "max_k": "filter.top_k"}


OLD: dict[str, Any] = {"random_state": 4, "filter": {"k": 3, "comment": "c"}, "fallback": {"harsh": False}}
NEW: dict[str, Any] = {"seed": 4, "filter": {"top_k": 3}, "note": "c", "fallback": {"strict": False}}


def test_classes_bases_and_sections_have_theirs() -> None:
    assert set(aliases(Settings)) == {
        Alias("random_state", "seed"),
        Alias("filter.comment", "note"),
        Alias("max_k", "filter.top_k"),
        Alias("filter.k", "filter.top_k"),
        Alias("filter.harsh", "filter.strict"),
        Alias("fallback.k", "fallback.top_k"),
        Alias("fallback.harsh", "fallback.strict"),
    }


def test_an_old_mapping_means_the_same_as_a_new_one() -> None:
    assert without_aliases(Settings, OLD) == NEW
    assert without_aliases(Settings, NEW) == NEW
    assert OLD["filter"] == {"k": 3, "comment": "c"}, "the argument stays as it is"
    assert from_mapping(Settings, OLD) == from_mapping(Settings, NEW)
    assert with_defaults(Settings, OLD) == to_mapping(from_mapping(Settings, NEW)) | {"fallback": {"strict": False}}
    assert from_mapping(Settings, {"max_k": 3}) == from_mapping(Settings, {"filter": {"top_k": 3}})


def test_what_is_used_is_told() -> None:
    assert {alias.old for alias in used_aliases(Settings, OLD)} == {
        "random_state",
        "filter.k",
        "filter.comment",
        "fallback.harsh",
    }
    assert used_aliases(Settings, NEW) == []
    assert used_aliases(Settings, {"filter": "k"}) == []


@pytest.mark.parametrize("both", [{"seed": 1, "random_state": 1}, {"max_k": 1, "filter": {"k": 1}}])
def test_two_names_for_one_setting_are_refused(both: dict[str, object]) -> None:
    with pytest.raises(TutelageError, match=r"old name of .*both are set"):
        from_mapping(Settings, both)


def test_an_old_name_is_neither_known_nor_offered_elsewhere() -> None:
    with pytest.raises(TutelageError, match=r"unknown setting 'k'.*knows seed, filter"):
        from_mapping(Settings, {"k": 1})


@for_each(
    [
        ("--random-state 7", {"seed": 7}),
        ("--random_state=7", {"seed": 7}),
        ("--filter.k 2 --filter.no-harsh", {"filter": {"top_k": 2, "strict": False}}),
        ("--max-k=2 --filter.comment x", {"filter": {"top_k": 2}, "note": "x"}),
    ]
)
def test_an_old_flag_works_and_says_so(
    words: str, expected: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert settings_from(Settings, words.split(), prog="p") == from_mapping(Settings, expected)
    out, err = capsys.readouterr()
    old = [word.partition("=")[0] for word in words.split() if word.startswith("--")]
    assert out == ""
    assert [line.split()[1] for line in err.splitlines()] == old
    assert all(line.endswith("; the old name will be removed in the next release.") for line in err.splitlines())


def test_keyword_arguments_take_old_names() -> None:
    assert settings_from_keywords(Settings, {"random_state": 4, "filter": {"k": 3}}) == Settings(
        seed=4, filter=Filter(top_k=3)
    )


def test_a_present_flag_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert settings_from(Settings, ["--seed", "7"], prog="p").seed == 7
    assert capsys.readouterr().err == ""


def test_an_old_file_works_and_flags_beat_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "old.toml"
    path.write_text("random_state = 4\n[filter]\nk = 3\n")
    assert load(Settings, path) == Settings(seed=4, filter=Filter(top_k=3))
    assert capsys.readouterr().err == "", "a library does not print"
    found = settings_from(Settings, ["--config", str(path), "--filter.top-k", "5"], prog="p")
    assert found == Settings(seed=4, filter=Filter(top_k=5))
    assert capsys.readouterr().err.splitlines() == [
        f"note: {path}: the setting {old} is now called {new}; the old name will be removed in the next release."
        for old, new in (("random_state", "seed"), ("filter.k", "filter.top_k"))
    ]


def test_the_old_name_of_a_command_runs_it_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "ALIASES", {"formulas": "recipes"})
    assert cli.main(["recipes"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert cli.main(["formulas"]) == 0
    assert capsys.readouterr() == (
        out,
        "note: the command formulas is now called recipes; the old name will be removed in the next release.\n",
    )


def test_every_alias_leads_to_something_that_is_there() -> None:
    commands = {command.name for command in table.COMMANDS}
    assert set(cli.ALIASES.values()) <= commands
    assert not set(cli.ALIASES) & commands
