"""Relative links on Markdown pages: the files and headings that they lead to, as on GitHub and on the site."""

import re
from functools import cache
from pathlib import Path


def dead_links(page: Path) -> list[str]:
    """The relative links of a page that lead to no file, or to no heading of a page."""
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)) if not re.match(r"https?:|mailto:", link)]
    return [link for link in links if not leads_somewhere(page, *link.partition("#")[::2])]


def leads_somewhere(page: Path, path: str, anchor: str) -> bool:
    target = page.parent / path if path else page
    return target.exists() and (target.suffix != ".md" or not anchor or anchor in anchors(target))


@cache
def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    found: list[str] = []
    for heading in re.findall(r"^#+ +(.+?) *$", prose(page), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        found.append(re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-"))
    return {slug if not (before := found[:n].count(slug)) else f"{slug}-{before}" for n, slug in enumerate(found)}


def prose(page: Path) -> str:
    """The text of a page without its fenced blocks."""
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
