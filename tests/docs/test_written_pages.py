"""The pages that are written from the code say what the code says, and every page has its place on the site."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest

from tutelage.people.store.schema import metadata
from tutelage.people.store.schema.dictionary import COLUMNS, EVERYWHERE, TABLES, meaning

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def written():
    """Every written page by its path."""
    before = list(sys.path)
    try:
        return runpy.run_path(str(DOCS / "site" / "generate.py"))["pages"]()
    finally:
        sys.path[:] = before


def test_the_pages_are_those_that_the_code_would_write(written):
    stale = [path for path, text in written.items() if (DOCS / path).read_text(encoding="utf-8") != text]
    assert stale == [], "run make pages"


def test_no_page_is_left_of_what_is_no_longer_written(written):
    by_hand = {"reference/README.md", "reference/files.md"}
    there = {path.relative_to(DOCS).as_posix() for path in (DOCS / "reference").rglob("*.md")}
    assert there == {path for path in written if path.endswith(".md")} | by_hand


def test_types_in_signatures_lead_to_their_descriptions(written):
    """Every place has its heading; the settings, results and shapes that a reader looks for are among them."""
    types = json.loads(written["site/types.json"])
    assert types["tutelage.commands.improve.run"]["ImproveSettings"] == "reference/cli/improve.md"
    assert (
        types["tutelage.commands.improve.run"]["ImproveResult"] == "reference/api/workflows.md#improveresult"
    )
    assert types["tutelage.core.returns"]["PerToken"] == "reference/api/core.md#tutelagecoreshapes"
    places = {place for names in types.values() for place in names.values()}
    assert [place for place in places if place.partition("#")[0] not in written] == []
    headings = {
        path: {re.sub(r"[^\w-]", "", line.lower()) for line in re.findall(r"^#+ (.*)", text, re.MULTILINE)}
        for path, text in written.items()
    }
    anchored = [place.split("#") for place in places if "#" in place]
    assert [(path, slug) for path, slug in anchored if re.sub(r"-\d+$", "", slug) not in headings[path]] == []


def test_types_of_one_name_in_two_modules_are_told_apart(written):
    """The `Policy` of the loop is a protocol, that of the workflows a model; `Model` is a setting, or one of raters."""
    types = json.loads(written["site/types.json"])
    assert types["tutelage.train.rl.improve"]["Policy"] == "reference/api/train.md#policy"
    assert types["tutelage.commands.loading"]["Policy"] == "reference/api/models.md#policy"
    assert types["tutelage.commands.loading"]["Model"] == "reference/api/config.md#model"
    assert types["tutelage.stats.reliability"]["Model"] == "reference/api/stats.md#model"


def test_every_setting_has_a_meaning(written):
    """No row of a verb's tables ends in an empty cell."""
    verbs = [text for path, text in written.items() if path.startswith("reference/cli/")]
    assert [line for text in verbs for line in text.splitlines() if re.match(r"\| `--.*\|\s*\|$", line)] == []


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
    gone = [
        f"{table}.{name}" for table, names in COLUMNS.items() for name in names if name not in tables[table].c
    ]
    assert gone == []
    assert set(EVERYWHERE) <= {column.name for table in tables.values() for column in table.columns}


def test_the_page_about_serving_has_every_route():
    """Paths as the routes are made of them in the two files of the server."""
    serving = DOCS.parent / "tutelage" / "rollout" / "serving"
    source = "".join((serving / name).read_text(encoding="utf-8") for name in ("app.py", "updates.py"))
    paths = {path.partition("/{")[0] for path in re.findall(r'"(/[\w/.-]+(?:/\{[\w:]+\})?)"', source)}
    page = (DOCS / "serving.md").read_text(encoding="utf-8")
    assert len(paths) > 10
    assert [path for path in paths if not re.search(rf"`(?:GET|POST) {path}[`/?]", page)] == []


def test_every_page_has_one_place_on_the_site():
    contents = runpy.run_path(str(DOCS / "site" / "contents.py"))["CONTENTS"]
    places = ["index"]
    for page, below in contents.items():
        folder = (DOCS / page).parent
        for names in below.values():
            for name in names:
                found = [path for path in folder.glob(f"{name}.md") if path.with_suffix("") != DOCS / page]
                places += [path.with_suffix("").relative_to(DOCS).as_posix() for path in found]
    there = [path.with_suffix("").relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert sorted(places) == sorted(there)
