r"""Formulae in Markdown (`$…$`, `$$…$$`, `\(…\)` and `\[…\]`) as MathML.

latex2mathml does not escape the contents of `\text{…}`, so this module does; its output is still untrusted until it has
been sanitised. Invalid or overlong formulae stay as written.
"""

import re
from collections.abc import Callable

from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from mdit_py_plugins.dollarmath import dollarmath_plugin

LONGEST = 2_000
MOST_LINES = 20
_WORDS = re.compile(r"\\(text[a-z]*|mbox)\s*\{[^{}]*\}")

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
    """A formula as MathML, or as code if the conversion fails. Not safe before sanitising."""
    if len(source) <= LONGEST:
        try:
            escaped = _WORDS.sub(lambda words: words[0].replace("<", "&lt;"), source)
            return convert(escaped, display="block" if block else "inline")
        except Exception:  # the converter has no exception class of its own
            pass
    return f"<code>{escapeHtml(source)}</code>"


def _between(opening: str, closing: str, kind: str) -> InlineRule:
    def rule(state: StateInline, silent: bool) -> bool:
        start = state.pos + len(opening)
        if not state.src.startswith(opening, state.pos):
            return False
        end = state.src.find(closing, start, min(state.posMax, start + LONGEST + len(closing)))
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
