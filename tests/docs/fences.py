"""The commands that the documentation shows: fenced blocks of a shell on its pages, and the examples of `--help`."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tutelage.commands.completion import commands as flags_by_command
from tutelage.commands.table import COMMANDS

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
]
FENCE = re.compile(r"^([ ]*)```(?:sh|console|bash|)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"^    (?:tutelage|torchrun|python -m tutelage) .*$", re.MULTILINE)
"""A command in a block that is indented, not fenced: nothing says what it is, so a page should have none."""
STARTS = (
    ("tutelage",),
    ("python", "-m", "tutelage"),
    ("deploy/torchrun.sh",),
    ("deploy/slurm.sh",),
    ("-m", "tutelage"),
)
"""What stands before the name of a command, the last of it inside torchrun's or sbatch's own."""
COMMON = ("--help", "--config", "--processes", "--seeds", "--dry-run")
"""Flags that are no settings of a single command."""


@dataclass(frozen=True)
class Command:
    """A command of Tutelage on a page: its line there, and the words after the name of the program."""

    page: str
    line: int
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: tutelage {shlex.join(self.words)}"


def commands(page: Path) -> Iterator[Command]:
    """Every command of Tutelage in the fenced blocks of a page."""
    text, name = page.read_text(encoding="utf-8"), page.relative_to(ROOT).as_posix()
    for block in FENCE.finditer(text):
        first = text.count("\n", 0, block.start(2)) + 1
        for number, line in joined(block.group(2)):
            words = words_of(line)
            if words is not None:
                yield Command(name, first + number, words)


def examples() -> Iterator[Command]:
    """The examples at the end of the help of every command, each as a page with a line for each example."""
    for command in COMMANDS:
        for line, example in enumerate(command.examples, start=1):
            words = words_of(f"tutelage {command.name} {example}")
            assert words is not None
            yield Command(f"{command.name} --help", line, words)


def unknown_flags(text: str) -> list[str]:
    """The flags in `tutelage COMMAND --flag` within sentences that are none of the command's or its subcommands'."""
    known = {command.name: set(COMMON) for command in COMMANDS}
    for (name, *_), flags in flags_by_command().items():
        known[name] |= {name for flag in flags for name in flag.names}
    return [
        f"{sentence}: {flag}"
        for sentence in re.findall(r"`(tutelage [a-z]+ [^`\n]+)`", text)
        for flag in re.findall(r"(?<=\s)--[a-z][\w.-]*", sentence)
        if flag not in known.get(sentence.split()[1], ())
    ]


def joined(block: str) -> Iterator[tuple[int, str]]:
    """The lines of a block with their numbers, from 0; a line that ends in a backslash goes on in the next one."""
    held, began = "", 0
    for number, line in enumerate(block.splitlines()):
        began = began if held else number
        held += line.rstrip()
        if held.endswith("\\"):
            held = held[:-1] + " "
            continue
        yield began, held
        held = ""


def words_of(line: str) -> tuple[str, ...] | None:
    """The words after the program, where the line runs it, without what the shell does with the output; None for any
    other line."""
    try:
        words = shlex.split(line.strip().removeprefix("$ "), comments=True)
    except ValueError:  # an apostrophe in a line that is no command
        return None
    if end := next((n for n, word in enumerate(words) if word in (">", "|", "&&", ";")), 0):
        words = words[:end]
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words = words[1:]
    if not words or words[0] not in ("tutelage", "python", "torchrun", "sbatch", "deploy/torchrun.sh"):
        return None
    for start in STARTS:
        places = [n for n in range(len(words)) if tuple(words[n : n + len(start)]) == start]
        if places and (start[0] == words[0] or words[0] in ("torchrun", "sbatch")):
            return tuple(words[places[0] + len(start) :])
    return None


SHOWN = [*(command for page in PAGES for command in commands(page)), *examples()]
