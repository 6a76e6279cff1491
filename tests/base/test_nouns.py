"""Numbers with their nouns."""

import ast
import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest
from offenders import for_each

import tutelage
from tutelage.base.nouns import counted

PACKAGE = Path(tutelage.__file__).parent
OTHER_WORDS = {"of", "the", "to", "a", "an", "in", "is", "has", "for", "by", "and", "or", "at", "from", "with"}
"""Words that end what a number counts."""


def test_one_thing_is_singular_and_every_other_number_is_not() -> None:
    told = [counted(count, "new vote") for count in (0, 1, 2, 1_200)]
    assert told == ["0 new votes", "1 new vote", "2 new votes", "1,200 new votes"]


@pytest.mark.parametrize(
    ("thing", "many"),
    [
        ("given answer", "given answers"),
        ("batch", "batches"),
        ("box", "boxes"),
        ("loss", "losses"),
        ("entry", "entries"),
        ("day", "days"),
        ("person", "people"),
    ],
)
def test_plurals(thing: str, many: str) -> None:
    assert (counted(1, thing), counted(3, thing)) == (f"1 {thing}", f"3 {many}")


@for_each([("is", "are"), ("was", "were"), ("has", "have"), ("does", "do"), ("lacks", "lack")])
def test_the_verb_agrees(verb: str, many: str) -> None:
    assert (counted(1, "row", verb), counted(2, "row", verb)) == (f"1 row {verb}", f"2 rows {many}")


COUNTING = re.compile(r"counted\(|:,\}|\{\s*(?:len|sum)\(")
"""What a module with a noun or a number for sure has in its text."""


def sources() -> Iterator[tuple[str, ast.Module]]:
    """The modules in which something is counted."""
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if COUNTING.search(text):
            yield str(path.relative_to(PACKAGE)), ast.parse(text)


def nouns(tree: ast.Module) -> Iterator[str]:
    """The nouns that a module counts, each as its last word in the plural."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or len(node.args) < 2 or not isinstance(node.args[1], ast.Constant):
            continue
        if ast.unparse(node.func) in ("counted", "nouns.counted"):
            yield counted(2, str(node.args[1].value)).split()[-1]


def uncounted(tree: ast.Module, known: set[str]) -> Iterator[str]:
    """The places of a module where a number stands before one of the known nouns as it is."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.JoinedStr):
            continue
        for field, text in zip(node.values, node.values[1:], strict=False):
            if not isinstance(field, ast.FormattedValue) or not isinstance(text, ast.Constant):
                continue
            said = re.match(r"(?: [a-z-]+){0,3}", str(text.value))
            words = list(takewhile(lambda word: word not in OTHER_WORDS, said[0].split() if said else ()))
            if is_a_number(field) and known & set(words):
                yield f"line {node.lineno}: {{{ast.unparse(field.value)}}} {' '.join(words)}"


def is_a_number(field: ast.FormattedValue) -> bool:
    """Whether a field is a whole number for sure: a length or a sum, or written with separators."""
    spec = "" if field.format_spec is None else ast.unparse(field.format_spec).strip("f'\"")
    called = ast.unparse(field.value.func) if isinstance(field.value, ast.Call) else ""
    return spec == "," or (not spec and called in ("len", "sum"))


def test_what_a_message_counts_agrees_with_its_number() -> None:
    """A noun that is counted anywhere is counted so everywhere."""
    modules = dict(sources())
    known = {noun for tree in modules.values() for noun in nouns(tree)}
    assert [f"{path}, {place}" for path, tree in modules.items() for place in uncounted(tree, known)] == []


@for_each(['f"{len(cuts)} rows were cut"', 'f"{n:,} rows"', 'f"keeps {sum(found)} held-out rows"'])
def test_a_planted_plural_is_found(planted: str) -> None:
    assert len(list(uncounted(ast.parse(planted), {"rows"}))) == 1


@for_each(['f"{name} rows"', 'f"{share:.0%} rows"', 'f"{len(cuts)} of the rows"', 'f"{n:,} row"'])
def test_other_sentences_pass(sound: str) -> None:
    assert list(uncounted(ast.parse(sound), {"rows"})) == []
