r"""Model-written text as safe HTML.

Markdown (raw HTML is escaped), then formulae, syntax highlighting and, last, the sanitiser, which lets only harmless
elements and attributes pass. No external resources are loaded: an image becomes a note.

Formulae (`$…$`, `$$…$$`, `\(…\)`, `\[…\]`) become MathML. latex2mathml does not escape the contents of `\text{…}`, so
this module does; its output is still untrusted until it has been sanitised. Invalid or overlong formulae stay as
written.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import nh3
from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_core import StateCore
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES
from pygments.util import ClassNotFound

from tutelage.people.languages import ENGLISH, Sentence, say

LONGEST_FORMULA = 2_000
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
    if len(source) <= LONGEST_FORMULA:
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


LONG = Sentence("Shown as plain text, because it is very long.")
LONGEST = 60_000
MOST_MARKS = 3_000
"""Limits on characters and on Markdown control characters for formatting, whose running time can grow quadratically.
Longer text is shown as plain text."""
MARKS = "[]*_$`\\~<&!|"
LONGEST_CODE = 20_000
CODE_PREFIX = "t-"

_BLOCKS = {"p", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "hr", "br", "div"}
_TABLES = {"table", "thead", "tbody", "tr", "th", "td"}
_INLINE = {"em", "strong", "s", "code", "a", "span", "sup", "sub"}
_MATHS = {
    "math", "mrow", "mi", "mn", "mo", "mtext", "ms", "mspace", "msup", "msub", "msubsup", "mfrac", "msqrt", "mroot",
    "mover", "munder", "munderover", "mmultiscripts", "mtable", "mtr", "mtd", "mstyle", "mpadded", "mphantom",
    "menclose",
}  # fmt: skip
_ATTRIBUTES = {
    "a": {"href", "title"},
    "ol": {"start"},
    "math": {"display"},
    "mo": {"stretchy", "fence", "form", "accent"},
    "mi": {"mathvariant"},
    "mover": {"accent"},
    "munder": {"accentunder"},
    "mfrac": {"linethickness"},
    "mstyle": {"displaystyle", "scriptlevel"},
    "mtable": {"columnalign"},
}
_CLASSES = {
    "span": {CODE_PREFIX + name for name in STANDARD_TYPES.values() if name} | {"not-shown"},
    "pre": {"code", "plain"},
    "p": {"not-shown"},
}
_formatter = HtmlFormatter(nowrap=True, classprefix=CODE_PREFIX)


@lru_cache(maxsize=2048)
def render(text: str, language: str = ENGLISH) -> str:
    """Safe HTML for Markdown, with notes in the given language. Pure; recent results are cached."""
    if len(text) > LONGEST or sum(map(text.count, MARKS)) > MOST_MARKS:
        return f'<p class="not-shown">{escapeHtml(say(LONG, language))}</p>{plain(text)}'
    return sanitise(_markdown.render(text, {"language": language}))


def plain(text: str) -> str:
    """Safe HTML for plain text, character by character."""
    return f'<pre class="plain">{escapeHtml(text)}</pre>'


def sanitise(html: str) -> str:
    """Keep only the elements and attributes that `render` produces; links open in a new tab without referrer."""
    return nh3.clean(
        html,
        tags=_BLOCKS | _TABLES | _INLINE | _MATHS,
        attributes=_ATTRIBUTES,
        allowed_classes=_CLASSES,
        url_schemes={"http", "https", "mailto"},
        url_relative="deny",
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}, "pre": {"tabindex": "0"}},
    )


def _fence(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    token = tokens[index]
    language = token.info.strip().split(maxsplit=1)[0] if token.info.strip() else ""
    return f'<pre class="code"><code>{_coloured(token.content, language)}</code></pre>\n'


def _coloured(code: str, language: str) -> str:
    if language and len(code) <= LONGEST_CODE:
        try:
            return highlight(code, get_lexer_by_name(language, stripnl=False), _formatter)
        except ClassNotFound:
            pass
    return escapeHtml(code)


def _image(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    token = tokens[index]
    words = renderer.renderInlineAsText(token.children or [], options, env).strip()
    address = str(token.attrs.get("src", ""))
    remark = say(Sentence("[image, not loaded: %(words)s]", words=words or address), env["language"])
    return f'<span class="not-shown">{escapeHtml(remark)}</span>'


def _lower_headings(state: StateCore) -> None:
    """Lower headings below the page's own: # becomes h3."""
    for token in state.tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1:]) + 2)}"


def _build() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    markdown.use(maths)
    markdown.core.ruler.push("lower_headings", _lower_headings)
    markdown.add_render_rule("fence", _fence)
    markdown.add_render_rule("code_block", _fence)
    markdown.add_render_rule("image", _image)
    return markdown


_markdown = _build()
