"""Formulas on the pages: indented blocks, which the site typesets. Nothing of them is lost, and what cannot be plain
text becomes a variable, an index or a sign."""

import html
import re
import runpy
import unicodedata
from pathlib import Path

from markdown_it import MarkdownIt
from offenders import for_each

DOCS = Path(__file__).parents[2] / "docs"
SITE = runpy.run_path(str(DOCS / "site" / "formulas.py"))
PAGES = {page.relative_to(DOCS).as_posix(): page.read_text(encoding="utf-8") for page in sorted(DOCS.rglob("*.md"))}
FORMULAS = [
    token.content
    for text in PAGES.values()
    for token in MarkdownIt("commonmark").enable("table").parse(text)
    if token.type == "code_block"
]


def letters(text: str) -> str:
    """A text without its typesetting: indices on the line, letters and signs by one name each."""
    plain = unicodedata.normalize("NFKC", text)
    for name, sign in (SITE["LETTERS"] | SITE["SIGNS"]).items():
        word = name.isascii() and name.isalpha()
        plain = re.sub(rf"(?<![A-Za-z]){name}(?![A-Za-z0-9])", sign, plain) if word else plain.replace(name, sign)
    return re.sub(r"[\s\N{WORD JOINER}_^{}()]", "", plain)


@for_each(FORMULAS, repr)
def test_a_formula_of_a_page_keeps_every_letter(formula: str) -> None:
    shown = re.sub(r"<[^>]*>", "", SITE["typeset"](formula))
    assert letters(html.unescape(shown)) == letters(formula)


@for_each(FORMULAS, repr)
def test_no_index_of_a_formula_is_left_as_plain_text(formula: str) -> None:
    shown = SITE["typeset"](formula)
    assert not re.search(r"</i>[_^]|[ₜₖ₊²]", shown)
    assert not set(re.findall(r"\w+", re.sub(r"<[^>]*>", " ", shown))) & SITE["LETTERS"].keys()


@for_each(
    [
        ("s_t+1", "<i>s</i><sub><i>t</i>+1</sub>"),
        ("s_t + 1", "<i>s</i><sub><i>t</i></sub> + 1"),
        ("sₜ₊₁", "<i>s</i><sub><i>t</i>+1</sub>"),
        ("gamma^(n-1)", "<i>γ</i><sup><i>n</i>−1</sup>"),
        ("pi_old / pi", "<i>π</i><sub>old</sub> / <i>π</i>"),
        ("sum_{u >= t} k1", "∑<sub><i>u</i> ≥ <i>t</i></sub> k1"),
        ("sum over tokens of a turn", "sum over tokens of a turn"),
        ("reward-to-go of a2c_n_step", "reward-to-go of a2c_n_step"),
        ("1 - 3e-4", "1 − 3e-4"),
        ("x < y", "<i>x</i> &lt; <i>y</i>"),
    ]
)
def test_what_is_a_variable_an_index_a_sign_or_a_word(plain: str, shown: str) -> None:
    assert SITE["line_of"](plain) == shown


def test_an_estimator_of_the_kl_is_defined_on_the_page_that_names_it() -> None:
    named = {path for path, text in PAGES.items() if re.search(r"\bk[123]\b", text)}
    defined = {path for path in named if re.search(r"log π − log π_ref|explanation/kl\.md", PAGES[path])}
    assert named - defined == set()
