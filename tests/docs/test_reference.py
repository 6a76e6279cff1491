"""The reference, which is written from the code when the site is built: it is complete, its links lead somewhere, and
every page has its place on the site."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest

import tutelage
from docs.fences import COMMON, unknown_flags
from docs.links import anchors, dead_links
from tutelage.algorithms.override import PIECES
from tutelage.commands.completion import commands as flags_by_command
from tutelage.commands.table import COMMANDS
from tutelage.core.preferences import PREFERENCE_LOSSES
from tutelage.people.store.schema import metadata
from tutelage.people.store.schema.dictionary import COLUMNS, EVERYWHERE, TABLES, meaning
from tutelage.people.web.routes import ROUTES
from tutelage.report.metrics import GROUPS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The pages of the site, those of docs/ and the reference."""
    made = tmp_path_factory.mktemp("site") / "docs"
    before = list(sys.path)
    try:
        runpy.run_path(str(DOCS / "site" / "generate.py"))["write"](made)
    finally:
        sys.path[:] = before
    return made


@pytest.fixture(scope="module")
def reference(folder):
    """The pages of the reference that are written from the code, by their paths below docs/."""
    paths = (page.relative_to(folder) for page in sorted(folder.rglob("*.md")))
    return {path.as_posix(): folder / path for path in paths if not (DOCS / path).exists()}


@pytest.fixture(scope="module")
def types(folder):
    return json.loads((folder / "types.json").read_text(encoding="utf-8"))


def text_of(page):
    return page.read_text(encoding="utf-8")


def rows_of(page):
    """What stands first in the rows of the tables of a page, within backticks."""
    return set(re.findall(r"^\| \[?`([^`]+)`", text_of(page), re.MULTILINE))


def test_no_link_of_the_reference_is_dead(reference):
    assert {path: dead for path, page in reference.items() if (dead := dead_links(page))} == {}


def test_the_reference_has_every_command_and_flag(reference):
    index = text_of(reference["reference/cli/README.md"])
    assert [each.name for each in COMMANDS if f"[{each.name}]({each.name}.md)" not in index] == []
    missing = []
    for (name, *rest), flags in flags_by_command().items():
        pages = [name, *rest] if name == "plan" else [name]  # a plan takes the flags of the command that it plans
        text = "".join(text_of(reference[f"reference/cli/{page}.md"]) for page in pages)
        missing += [(name, *rest, *flag.names) for flag in flags if not set(flag.names) & flags_in(text)]
    assert missing == []


def flags_in(text):
    return {*re.findall(r"`(--[\w.-]+)`", text), *COMMON}


def test_every_setting_has_a_meaning(reference):
    """No row of a command's tables ends in an empty cell."""
    rows = [
        line
        for path, page in reference.items()
        if path.startswith("reference/cli/")
        for line in text_of(page).splitlines()
    ]
    assert [line for line in rows if re.match(r"\| `--.*\|\s*\|$", line)] == []


def test_flags_within_sentences_of_the_reference_are_flags_of_the_command(reference):
    assert {path: flags for path, page in reference.items() if (flags := unknown_flags(text_of(page)))} == {}


def test_the_reference_has_every_metric(reference):
    names = {metric.name for metrics in GROUPS.values() for metric in metrics}
    assert rows_of(reference["reference/metrics.md"]) == names


def test_the_reference_has_every_route(reference):
    page = reference["reference/http.md"]
    assert rows_of(page) == {f"{route.method} {route.path}" for route in ROUTES}


def test_the_reference_has_every_table_and_column(reference):
    page = reference["reference/database.md"]
    assert set(metadata.tables) <= anchors(page)
    assert rows_of(page) == {column.name for table in metadata.tables.values() for column in table.columns}


def test_the_reference_has_every_piece_of_a_recipe_and_every_loss(reference):
    page = reference["reference/recipes.md"]
    assert {piece.__name__.lower() for pieces in PIECES.values() for piece in pieces} <= anchors(page)
    assert set(PREFERENCE_LOSSES) <= rows_of(page)


def test_the_reference_has_every_name_of_the_package(reference):
    assert rows_of(reference["reference/api/README.md"]) == {f"tt.{name}" for name in tutelage._PLACES}


def test_types_in_signatures_lead_to_their_descriptions(folder, types):
    """Every place has its heading; the settings, results and shapes that a reader looks for are among them."""
    assert types["tutelage.commands.improve.run"]["ImproveSettings"] == "reference/cli/improve.md"
    assert types["tutelage.commands.improve.run"]["ImproveResult"] == "reference/api/workflows.md#improveresult"
    assert types["tutelage.core.returns"]["PerToken"] == "reference/api/core.md#tutelagecoreshapes"
    places = {place.partition("#")[::2] for names in types.values() for place in names.values()}
    nowhere = [
        (page, slug)
        for page, slug in places
        if not (folder / page).is_file() or (slug and slug not in anchors(folder / page))
    ]
    assert nowhere == []


def test_types_are_linked_to_the_module_they_are_imported_from(types):
    assert types["tutelage.train.rl.improve"]["PolicyModel"] == "reference/api/train.md#policymodel"
    assert types["tutelage.commands.loading"]["Policy"] == "reference/api/models.md#policy"
    assert types["tutelage.commands.loading"]["Model"] == "reference/api/config.md#model"


def test_every_table_and_column_is_described():
    unsaid = [
        f"{table.name}.{column.name}"
        for table in metadata.tables.values()
        for column in table.columns
        if not meaning(table.name, column.name)
    ]
    assert unsaid == [], "describe them in people/store/schema/dictionary.py"
    assert set(TABLES) == set(COLUMNS) == set(metadata.tables)


def test_nothing_is_described_that_is_not_there():
    tables = metadata.tables
    gone = [f"{table}.{name}" for table, names in COLUMNS.items() for name in names if name not in tables[table].c]
    assert gone == []
    assert set(EVERYWHERE) <= {column.name for table in tables.values() for column in table.columns}


def test_the_page_about_serving_has_every_route():
    """Paths as the routes are made of them in the two files of the server."""
    serving = DOCS.parent / "tutelage" / "rollout" / "serving"
    source = "".join((serving / name).read_text(encoding="utf-8") for name in ("model_routes.py", "updates.py"))
    paths = {path.partition("/{")[0] for path in re.findall(r'"(/[\w/.-]+(?:/\{[\w:]+\})?)"', source)}
    page = (DOCS / "serving.md").read_text(encoding="utf-8")
    assert len(paths) > 10
    assert [path for path in paths if not re.search(rf"`(?:GET|POST) {path}[`/?]", page)] == []


def test_every_page_has_one_place_on_the_site(folder):
    contents = runpy.run_path(str(DOCS / "site" / "contents.py"))["CONTENTS"]
    places = ["index"]
    for page, below in contents.items():
        for names in below.values():
            for name in names:
                found = (path.with_suffix("") for path in (folder / page).parent.glob(f"{name}.md"))
                places += [path.relative_to(folder).as_posix() for path in found if path != folder / page]
    there = [path.with_suffix("").relative_to(folder).as_posix() for path in folder.rglob("*.md")]
    assert sorted(places) == sorted(there)
