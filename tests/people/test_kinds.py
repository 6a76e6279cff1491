"""What is true of every kind of question, and that nothing else knows one by its name."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from offenders import for_each

import tutelage
from tutelage.base.errors import TutelageError
from tutelage.people.kinds import DEFAULT, KINDS, find_kind
from tutelage.people.kinds.kind import Kind
from tutelage.people.web.app import STATIC
from tutelage.people.web.templating import TEMPLATES

PACKAGE = Path(tutelage.__file__).parent
COLLECT = PACKAGE / "commands" / "collect"


def own_files(kind: Kind) -> set[Path]:
    return {
        PACKAGE / "people" / "kinds" / f"{kind.name}.py",
        TEMPLATES / "kinds" / f"{kind.name}.html",
        STATIC / "kinds" / f"{kind.name}.js",
    }


def other_files(kind: Kind) -> Iterator[Path]:
    """The files that might ask for a kind, but for its own and the registry."""
    for path in [*(PACKAGE / "people").rglob("*"), *COLLECT.glob("*.py")]:
        registry = PACKAGE / "people" / "kinds" / "__init__.py"
        known = own_files(kind) | {registry}
        if path.suffix in (".py", ".html", ".js", ".css") and path not in known:
            yield path


@for_each(KINDS.values(), KINDS)
def test_a_kind_is_one_python_file_one_template_part_and_one_script(kind: Kind) -> None:
    assert {path for path in own_files(kind) if not path.is_file()} == set()
    begins = (STATIC / "kinds" / f"{kind.name}.js").read_text(encoding="utf-8")
    assert "begin({" in begins


COMMON = (DEFAULT.name, "steps")
"""Names that are common words, so that comparisons with them are looked for instead."""


@for_each([kind for kind in KINDS.values() if kind.name not in COMMON], lambda kind: kind.name)
def test_nothing_else_knows_a_kind_by_its_name(kind: Kind) -> None:
    word = re.compile(rf"(?<![a-z]){kind.name}(?![a-z])", re.IGNORECASE)
    texts = {path: path.read_text(encoding="utf-8") for path in other_files(kind)}
    assert [str(path.relative_to(PACKAGE)) for path, text in texts.items() if word.search(text)] == []


ASKS = re.compile(rf"""kind(\.name)?\s*(==|!=|in|not in)\s*[(\[{{]?\s*["']({"|".join(KINDS)})["']""")


def test_no_file_compares_a_kind_with_a_name() -> None:
    paths = set[Path].intersection(*(set(other_files(KINDS[name])) for name in COMMON))
    assert [path.name for path in paths if ASKS.search(path.read_text(encoding="utf-8"))] == []


@for_each(['if study.kind.name == "pair":', "{% if kind in ('ranking',) %}", 'kind != "pair"'])
def test_a_planted_comparison_is_found(line: str) -> None:
    assert ASKS.search(line)


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(TutelageError, match=f"guess.*{', '.join(KINDS)}"):
        find_kind("guess")
