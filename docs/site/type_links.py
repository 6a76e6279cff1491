"""Links from types in signatures, fields and aliases to where they are described, on the pages about the Python API.

`types.json`, which docs/site/generate.py writes beside the pages, says for every module what the names in its
annotations mean. The pages themselves cannot: a block of code in Markdown holds no links.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

NAME = re.compile(r'<span class="n">(\w+)</span>')
"""A name in highlighted code."""

log = logging.getLogger(__name__)


def link(types: Mapping[str, Mapping[str, str]], app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Make links of the types on one page. `types` has for each module what a name means, as `page.md#anchor`."""
    for section in doctree.findall(nodes.section):
        targets = types.get(section.next_node(nodes.title).astext())
        if targets:
            places = {name: address(app, page, place) for name, place in targets.items()}
            for block in list(section.findall(nodes.literal_block)):
                if block.get("language") == "python":
                    block.replace_self(highlighted(app, block, places))
            for row in section.findall(nodes.row):
                for code in list(row.findall(nodes.literal)):
                    if not isinstance(code.parent, nodes.reference):
                        spell(code, places)


def address(app: Sphinx, page: str, place: str) -> str:
    """The address of a place, seen from a page. One that is nowhere is a warning, which ends the build."""
    name, _, anchor = place.partition("#")
    target = name.removesuffix(".md")
    if target not in app.env.found_docs or (anchor and anchor not in app.env.metadata[target].get("myst_slugs", {})):
        log.warning("types.json leads to %s, which is not there", place, location=page)
        return ""
    identifier = "#" + app.env.metadata[target]["myst_slugs"][anchor][1] if anchor else ""
    builder = app.builder
    return (identifier if target == page else builder.get_relative_uri(page, target) + identifier) or "#"


def highlighted(app: Sphinx, block: nodes.literal_block, places: Mapping[str, str]) -> nodes.raw:
    """A block of code as Sphinx renders it, with links."""
    html = app.builder.highlighter.highlight_block(block.astext(), "python")  # type: ignore[attr-defined]

    def linked(found: re.Match[str]) -> str:
        place = places.get(found[1], "")
        return f'<a class="n type" href="{place}">{found[1]}</a>' if place else found[0]

    return nodes.raw("", f'<div class="highlight-python notranslate">{NAME.sub(linked, html)}</div>', format="html")


def spell(code: nodes.literal, places: Mapping[str, str]) -> None:
    """Put links into code within a table."""
    parts = re.split(r"(\w+)", code.astext())
    if any(places.get(part) for part in parts):
        code.clear()
        for part in parts:
            place = places.get(part, "")
            code += nodes.reference("", part, refuri=place, classes=["type"]) if place else nodes.Text(part)


def setup(app: Sphinx) -> dict[str, Any]:
    connect: Callable[..., Any] = app.connect
    types = json.loads(Path(app.srcdir, "types.json").read_text(encoding="utf-8"))
    connect("doctree-resolved", partial(link, types))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
