"""`tutelage docs`: the pages of the documentation, in the terminal or in a browser."""

import html
import os
import re
import sys
import tempfile
import webbrowser
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from tutelage.base.config.files import write_atomically
from tutelage.base.version import REPOSITORY, __version__
from tutelage.commands.pages import folder, page_named, pages

HTML = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.55 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }}
pre {{ overflow-x: auto; padding: .7rem; background: #8881; }}
code {{ font-size: .9em; }}
table {{ display: block; overflow-x: auto; border-collapse: collapse; }}
th, td {{ border: 1px solid #8886; padding: .3rem .6rem; text-align: left; vertical-align: top; }}
img {{ max-width: 100%; height: auto; background: #fff; }}
</style>
<nav><a href="{index}">Tutelage {version}</a></nav>
{body}
</html>
"""


@dataclass(frozen=True)
class DocsSettings:
    """Show a page of the documentation of this version; without a page, list all of them."""

    page: tyro.conf.Positional[str] = ""
    """Name of the page, such as data or howto/prolific; prolific alone is enough."""
    open: bool = False
    """Open the page in a browser, with pictures and links."""


def main(settings: DocsSettings) -> int:
    """Print the page, or open it."""
    page = page_named(settings.page or "index") if settings.page or settings.open else None
    if settings.open and page is not None:
        address = web_page(page).as_uri()
        print(address)
        webbrowser.open(address)
        return 0
    if page is None:
        print(contents())
    else:
        show(page)
    return 0


def contents() -> str:
    """Return the names and titles of all pages."""
    paths = pages()
    width = max(map(len, paths))
    lines = [f"  {name:<{width}}  {title_of(file)}" for name, file in paths.items()]
    return "\n".join(
        [*lines, "", "tutelage docs PAGE         a page in the terminal", "tutelage docs PAGE --open  in a browser"]
    )


def title_of(page: Path) -> str:
    """Return the heading of a page."""
    heading = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return heading[1].replace("`", "") if heading else page.stem


def show(page: Path) -> None:
    """Print a page, through a pager if it is longer than the terminal."""
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    os.environ.setdefault("LESS", "FRX")  # as git does: colours, and no pager for what fits on the screen
    text = re.sub(r"<img [^>]*alt=\"([^\"]*)\"[^>]*>", r"![\1]()", page.read_text(encoding="utf-8"))
    text = re.sub(r"\]\((?![a-z]+:)([^)#\s]+\.md)(?:#[^)]*)?\)", lambda match: f"]({_name(page, match[1])})", text)
    paged = console.is_terminal and sys.stdin.isatty()
    with console.pager(styles=True) if paged else nullcontext():
        console.print(Markdown(text, hyperlinks=False))


def _name(page: Path, link: str) -> str:
    """Return the name of the page that a link on a page leads to, or the link as it is."""
    file = (page.parent / link).resolve()
    return next((name for name, path in pages().items() if path.resolve() == file), link)


def web_page(page: Path) -> Path:
    """Write all pages as HTML into the cache, and return the file of one of them."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tutelage" / f"docs-{__version__}"
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        cache = Path(tempfile.mkdtemp(prefix="tutelage-docs-"))
    for file in pages().values():
        target = _target(file, cache)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, _rendered(file, cache))
    return _target(page, cache)


def _target(page: Path, cache: Path) -> Path:
    return cache / page.relative_to(folder()).with_suffix(".html")


def _rendered(page: Path, cache: Path) -> str:
    """Return a page as HTML: links to other pages lead to their HTML, pictures are those of the package."""
    from markdown_it import MarkdownIt
    from mdit_py_plugins.anchors import anchors_plugin

    markdown = MarkdownIt("commonmark", {"html": True}).enable("table").use(anchors_plugin, max_level=4)
    tokens, env = markdown.parse(page.read_text(encoding="utf-8")), dict[str, Any]()
    for token in [inner for each in tokens for inner in (each, *(each.children or ()))]:
        for name in {"href", "src"} & token.attrs.keys():
            token.attrs[name] = _address(page, str(token.attrs[name]), cache)
    body = markdown.renderer.render(tokens, markdown.options, env)
    body = re.sub(r'(<img[^>]* src=")([^"]+)', lambda found: found[1] + _address(page, found[2], cache), body)
    index = _target(folder() / "index.md", cache).as_uri()
    return HTML.format(title=html.escape(title_of(page)), index=index, version=__version__, body=body)


def _address(page: Path, link: str, cache: Path) -> str:
    """Return the address of a link on a page: that of the HTML of a page, or of a file of the package."""
    path, mark, anchor = link.partition("#")
    if not path or re.match(r"[a-z]+:", link):
        return link
    file = (page.parent / path).resolve()
    if not file.exists():  # outside the pages, which alone are in an installed package
        within = file.relative_to(folder().parent.resolve()) if file.is_relative_to(folder().parent.resolve()) else path
        return f"{REPOSITORY}/blob/v{__version__}/{within}{mark}{anchor}" if REPOSITORY else mark or "#"
    target = _target(file, cache) if file.suffix == ".md" and file.is_relative_to(folder()) else file
    return f"{target.as_uri()}{mark}{anchor}"
