"""The command line: help, dispatch to the commands of the table, and exit statuses.

Heavy modules are not imported here, so that help is printed at once.
"""

import dataclasses
import errno
import gc
import importlib
import inspect
import io
import itertools
import os
import select
import sys
import textwrap
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from tutelage.base import extras
from tutelage.base.errors import TutelageError, did_you_mean
from tutelage.base.garbage import without_collection
from tutelage.base.nouns import counted
from tutelage.base.version import __version__
from tutelage.commands import table
from tutelage.commands.pages import page_about, page_of_command
from tutelage.commands.table import ALIASES, Command
from tutelage.engines.ranks import processes

LIBRARIES = "tutelage.models.backbone"
"""Module that imports torch, transformers and peft."""

PLACES = {
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS),
        "Give another path, or change to a writable folder; runs are written below the current one.",
    ),
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT),
        "Free space on that disk, or choose another one; continue an interrupted run with --resume.",
    ),
    errno.ENAMETOOLONG: "Give the path of a file or folder, or the name of a data set or model, not its text.",
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR), "A file is where a folder is needed: give another path."),
    errno.EISDIR: "A folder is where a file is needed: give another path.",
}
"""Advice for system errors that concern a path and are not bugs."""

POLLS = "10000"
"""Number of times that a waiting torch thread polls before it sleeps, unless set in the environment (GOMP_SPINCOUNT or
OMP_WAIT_POLICY of GNU's OpenMP runtime, read when torch is imported). By default it polls for milliseconds. If another
program uses a core too, the displaced thread cannot move to a core on which others poll, and a training step takes ten
and more times as long: see bench/NOTES.md."""

