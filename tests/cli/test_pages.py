"""Errors name the page of the documentation that explains them."""

import importlib.util
import pkgutil
import re
from pathlib import Path

import pytest

import tutelage
from tutelage import cli, extras
from tutelage.cli.pages import PAGES, SITE, page_about
from tutelage.errors import TutelageError

DOCS = Path(cli.__file__).parents[2] / "docs"


@pytest.mark.parametrize(("module", "page"), PAGES.items())
def test_modules_and_pages_are_there(module, page):
    assert importlib.util.find_spec(module)
    assert (DOCS / page).is_file()


def test_pages_that_errors_name_themselves_are_there():
    packages = [
        module.name for module in pkgutil.walk_packages(tutelage.__path__, "tutelage.") if module.ispkg
    ]
    sources = [Path(tutelage.__file__).parent / Path(*name.split(".")[1:]) for name in packages]
    texts = [file.read_text(encoding="utf-8") for folder in sources for file in folder.glob("*.py")]
    named = {page for text in texts for page in re.findall(r'^    page = "(.+)"$', text, re.MULTILINE)}
    named |= {page for text in texts for page in re.findall(r"docs/([\w/]+\.md)", text)}
    assert [page for page in named if not (DOCS / page).is_file()] == []


def test_an_error_belongs_to_the_module_that_raised_it():
    from tutelage.data.formats import load_preferences
    from tutelage.people.kinds import find_kind

    with pytest.raises(TutelageError) as error:
        load_preferences("nowhere.jsonl")
    assert page_about(error.value) == f"{SITE}/data.md"
    with pytest.raises(TutelageError) as error:
        find_kind("nothing")
    assert page_about(error.value) == f"{SITE}/collecting.md"


def test_a_missing_library_is_explained_where_the_extras_are():
    with pytest.raises(TutelageError) as error:
        raise extras.missing(ModuleNotFoundError(name="pyarrow.parquet"), "Reading x.parquet")
    assert page_about(error.value) == f"{SITE}/installation.md"
    assert (DOCS / "installation.md").is_file()


def test_an_error_without_a_page_names_none(capsys):
    assert page_about(TutelageError("Never raised.")) == ""
    assert cli.main(["sttf"]) == 2
    assert "See " not in capsys.readouterr().err
    assert cli.main(["raters", "nowhere.csv"]) == 2
    assert capsys.readouterr().err == f"error: There is no file nowhere.csv.\nSee {SITE}/data.md\n"
