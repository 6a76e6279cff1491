"""Markdown from values: tables, cells, docstrings. No page writes it by itself."""

import re
from collections.abc import Iterable, Sequence


def page(title: str, *parts: str) -> str:
    """A page: its title and its parts, without those that are empty."""
    return "\n\n".join((f"# {title}", *filter(None, parts))) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells are Markdown already."""
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def cell(text: str) -> str:
    """The words of a docstring on one line, as a cell may hold them."""
    return words(" ".join(text.split())).replace("|", r"\|")


def words(text: str) -> str:
    """Text of a docstring, with Markdown's special characters escaped."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([<*\[\]_])", r"\\\1", part) for part in parts)


def code(text: str) -> str:
    """Code within a sentence or a cell."""
    return f"`{text}`".replace("|", r"\|")


def docstring(text: str) -> str:
    """A docstring as Markdown: indented blocks and columns are verbatim, everything else is prose."""
    blocks = []
    for block in re.split(r"\n{2,}", text.strip("\n")):
        if all(line.startswith("    ") for line in block.splitlines()):
            blocks.append("```text\n" + re.sub(r"^    ", "", block, flags=re.M) + "\n```")
        elif re.match(r"\s*[-*] |\s*\d\. ", block):
            blocks.append("\n".join(words(line).replace(r"\*", "*", 1) for line in block.splitlines()))
        elif all(re.match(r"\S.* {2,}\S| {4}", line) for line in block.splitlines()):
            blocks.append("```text\n" + block + "\n```")  # columns: a name, and what it means
        elif re.search(r"^    ", block, flags=re.M):
            blocks += _mixed(block)
        else:
            blocks.append(words(block))
    return "\n\n".join(blocks)


def _mixed(block: str) -> list[str]:
    """A paragraph in which some lines are indented."""
    lines, found = block.splitlines(), []
    while lines:
        indented = lines[0].startswith("    ")
        run = next((n for n, line in enumerate(lines) if line.startswith("    ") != indented), len(lines))
        text, lines = "\n".join(lines[:run]), lines[run:]
        found.append("```text\n" + re.sub(r"^    ", "", text, flags=re.M) + "\n```" if indented else words(text))
    return found


def fenced(language: str, lines: Iterable[str]) -> str:
    return f"```{language}\n" + "\n".join(lines) + "\n```"
