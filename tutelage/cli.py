"""The command line: a table of verbs, each a module with `Settings` and `main(settings) -> int`.

Nothing heavy is imported here, so that help answers at once; a verb imports torch inside its `main`.
"""

import difflib
import importlib
import inspect
import os
import select
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from tutelage import __version__
from tutelage.errors import TutelageError


class Verb(NamedTuple):
    """One word of the command line; its module is `tutelage.commands.<name>`."""

    name: str
    group: str
    help: str


class VerbModule(Protocol):
    """What a module in `tutelage.commands` provides. One whose work falls into subcommands also has `COMMANDS`: their
    names, each with settings of its own, all of which `main` takes."""

    Settings: type[Any]

    def main(self, settings: Any) -> int:
        """Do the work; the exit status comes back."""


VERBS = (
    Verb("demo", "begin here", "the whole loop on an embedded example, in minutes, with a report"),
    Verb("recipes", "begin here", "the reinforcement-learning recipes and the pieces they are made of"),
    Verb("pretrain", "train", "a language model from plain text"),
    Verb("sft", "train", "supervised fine-tuning on demonstrations"),
    Verb("reward", "train", "a reward model from preferences"),
    Verb("improve", "train", "a policy against a reward, by PPO or another recipe"),
    Verb("dpo", "train", "a policy from preferences directly"),
    Verb("rejection", "train", "a policy on the best of its own answers"),
    Verb("sample", "people", "answers to prompts, and pairs of them to compare"),
    Verb("collect", "people", "the web application in which people compare answers"),
    Verb("raters", "people", "how reliable the raters are, and how well they agree"),
    Verb("iterate", "people", "the next round of a study, about the policy that came of the last one"),
    Verb("evaluate", "look", "win rates, scores, drift and text measures of a model"),
    Verb(
        "lab",
        "look",
        "experiments: what the KL does, how noisy gradients are, every recipe, over-optimisation",
    ),
    Verb("report", "look", "one self-contained HTML page about a run"),
    Verb("chat", "look", "talk to a model, or to two side by side"),
)

ALIASES = {"distill": "rejection"}
"""Old names of verbs, which go on working for one release: {"old": "new"}. For settings see `config.aliases`."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; the exit status is the verb's own, 2 for a mistake of the user, 130 after ctrl-C."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        try:
            return _dispatch(words)
        finally:
            sys.stdout.flush()
    except TutelageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as stopped:
        print(str(stopped) or "interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit complains again
        return 141


def overview() -> str:
    """The text of `tutelage --help`."""
    lines = [
        "usage: tutelage VERB [options]",
        "",
        "Reinforcement learning from human feedback, with the people in the loop.",
    ]
    for group in dict.fromkeys(verb.group for verb in VERBS):
        lines += [
            "",
            f"{group}:",
            *(f"  {verb.name:<10} {verb.help}" for verb in VERBS if verb.group == group),
        ]
    lines += [
        "",
        "tutelage VERB --help       the verb's settings, with their defaults",
        "tutelage VERB --config F   settings from a TOML file, or from the config.json of a run; flags win",
        "tutelage --version         the version",
    ]
    return "\n".join(lines)


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if words[0] == "--version":
        print(f"tutelage {__version__}")
        return 0
    names, verb = [verb.name for verb in VERBS], ALIASES.get(words[0], words[0])
    if verb not in names:
        raise TutelageError(_unknown_verb(verb, names))
    if verb != words[0]:
        from tutelage.config.aliases import note_old_name

        note_old_name(f"the verb {words[0]}", verb)
    module: VerbModule = importlib.import_module(f"tutelage.commands.{verb}")
    commands: Mapping[str, type[Any]] | None = getattr(module, "COMMANDS", None)
    if commands is None:
        return _run(module, module.Settings, words[1:], f"tutelage {verb}")
    if len(words) == 1 or words[1] in ("-h", "--help", "help"):
        print(_overview_of_commands(verb, commands))
        return 0
    if words[1] not in commands:
        raise TutelageError(_unknown_command(verb, words[1], list(commands)))
    return _run(module, commands[words[1]], words[2:], f"tutelage {verb} {words[1]}")


def _run(module: VerbModule, settings: type[Any], words: list[str], prog: str) -> int:
    from tutelage.config.flags import settings_from

    return module.main(settings_from(settings, words, prog=prog))


def _overview_of_commands(verb: str, commands: Mapping[str, type[Any]]) -> str:
    lines = [f"usage: tutelage {verb} COMMAND [options]", ""]
    for name, settings in commands.items():
        about = " ".join((inspect.getdoc(settings) or "").split())
        lines += textwrap.wrap(about, 110, initial_indent=f"  {name:<10} ", subsequent_indent=" " * 13)
    return "\n".join(
        [*lines, "", f"tutelage {verb} COMMAND --help       the command's settings, with their defaults"]
    )


def _unknown_command(verb: str, word: str, names: list[str]) -> str:
    near = difflib.get_close_matches(word, names, n=1)
    guess = f"; did you mean {near[0]!r}?" if near else "."
    return f"{verb} has no command {word!r}{guess} The commands are {', '.join(names)}; see tutelage {verb} --help."


def _reader_is_gone() -> bool:
    """Whether nobody reads our output any more: `tutelage recipes | head` stops early, and that is no error."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _unknown_verb(word: str, names: list[str]) -> str:
    near = difflib.get_close_matches(word, names, n=1)
    guess = f"; did you mean {near[0]!r}?" if near else "."
    return f"There is no verb {word!r}{guess} The verbs are {', '.join(names)}; see tutelage --help."