DRY_RUN = "--dry-run"
"""Flag that plans a run instead of running it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit status, 2 for a user error, 130 after ctrl-C."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", POLLS)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() not in ("utf-8", "utf8"):
            stream.reconfigure(errors="replace")  # a terminal without the letter β shows ?
    try:
        try:
            _check_letters(words)
            return _dispatch(words)
        finally:
            sys.stdout.flush()
    except TutelageError as error:
        return _refuse(error, words)
    except SystemExit as stopped:
        if isinstance(stopped.__context__, BrokenPipeError):  # rich found that its reader is gone
            return 141
        # else the flags are invalid, which is reported already
        if stopped.code and words and processes.world_rank() == 0:
            print(f"See {page_of_command(words[0])}", file=sys.stderr)
        raise
    except ModuleNotFoundError as error:
        needed = extras.missing(error, f"tutelage {words[0]}")
        if needed is None:
            raise
        return _refuse(needed, words)
    except KeyboardInterrupt as stopped:
        if processes.world_rank() == 0:
            print(str(stopped) or "interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise the flush at exit fails again
        return 141
    except OSError as error:
        advice = PLACES.get(error.errno or 0)
        if advice is None:
            raise
        return _refuse(TutelageError(f"{_place(error, words)}{error.strerror}. {advice}"), words)


def _place(error: OSError, words: Sequence[str]) -> str:
    """The path of a system error, shortened, and the flag that names it or a folder above it."""
    if not isinstance(error.filename, str | bytes):
        return ""
    path = os.fsdecode(error.filename)
    pairs = ((flag, value) for word in words for flag, _, value in [word.partition("=")])
    flags = (pair for pair in (*itertools.pairwise(words), *pairs) if pair[0].startswith("--") and pair[1])
    named = (flag for flag, value in flags if f"{path}{os.sep}".startswith(value.rstrip(os.sep) + os.sep))
    flag = "".join(f"{name}: " for name in itertools.islice(named, 1))
    short = path if len(path) <= 200 else f"{path[:60]}… ({counted(len(path), 'character')})"
    return f"{flag}{short}: "


def _check_letters(words: Sequence[str]) -> None:
    """Raise TutelageError for words with characters outside the locale's encoding: Python has only their bytes, which
    neither databases nor JSON files accept."""
    for word in words:
        if any("\udc80" <= letter <= "\udcff" for letter in word):
            escaped = os.fsencode(word).decode("utf-8", "replace").encode("ascii", "backslashreplace").decode()
            raise TutelageError(
                f"'{escaped}' has characters outside the encoding of this terminal, {sys.getfilesystemencoding()}. Set "
                "PYTHONUTF8=1, or a locale such as LC_ALL=C.UTF-8."
            )


def _refuse(error: TutelageError, words: Sequence[str]) -> int:
    """Print an error of the command `words`, and the address of its documentation. Returns the exit status."""
    if processes.reports(error):
        print(f"error: {processes.name_of_rank()}{error}", file=sys.stderr)
        print(f"See {page_about(error, words[0] if words else '')}", file=sys.stderr, flush=True)
        processes.note_report()
    return 2


def greeting() -> str:
    """Return the output of `tutelage` without arguments: the three most likely next commands."""
    trains = find_spec("torch") is not None
    first = (
        (
            ("tutelage demo", "the whole loop on an embedded example, in minutes, with a report"),
            ("tutelage sft --help", "fine-tune your own model, the first stage of the loop"),
            ("tutelage collect init --help", "ask people which of two answers is better"),
        )
        if trains
        else (
            ("tutelage collect init --help", "ask people which of two answers is better"),
            ("tutelage raters --help", "how reliable the raters of a table of votes are"),
            (
                "pip install 'tutelage[train]'",
                "torch (200 MB to 3 GB), for every command that trains; then: tutelage demo",
            ),
        )
    )
    return "\n".join(
        [
            "Tutelage: reinforcement learning from human feedback, with the people in the loop.",
            "",
            *(f"  {command:<30} {about}" for command, about in first),
            "",
            "tutelage --help lists every command.",
        ]
    )


def overview() -> str:
    """Return the text of `tutelage --help`."""
    lines = [
        "usage: tutelage COMMAND [options]",
        "",
        "Reinforcement learning from human feedback, with the people in the loop.",
    ]
    for group in dict.fromkeys(command.group for command in table.COMMANDS):
        lines += [
            "",
            f"{group}:",
            *(f"  {each.name:<10} {each.help}" for each in table.COMMANDS if each.group == group),
        ]
    lines += [
        "",
        "tutelage COMMAND --help         the command's settings, with their defaults",
        "tutelage COMMAND --config F     settings from a TOML file, or from the config.json of a run; flags win",
        "tutelage COMMAND --processes N  share the work among N processes of this machine",
        "tutelage COMMAND --seeds N      train with N seeds, and compare the runs",
        "tutelage COMMAND ... --dry-run  plan a training run: memory, time, cost (see tutelage plan)",
        "tutelage completion SHELL       completion script for bash, zsh or fish",
        "tutelage --version              the version",
    ]
    return "\n".join(lines)


def _dispatch(words: list[str]) -> int:
    if not words:
        print(greeting())
        return 0
    if words[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if words[0] == "--version":
        print(f"tutelage {__version__}")
        return 0
    if words[0] == "completion":
        from tutelage.commands.completion import script

        print(script(words[1:]))
        return 0
    names, name = [command.name for command in table.COMMANDS], ALIASES.get(words[0], words[0])
    if name not in names:
        raise TutelageError(_unknown("There is no command", name, names))
    seeds, words = processes.count_of(words, "seeds") if table.find(name).trains else (1, words)
    if DRY_RUN in words:
        _, own = processes.processes_of(words)
        words, name, seeds = ["plan", name, *(word for word in own[1:] if word != DRY_RUN)], "plan", 1
    if name != words[0]:
        from tutelage.base.config.aliases import note_old_name

        note_old_name(f"the command {words[0]}", name)
    count, own = processes.processes_of(words)
    command = table.find(name)
    if seeds > 1:
        from tutelage.commands.compare.show import train_seeds

        return train_seeds(command, own, seeds, lambda each: _dispatch([*each, "--processes", str(count)]))
    if (count > 1 or processes.world_size() > 1) and not command.parallel:
        parallel = ", ".join(each.name for each in table.COMMANDS if each.parallel)
        raise TutelageError(f"{name} runs in one process. With --processes, or under torchrun, run {parallel}.")
    if count > 1 and processes.world_size() == 1:
        return processes.launch(count, words)
    subcommands = command.subcommands
    if not subcommands:
        return _run(command, settings_of(command, own[1:]), own[1:])
    if len(own) == 1 or own[1] in ("-h", "--help", "help"):
        print(_overview_of_subcommands(name, subcommands))
        return 0
    if own[1] not in subcommands:
        raise TutelageError(_unknown(f"{name} has no command", own[1], list(subcommands)))
    return _run(command, subcommands[own[1]], own[2:], own[1])


def settings_of(command: Command, words: Sequence[str]) -> type[Any]:
    """Return the settings class for the words after a command without subcommands."""
    pairs = {*itertools.pairwise(words), *(tuple(word.split("=", 1)) for word in words if "=" in word)}
    return next((settings for chosen, settings in command.variants.items() if chosen in pairs), command.settings)


def _run(command: Command, settings: type[Any], words: list[str], *subcommand: str) -> int:
    from tutelage.base.config.flags import settings_from

    prog = " ".join(["tutelage", command.name, *subcommand])
    parsed = settings_from(settings, words, prog=prog, epilogue=examples(command.name, *subcommand))
    if processes.world_rank() > 0:  # only rank 0 prints
        parsed = dataclasses.replace(parsed, quiet=True)
    return _carry_out(command, parsed)


def _carry_out(command: Command, settings: Any) -> int:
    from tutelage.base.progress.phases import phase
    from tutelage.commands.display import display

    with display(quiet=getattr(settings, "quiet", True)):  # interactive commands have no `quiet`
        if command.computes:
            with display(quiet=getattr(settings, "quiet", False)), phase(command.name), phase("import"):
                _import_libraries()
        return command.main(settings)


def _import_libraries() -> None:
    """Import the libraries of every computing command without garbage collection, which takes two fifths of the time
    and finds no garbage."""
    if LIBRARIES in sys.modules:
        return
    with without_collection():
        importlib.import_module(LIBRARIES)
        gc.freeze()


def examples(command: str, subcommand: str = "") -> str:
    """Return the examples of a command or subcommand, for the end of its help; "" if it has none."""
    lines = [
        f"  tutelage {command} {example}".rstrip()
        for each in table.COMMANDS
        if each.name == command
        for example in each.examples
        if example.startswith(subcommand)
    ]
    return "\n".join(["examples:", *lines]) if lines else ""


def _overview_of_subcommands(command: str, subcommands: Mapping[str, type[Any]]) -> str:
    lines = [f"usage: tutelage {command} COMMAND [options]", ""]
    for name, settings in subcommands.items():
        about = " ".join((inspect.getdoc(settings) or "").split())
        lines += textwrap.wrap(about, 110, initial_indent=f"  {name:<10} ", subsequent_indent=" " * 13)
    return "\n".join(
        [
            *lines,
            "",
            *([examples(command), ""] if examples(command) else []),
            f"tutelage {command} COMMAND --help       the command's settings, with their defaults",
        ]
    )


def _unknown(what: str, word: str, names: list[str]) -> str:
    return f"{what} {word!r}{did_you_mean(word, names)} The commands are {', '.join(names)}."


def _reader_is_gone() -> bool:
    """Whether the reader of standard output is gone: `tutelage recipes | head` stops early, which is not an error.

    False on Windows, which has no `poll` and reports a missing reader by another error than a broken pipe.
    """
    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))
