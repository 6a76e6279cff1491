"""Model-written text as safe HTML.

Markdown (raw HTML is escaped), then formulae, syntax highlighting and the sanitiser, which lets only harmless elements
and attributes pass. No external resources are loaded: an image of the study is a link to itself around its picture, any
other becomes a note.

Each block has the direction of its own first letter, as its attribute `dir`. Last, each character that is not seen but
changes what is seen is shown by its number (`reveal`); `static/show.js` does the same with texts as they were written.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import nh3
from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES
from pygments.util import ClassNotFound

from tutelage.people.images import FOLDER, NAME
from tutelage.people.languages import ENGLISH, Sentence, say
from tutelage.people.web.formulae import FORMULA_CLASSES, maths

LONG = Sentence("Shown as plain text, because it is very long.")
LONGEST = 60_000
MOST_MARKS = 3_000
"""Limits on characters and on Markdown control characters for formatting, whose running time can grow quadratically.
Longer text is shown as plain text."""
MARKS = "[]*_$`\\~<&!|"
LONGEST_CODE = 20_000
CODE_PREFIX = "t-"

WIDEST, HIGHEST = 640, 384
"""Maximum width and height of an image in a text, in pixels of the page."""
LONGEST_ADDRESS = 200
"""Maximum number of characters of an address in a note."""

_BLOCKS = {"p", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "hr", "br", "div"}
_TABLES = {"table", "thead", "tbody", "tr", "th", "td"}
_INLINE = {"em", "strong", "s", "code", "a", "span", "sup", "sub", "img"}
_MATHS = {
    "math", "mrow", "mi", "mn", "mo", "mtext", "ms", "mspace", "msup", "msub", "msubsup", "mfrac", "msqrt", "mroot",
    "mover", "munder", "munderover", "mmultiscripts", "mtable", "mtr", "mtd", "mstyle", "mpadded", "mphantom",
}  # fmt: skip
_DIRECTED = {"p", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "table", "th", "td"}
_ATTRIBUTES = {
    "a": {"href", "title"},
    "img": {"alt", "data-image"},
    **{name: {"dir"} for name in _DIRECTED},
    "ol": {"start", "dir"},
    "div": {"tabindex"},
    "math": {"display"},
    "mo": {"stretchy", "fence", "form", "accent"},
    "mi": {"mathvariant"},
    "mtext": {"mathvariant"},
    "mover": {"accent"},
    "munder": {"accentunder"},
    "mfrac": {"linethickness"},
    "mstyle": {"displaystyle", "scriptlevel"},
    "mspace": {"width"},
}
ALIGNMENTS = ("left", "center", "right")
_CLASSES = {
    "span": {CODE_PREFIX + name for name in STANDARD_TYPES.values() if name} | {"not-shown"},
    "pre": {"code", "plain"},
    "p": {"not-shown"},
    "div": {"table", "math"},
    **{name: set(ALIGNMENTS) for name in ("th", "td")},
    **FORMULA_CLASSES,
}
_formatter = HtmlFormatter(nowrap=True, classprefix=CODE_PREFIX)


@dataclass(frozen=True)
class Images:
    """The images of a study that texts may show: name, width and height of each, and the root of the site."""

    root: str = ""
    sizes: tuple[tuple[str, int, int], ...] = ()

    @classmethod
    def of(cls, root: str, sizes: Mapping[str, tuple[int, int]]) -> "Images":
        return cls(root, tuple((name, *size) for name, size in sorted(sizes.items())))


@lru_cache(maxsize=2048)
def render(text: str, language: str = ENGLISH, images: Images = Images()) -> str:
    """Safe HTML for Markdown, with notes in the given language. Pure; recent results are cached."""
    if len(text) > LONGEST or sum(map(text.count, MARKS)) > MOST_MARKS:
        return f'<p class="not-shown">{escapeHtml(say(LONG, language))}</p>{plain(text)}'
    sizes = {name: (width, height) for name, width, height in images.sizes}
    html = sanitise(_markdown.render(text, {"language": language, "images": sizes}))
    return reveal(_IMAGE.sub(lambda match: _linked(match, sizes, images.root), html) if sizes else html)


_IMAGE = re.compile(rf'<img alt="([^"]*)" data-image="({NAME})">')


def _linked(match: re.Match[str], sizes: Mapping[str, tuple[int, int]], root: str) -> str:
    """An image as a link to itself. After the sanitiser, because the address is one of this site."""
    words, name = match.groups()
    width, height = sizes[name]
    scale = min(1.0, WIDEST / width, HIGHEST / height)
    width, height = max(1, round(scale * width)), max(1, round(scale * height))
    address = f"{escapeHtml(root)}/{FOLDER}/{name}"
    picture = f'<img src="{address}" alt="{words}" width="{width}" height="{height}">'
    return f'<a class="image" href="{address}" target="_blank" rel="noopener">{picture}</a>'


def plain(text: str) -> str:
    """Safe HTML for plain text, character by character."""
    return f'<pre class="plain">{reveal_text(text)}</pre>'


def reveal_text(text: str) -> str:
    """Plain text as safe HTML, each invisible character as its number."""
    return reveal(escapeHtml(text))


JOINED = "\u0590-\u08ff\u0900-\u109f\u1780-\u18af\u2600-\u27bf\ufe0f\U0001f000-\U0001faff"
"""Characters of Arabic, Indic and South-East Asian scripts and emoji, which a joiner after them belongs to."""
INVISIBLE = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f"
)
"""Controls, zero widths, directions and tags."""
_REVEALED = re.compile(
    '<(?:[^">]|"[^"]*")*>'  # a tag, which keeps what it has
    f"|[{JOINED}][\u200c\u200d]|\U0001f3f4[\U000e0020-\U000e007f]+"  # spelling, and flags
    f"|([{INVISIBLE}])"
)


def reveal(html: str) -> str:
    """The HTML with each invisible character in its text shown by its number, U+202E for one; attributes remain."""
    return _REVEALED.sub(
        lambda match: f'<span class="invisible">U+{ord(match[1]):04X}</span>' if match[1] else match[0], html
    )


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
    name = address.removeprefix(f"{FOLDER}/")
    if name in env["images"]:
        words = words or say(Sentence("Image"), env["language"])
        return f'<img alt="{escapeHtml(words)}" data-image="{name}">'
    address = address if len(address) <= LONGEST_ADDRESS else f"{address[:LONGEST_ADDRESS]}…"
    remark = say(Sentence("[image, not loaded: %(words)s]", words=words or address), env["language"])
    return f'<span class="not-shown">{escapeHtml(remark)}</span>'


def _wrap_table(renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    tag = renderer.renderToken(tokens, index, options, env)
    return f'<div class="table" tabindex="0">{tag}' if tokens[index].nesting > 0 else f"{tag}</div>"


def _direct_blocks(state: StateCore) -> None:
    """Give each block the direction of its first letter, and a cell a class for its alignment."""
    opened: list[Token] = []
    for token in state.tokens:
        if token.nesting > 0:
            opened.append(token)
            alignment = str(token.attrs.pop("style", "")).removeprefix("text-align:")
            if alignment in ALIGNMENTS:
                token.attrSet("class", alignment)
        elif token.nesting < 0:
            opened.pop()
        elif token.type == "inline":
            texts = "".join(child.content for child in token.children or () if child.type == "text")
            direction = direction_of(texts)
            for block in opened if direction else ():
                block.attrs.setdefault("dir", direction)


def direction_of(text: str) -> str:
    """rtl or ltr, by the first letter that has a direction; empty without one."""
    return next(
        (_DIRECTIONS[direction] for direction in map(unicodedata.bidirectional, text) if direction in _DIRECTIONS), ""
    )


_DIRECTIONS = {"L": "ltr", "R": "rtl", "AL": "rtl"}


def _lower_headings(state: StateCore) -> None:
    """Lower headings below the page's own: # becomes h3."""
    for token in state.tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1:]) + 2)}"


def _build() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
    markdown.use(maths)
    markdown.core.ruler.push("lower_headings", _lower_headings)
    markdown.core.ruler.push("direct_blocks", _direct_blocks)
    markdown.add_render_rule("table_open", _wrap_table)
    markdown.add_render_rule("table_close", _wrap_table)
    markdown.add_render_rule("fence", _fence)
    markdown.add_render_rule("code_block", _fence)
    markdown.add_render_rule("image", _image)
    return markdown


_markdown = _build()
