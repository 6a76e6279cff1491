"""The documentation as a site: `make docs`. The pages are plain Markdown: those of docs/, which GitHub shows as well,
and the reference, which generate.py writes. What the site adds is here: the order of the pages, figures, formulas, and
links that leave docs/, which lead to the repository.
"""

import posixpath
import re
import runpy
import sys
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from sphinx.application import Sphinx
from sphinx.util import logging

sys.path.insert(0, str(Path(__file__).parent))
from contents import CONTENTS, VISIBLE
from formulas import typeset

ROOT = Path(__file__).parents[2]
REPOSITORY = runpy.run_path(str(ROOT / "tutelage" / "base" / "version.py"))["REPOSITORY"]
OUTSIDE = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[^)\s#]*)((?:#[^)\s]*)?)\)")
"""A Markdown link that goes up: its text, its path, its anchor."""
PICTURE = re.compile(
    r"""^(?:!\[(?P<alt>[^\]]*)\]\((?P<src>[^)\s]+)\)
    |<img\ src="(?P<file>[^"]+)"\ alt="(?P<words>[^"]*)"(?:\ width="(?P<width>\d+)%")?>)$""",
    re.MULTILINE | re.VERBOSE,
)
"""A picture on a line of its own, with its width in per cent of the page if it is not the whole."""
CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
INDEXED = re.compile(r"([α-ωΑ-Ω])\\?_(\w+)")
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc="(?:https?:)?//[^"]*"
    |<link\b[^>]*\brel="(?:stylesheet|preload|icon)"[^>]*\bhref="(?:https?:)?//[^"]*"
    |(?:url\(|@import)\s*["']?(?:https?:)?//[^"')]*""",
    re.VERBOSE,
)
"""What a browser fetches from another host by itself, in HTML and in CSS."""

project = "Tutelage"
author = copyright = "The Tutelage developers"
language = "en"
root_doc = "index"
extensions = ["myst_parser", "sphinx_copybutton", "type_links"]
nitpicky = True
smartquotes = False  # --data is a flag, not a dash

myst_enable_extensions = ["html_image"]
myst_heading_anchors = 4  # named as on GitHub
myst_linkify_fuzzy_links = False
suppress_warnings = ["myst.xref_ambiguous"]

html_theme = "furo"
html_title = "Tutelage"
html_favicon = "../../tutelage/people/web/static/icon.svg"
html_static_path = ["static"]
html_css_files = ["extra.css"]
html_copy_source = False
html_show_sphinx = False
if REPOSITORY:
    html_theme_options = {"source_repository": REPOSITORY, "source_branch": "main", "source_directory": "docs/"}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
highlight_language = "none"
copybutton_exclude = ".linenos, .gp, .go"

log = logging.getLogger("outside")


def add_contents(app: Sphinx, page: str, text: list[str]) -> None:
    """Append the contents of a page that has pages below it, which Sphinx takes from the pages themselves."""
    options = ":maxdepth: 1" if page in VISIBLE else ":hidden:\n:maxdepth: 2"
    for title, pages in CONTENTS.get(page, {}).items():
        caption = f":caption: {title}\n" if title else ""
        listed = "\n".join(pages)
        text[0] += f"\n\n```{{toctree}}\n{options}\n:glob:\n{caption}\n\n{listed}\n```\n"


def lead_to_the_repository(app: Sphinx, page: str, text: list[str]) -> None:
    """Give links to files outside docs/ their address in the repository, or leave their texts if it has none. One to a
    file that is not there is a warning, which ends the build."""
    folder = posixpath.dirname(f"docs/{page}")

    def address(found: re.Match[str]) -> str:
        words, link, rest = found.groups()
        path = posixpath.normpath(posixpath.join(folder, link))
        if path.startswith("docs/"):
            return found.group()
        if not (ROOT / path).exists():
            log.warning("%s leads to no file", link, location=page)
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"[{words}]({REPOSITORY}/{kind}/main/{path}{rest})" if REPOSITORY else words

    text[0] = OUTSIDE.sub(address, text[0])


def caption_pictures(app: Sphinx, page: str, text: list[str]) -> None:
    """Make a picture on a line of its own a figure, whose caption is its description; two halves stand side by side."""

    def figure(found: re.Match[str]) -> str:
        words = " ".join((found["alt"] or found["words"] or "").split())
        half = ":figclass: half\n" if found["width"] and int(found["width"]) < 50 else ""
        return f"\n```{{figure}} {found['src'] or found['file']}\n:alt: {words}\n{half}\n{words}\n```\n"

    text[0] = PICTURE.sub(figure, text[0])


def typeset_formulas(app: Sphinx, page: str, text: list[str]) -> None:
    """Typeset indented blocks, as HTML in the place of their lines, and the indices of Greek letters in the prose."""
    lines = text[0].splitlines()
    for block in reversed(MarkdownIt("commonmark").enable("table").parse(text[0])):
        if block.type == "code_block" and block.map:
            margin = lines[block.map[0]].removesuffix(block.content.splitlines()[0]).removesuffix("    ")
            lines[slice(*block.map)] = [margin + typeset(block.content), ""]
    parts = CODE.split("\n".join(lines) + "\n")
    parts[::2] = [INDEXED.sub(r"\1<sub>\2</sub>", part) for part in parts[::2]]
    text[0] = "".join(parts)


def link_to_sources(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Leave out "view" and "edit this page" where the page is not a file of the repository."""
    if not (ROOT / "docs" / f"{page}.md").exists():
        context["page_source_suffix"] = ""


def look_for_other_hosts(app: Sphinx, failed: Exception | None) -> None:
    """Warn of everything that a page or a style sheet would load from another host."""
    built = [] if failed else [*Path(app.outdir).rglob("*.html"), *Path(app.outdir).rglob("*.css")]
    for file in built:
        for found in LOADED.finditer(file.read_text(encoding="utf-8")):
            log.warning("%s loads %s", file.relative_to(app.outdir), found.group())


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", typeset_formulas)
    app.connect("source-read", lead_to_the_repository)
    app.connect("source-read", add_contents)
    app.connect("source-read", caption_pictures)
    app.connect("html-page-context", link_to_sources)
    app.connect("build-finished", look_for_other_hosts)
    return {"parallel_read_safe": True}
