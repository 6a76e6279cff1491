"""Completion of commands, subcommands, flags and their values, as a script for bash, zsh or fish.

    eval "$(tutelage completion bash)"                                   in ~/.bashrc
    eval "$(tutelage completion zsh)"                                    in ~/.zshrc, after compinit
    tutelage completion fish > ~/.config/fish/completions/tutelage.fish  once

A script holds the names of the version that wrote it, so that completing starts no Python. Anything else is
completed as the name of a file.
"""

import itertools
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tutelage.base.errors import TutelageError
from tutelage.commands.table import COMMANDS

if TYPE_CHECKING:
    from tutelage.base.config.flags import Flag

Commands = Mapping[tuple[str, ...], "list[Flag]"]
"""The flags of every command, by its words: ("sft",), ("collect", "init"), ..."""


def script(words: Sequence[str]) -> str:
    """The script for the shell that `words` name. Raises TutelageError where they name none."""
    shells: dict[str, Callable[[Commands], Iterator[str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    if len(words) != 1 or words[0] not in shells:
        raise TutelageError(
            f"tutelage completion takes one of {', '.join(shells)}, not {' '.join(words) or 'nothing'}. "
            'For bash: eval "$(tutelage completion bash)" in ~/.bashrc.'
        )
    return "\n".join(shells[words[0]](commands()))


def commands() -> Commands:
    """Every command with its flags."""
    from tutelage.base.config.flags import Flag, flags_of

    parallel = {command.name for command in COMMANDS if command.parallel}
    return {
        command: _merged(map(flags_of, settings))
        + ([Flag(("--processes",))] if command[0] in parallel else [])
        for command, settings in settings_by_command().items()
    }


def settings_by_command() -> dict[tuple[str, ...], tuple[type[Any], ...]]:
    """The classes of settings of every command: of ("sft",), of ("collect", "init"), ... Several where the value of a
    flag chooses among them."""
    found: dict[tuple[str, ...], tuple[type[Any], ...]] = {}
    for command in COMMANDS:
        for name, settings in (command.subcommands or {"": command.settings}).items():
            variants = (settings, *command.variants.values())
            found[(command.name, name) if name else (command.name,)] = variants
    return found


def _merged(variants: "Iterable[list[Flag]]") -> "list[Flag]":
    """The flags of several settings for the same command, each with all its values."""
    found: dict[tuple[str, ...], Flag] = {}
    for flag in itertools.chain.from_iterable(variants):
        known = found.get(flag.names, flag).choices
        found[flag.names] = flag._replace(choices=tuple(dict.fromkeys(known + flag.choices)))
    return list(found.values())


def _first_words(known: Commands) -> list[str]:
    return [*dict.fromkeys(command[0] for command in known), "completion", "--help", "--version"]


def _second_words(known: Commands) -> dict[str, list[str]]:
    """The subcommands of the commands that have some; the shells after `completion`."""
    found: dict[str, list[str]] = {"completion": ["bash", "zsh", "fish"]}
    for command, *names in known:
        for name in names:
            found.setdefault(command, []).append(name)
    return found


def _cases(known: Commands) -> Iterator[str]:
    """The lines, in bash and zsh alike, that set `names` by `$command`, `$subcommand`, `$previous` and `$typed`."""
    yield '        case "$typed" in'
    yield '        -*) case "$command/$subcommand" in'
    for command, flags in known.items():
        names = " ".join(name for flag in flags for name in flag.names)
        yield f'            {_pattern(command)}) names="{names}" ;;'
    yield "            esac ;;"
    yield '        *) case "$command/$subcommand/$previous" in'
    for command, flags in known.items():
        for flag in flags:
            for name in flag.names if flag.choices else ():
                yield f'            {_pattern(command)}/{name}) names="{" ".join(flag.choices)}" ;;'
    yield "            esac ;;"
    yield "        esac"


def _pattern(command: tuple[str, ...]) -> str:
    """The pattern of a shell for a command and the second word, which is a flag if the command has no subcommands."""
    return "/".join(command) if len(command) > 1 else f"{command[0]}/*"


def _bash(known: Commands) -> Iterator[str]:
    yield "_tutelage() {"
    yield '    local typed="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" names=""'
    yield '    local command="${COMP_WORDS[1]}" subcommand="${COMP_WORDS[2]}"'
    yield from _by_place(known, '[ "$COMP_CWORD" -eq 1 ]', '[ "$COMP_CWORD" -eq 2 ]')
    yield '    COMPREPLY=($(compgen -W "$names" -- "$typed"))'
    yield "}"
    yield "complete -o default -F _tutelage tutelage"


def _zsh(known: Commands) -> Iterator[str]:
    yield "_tutelage_words() {"
    yield '    local typed="$words[CURRENT]" previous="$words[CURRENT-1]" command="$words[2]" subcommand="$words[3]"'
    yield '    local place=$CURRENT names=""'
    yield from _by_place(known, '[ "$place" -eq 2 ]', '[ "$place" -eq 3 ]')
    yield '    if [ -n "$names" ]; then compadd -- ${=names}; else _files; fi'
    yield "}"
    yield "compdef _tutelage_words tutelage"


def _by_place(known: Commands, first: str, second: str) -> Iterator[str]:
    """The lines that set `names` for the place of the word that is typed."""
    yield f"    if {first}; then"
    yield f'        names="{" ".join(_first_words(known))}"'
    yield "    else"
    yield f'        {second} && case "$command" in'
    for command, names in _second_words(known).items():
        yield f'        {command}) names="{" ".join(names)}" ;;'
    yield "        esac"
    yield "    fi"
    yield '    if [ -z "$names" ]; then'
    yield from _cases(known)
    yield "    fi"


def _fish(known: Commands) -> Iterator[str]:
    about = {command.name: command.help for command in COMMANDS} | {
        "completion": "a script of completions for a shell"
    }
    for name in [word for word in _first_words(known) if not word.startswith("-")]:
        yield f"complete -c tutelage -n __fish_use_subcommand -f -a {name} -d {shlex.quote(about[name])}"
    for name, names in _second_words(known).items():
        unnamed = f"__fish_seen_subcommand_from {name}; and not __fish_seen_subcommand_from {' '.join(names)}"
        yield f"complete -c tutelage -n '{unnamed}' -f -a '{' '.join(names)}'"
    for command, flags in known.items():
        given = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in command)
        for flag in flags:
            values = (
                f" -x -a '{' '.join(flag.choices)}'" if flag.choices else " -r" if flag.takes_value else ""
            )
            for name in flag.names:
                yield f"complete -c tutelage -n '{given}' -l {name.removeprefix('--')}{values}"
