"""Errors name the page of the documentation that explains them, or the command that prints help."""

import importlib.util
import pkgutil
import re
from pathlib import Path

import pytest
from offenders import for_each

import tutelage
from tutelage.base import extras
from tutelage.base.config import Model
from tutelage.base.errors import TutelageError
from tutelage.commands import line as cli
from tutelage.commands.pages import PAGES, page_about, page_named, pages
from tutelage.commands.table import ALIASES


@for_each(PAGES.items())
def test_modules_and_pages_are_there(module, page):
    assert importlib.util.find_spec(module)
    assert page in pages()


def test_pages_that_errors_name_themselves_are_there():
    packages = [module.name for module in pkgutil.walk_packages(tutelage.__path__, "tutelage.") if module.ispkg]
    sources = [Path(tutelage.__file__).parent / Path(*name.split(".")[1:]) for name in packages]
    texts = [file.read_text(encoding="utf-8") for folder in sources for file in folder.glob("*.py")]
    named = {page for text in texts for page in re.findall(r'^    page = "(.+)"$', text, re.MULTILINE)}
    named |= {page for text in texts for page in re.findall(r"docs/([\w/]+)\.md", text)}
    assert named - pages().keys() == set()


def test_an_error_belongs_to_the_module_that_raised_it():
    from tutelage.data.formats import load_preferences
    from tutelage.people.kinds import find_kind

    with pytest.raises(TutelageError) as error:
        load_preferences("nowhere.jsonl")
    assert page_about(error.value) == "tutelage docs data"
    with pytest.raises(TutelageError) as error:
        find_kind("nothing")
    assert page_about(error.value) == "tutelage docs collecting"


def test_an_error_of_base_belongs_to_the_module_that_called_it():
    from tutelage.algorithms.registry import recipe_named
    from tutelage.rewards.factory import make_reward

    for call, page in (
        (lambda: recipe_named("none:X"), "algorithms"),
        (lambda: make_reward(["none:x"], None, Model("nowhere")), "rewards"),
    ):
        with pytest.raises(TutelageError, match="none:") as error:
            call()
        assert page_about(error.value) == f"tutelage docs {page}"


def test_a_missing_library_is_explained_where_the_extras_are():
    with pytest.raises(TutelageError) as error:
        raise extras.missing(ModuleNotFoundError(name="pyarrow.parquet"), "Reading x.parquet")
    assert page_about(error.value) == "tutelage docs installation"


@for_each(
    [
        (["raters", "nowhere.csv"], "tutelage docs data"),
        (["sft", "--config", "nowhere.toml"], "tutelage sft --help"),
        (["align", "--config", "nowhere.toml"], "tutelage improve --help"),
        (["sttf"], "tutelage --help"),
        (["collect", "sserve"], "tutelage docs collecting"),
    ]
)
def test_an_error_ends_with_the_page_of_its_subject_or_of_its_command(words, place, capsys, monkeypatch):
    monkeypatch.setitem(ALIASES, "align", "improve")
    assert cli.main(words) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"See {place}"


@pytest.mark.parametrize(("command", "place"), [("raters", "tutelage docs raters"), ("sft", "tutelage sft --help")])
def test_flags_that_make_no_sense_end_with_the_page_of_the_command(command, place, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main([command, "--no-such-flag"])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"See {place}"


def test_help_ends_without_a_page(capsys):
    with pytest.raises(SystemExit):
        cli.main(["raters", "--help"])
    assert "See " not in capsys.readouterr().err


@for_each(["howto/prolific", "prolific", "docs/howto/prolific.md", "howto/prolific.md"])
def test_a_page_is_found_by_its_name_or_the_end_of_it(word):
    assert page_named(word).read_text(encoding="utf-8").startswith("# Run a study on Prolific")


def test_the_page_of_a_folder_has_its_name():
    assert page_named("lab").name == "README.md"


def test_another_page_is_refused_with_similar_names():
    with pytest.raises(TutelageError, match=r"'prolifik'; did you mean 'prolific'"):
        page_named("prolifik")
    with pytest.raises(TutelageError, match=r"did you mean 'howto/from_trl'\?"):
        page_named("trl")
