r"""Formulae in the texts of models as MathML: `$…$`, `$$…$$`, `\(…\)` and `\[…\]`.

latex2mathml passes over what it does not know: an unknown command remains as its name, an unknown environment loses its
columns, a definition vanishes. A formula of which any part would be lost or changed is shown as its source instead
(`_is_complete`). The result is untrusted until it has been sanitised.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from html import unescape
from xml.etree.ElementTree import Element, tostring

from latex2mathml.converter import Converter
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from mdit_py_plugins.dollarmath import dollarmath_plugin

LONGEST_FORMULA = 2_000
MOST_LINES = 20
_ENVIRONMENTS = {
    "align": "align*", "aligned": "align*", "eqnarray": "align*", "eqnarray*": "align*", "split": "align*",
    "gather": "matrix", "gather*": "matrix", "gathered": "matrix", "multline": "matrix", "multline*": "matrix",
    "dcases": "cases",
}  # fmt: skip
"""Environments that the converter does not know, or numbers by itself, and those that it knows for the same layout."""
_BORDERS = re.compile(r"\\(begin|end)\s*\{([a-z]+\*?)\}")
_UNSEEN = re.compile(
    r"\\(?:begin|end)\s*\{[^{}]*\}(?:\s*\{[lcr|\s]*\})?"
    r"|\\(?:[hv]space\*?|color|textcolor)\s*\{[^{}]*\}"
    r"|\\[A-Za-z]+\*?|\\[^%]"
)
"""Parts of the source of a formula that have no characters in the rendered formula."""
_LABEL = re.compile(r"\\label\s*\{[^{}]*\}")
_ARG = re.compile(r"\\arg(?![A-Za-z])")
_ESCAPED = re.compile(r"\\([%&#_{}$])")
_DEFINITION = re.compile(r"\\(?:def|(?:re)?new[a-z]+|Declare[A-Za-z]+)(?![A-Za-z])")
"""Definitions of commands, whose expansion may grow without bound."""
_COMMAND = re.compile(r"\\[A-Za-z]")
_WIDTH = re.compile(r"-?[0-2](\.\d+)?em")
_CHILDREN = {
    "mfrac": 2, "mroot": 2, "msup": 2, "msub": 2, "mover": 2, "munder": 2, "msubsup": 3, "munderover": 3,
    "mi": 0, "mn": 0, "mo": 0, "ms": 0, "mtext": 0,
}  # fmt: skip
_LIMITS = {"lim", "max", "min", "sup", "inf"}
_BELOW = {"msub": "munder", "msubsup": "munderover"}
_STRUCK, _BOXED = "struck", "boxed"
FORMULA_CLASSES = {"mrow": {_STRUCK, _BOXED}, "mtd": {"left", "right", "ruled-after", "ruled-below"}}
"""Classes for what MathML Core has no attribute for: strokes, frames, columns and rules of tables."""

InlineRule = Callable[[StateInline, bool], bool]
BlockRule = Callable[[StateBlock, int, int, bool], bool]


def maths(markdown: MarkdownIt) -> None:
    """Markdown plugin for all four delimiters."""
    markdown.use(
        dollarmath_plugin,
        allow_labels=False,
        allow_space=False,
        allow_digits=False,
        double_inline=True,
        renderer=lambda source, options: to_mathml(source, block=bool(options["display_mode"])),
    )
    markdown.inline.ruler.before("escape", "math_round", _between(r"\(", r"\)", "math_inline"))
    markdown.inline.ruler.before("escape", "math_square", _between(r"\[", r"\]", "math_inline_double"))
    markdown.block.ruler.before(
        "fence", "math_square_block", _alone(r"\[", r"\]"), {"alt": ["paragraph", "blockquote", "list"]}
    )


def to_mathml(source: str, *, block: bool) -> str:
    """A formula as MathML, or its source as code if the MathML would be incomplete. Not safe before sanitising."""
    if len(source) <= LONGEST_FORMULA and not _DEFINITION.search(source) and _braces_match(source):
        prepared = _ARG.sub(r"\\operatorname{arg}", _LABEL.sub("", _BORDERS.sub(_known_environment, source)))
        candidates = [prepared]
        if r"\\" in prepared:  # lines may also break outside of tables
            candidates.append(rf"\begin{{matrix}}{prepared}\end{{matrix}}")
        for candidate in candidates:
            try:
                math = Converter(display="block" if block else "inline").convert_to_element(candidate)
            except Exception:  # the converter has no exception class of its own
                break
            for element in math.iter():
                element.text = _text_of(element)
            if _is_complete(math, candidate):
                _fit_core(math)
                return tostring(math, encoding="unicode")
    return f"<code>{escapeHtml(source)}</code>"


def _braces_match(source: str) -> bool:
    r"""Whether each brace has its other half, as TeX demands; `\{` and `\}` are none."""
    depth = 0
    for brace in re.findall(r"[{}]", re.sub(r"\\.", "", source, flags=re.DOTALL)):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0


def _text_of(element: Element) -> str:
    """The characters of an element: without escapes, and in the alphabet of its variant, which MathML Core has not."""
    text = unescape(element.text or "")
    if element.tag == "mtext":
        return _ESCAPED.sub(r"\1", text)
    variant = element.get("mathvariant", "normal")
    return text if variant == "normal" else "".join(_in_alphabet(character, variant) for character in text)


def _in_alphabet(character: str, variant: str) -> str:
    """𝐱 for x and bold; the character itself where Unicode has none."""
    letter = re.sub("LATIN |GREEK |LETTER ", "", unicodedata.name(character, ""))
    alphabet = variant.upper().replace("-ITALIC", " ITALIC")
    for name in (f"MATHEMATICAL {alphabet} {letter}", f"{alphabet} {letter}", f"BLACK-LETTER {letter}"):
        try:
            return unicodedata.lookup(name)
        except KeyError:
            continue
    return character


def _known_environment(border: re.Match[str]) -> str:
    return f"\\{border[1]}{{{_ENVIRONMENTS.get(border[2], border[2])}}}"


def _is_complete(math: Element, source: str) -> bool:
    """Whether the MathML has every letter and digit of the source, and nothing of its notation."""
    texts = [element.text or "" for element in math.iter()]
    return (
        any(texts)
        and all(len(element) == _CHILDREN.get(element.tag, len(element)) for element in math.iter())
        and not any("linebreak" in element.attrib for element in math.iter())
        and not any(_COMMAND.search(text) for text in texts)
        and not any(text.count(mark) for mark in "&$" for text in texts if rf"\{mark}" not in source)
        and _characters(_UNSEEN.sub(" ", source)) <= _characters("".join(texts))
    )


def _characters(text: str) -> Counter[str]:
    """The letters, digits and percent signs; ℝ and 𝐱 as R and x."""
    return Counter(
        character for character in unicodedata.normalize("NFKD", text) if character.isalnum() or character == "%"
    )


def _fit_core(math: Element) -> None:
    """Replace what MathML Core has not got: by classes, and by limits below their operator."""
    for element in math.iter():
        if element.tag == "menclose":
            struck = "strike" in element.attrib.pop("notation", "")
            element.tag, element.attrib["class"] = "mrow", _STRUCK if struck else _BOXED
        elif element.tag == "mspace" and not _WIDTH.fullmatch(element.get("width", "")):
            element.attrib.pop("width", None)
        elif element.tag in _BELOW and element[0].text in _LIMITS and math.get("display") == "block":
            element.tag = _BELOW[element.tag]
        elif element.tag == "mtable":
            for cell, names in _cells(element):
                if names:
                    cell.attrib["class"] = " ".join(names)


def _cells(table: Element) -> Iterator[tuple[Element, list[str]]]:
    """The cells of a table and their classes."""
    columns, rows = (table.get(name, "").split() for name in ("columnlines", "rowlines"))
    for row, below in zip(table, rows + ["none"] * len(table), strict=False):
        for cell, after in zip(row, columns + ["none"] * len(row), strict=False):
            yield (
                cell,
                [
                    *(side for side in ("left", "right") if cell.get("columnalign") == side),
                    *(["ruled-after"] if after != "none" else []),
                    *(["ruled-below"] if below != "none" else []),
                ],
            )


def _between(opening: str, closing: str, kind: str) -> InlineRule:
    def rule(state: StateInline, silent: bool) -> bool:
        start = state.pos + len(opening)
        if not state.src.startswith(opening, state.pos):
            return False
        end = state.src.find(closing, start, min(state.posMax, start + LONGEST_FORMULA + len(closing)))
        if end <= start:
            return False
        if not silent:
            token = state.push(kind, "math", 0)
            token.content = state.src[start:end]
        state.pos = end + len(closing)
        return True

    return rule


def _alone(opening: str, closing: str) -> BlockRule:
    """Rule for a formula that begins a line and may span several."""

    def rule(state: StateBlock, first: int, last: int, silent: bool) -> bool:
        start = state.bMarks[first] + state.tShift[first]
        if not state.src.startswith(opening, start):
            return False
        line = first
        while line < last and closing not in state.src[max(start + 2, state.bMarks[line]) : state.eMarks[line]]:
            line += 1
            if line - first > MOST_LINES:
                return False
        if line >= last:
            return False
        whole = state.src[start : state.eMarks[line]].rstrip()
        if not whole.endswith(closing):
            return False
        if not silent:
            token = state.push("math_block", "math", 0)
            token.block = True
            token.content = whole[len(opening) : -len(closing)]
            token.map = [first, line + 1]
        state.line = line + 1
        return True

    return rule
