"""Shell completion of commands, subcommands, flags and values, as a script for bash, zsh or fish.

    eval "$(tutelage completion bash)"                                   in ~/.bashrc
    eval "$(tutelage completion zsh)"                                    in ~/.zshrc, after compinit
    tutelage completion fish > ~/.config/fish/completions/tutelage.fish  once

A script contains the names of the version that wrote it, so that completion does not start Python. Everything else is
completed as a file name.
"""

import importlib
import itertools
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tutelage.base.errors import TutelageError
from tutelage.commands.pages import pages
from tutelage.commands.table import COMMANDS

if TYPE_CHECKING:
    from tutelage.base.config.flags import Flag

VALUES: Mapping[str, str] = {
    "recipe": "tutelage.algorithms.registry:RECIPES",
    "recipes": "tutelage.algorithms.registry:RECIPES",
    "about": "tutelage.algorithms.registry:RECIPES",
    "loss": "tutelage.commands.dpo.settings:LOSSES",
    "kind": "tutelage.people.kinds:KINDS",
    "language": "tutelage.people.languages.catalogue:LANGUAGES",
    "mail-language": "tutelage.people.languages.catalogue:LANGUAGES",
    "gpu": "tutelage.engines.plans.hardware:GPUS",
}
"""Collections of the usual values of flags that take others too, or check theirs later. None of them imports torch, so
that a shell starts at once."""
Commands = Mapping[tuple[str, ...], "list[Flag]"]
"""Flags by command: ("sft",), ("collect", "init"), ..."""


def script(words: Sequence[str]) -> str:
    """Return the script for the shell named in `words`. Raises TutelageError for any other words."""
    shells: dict[str, Callable[[Commands], Iterator[str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    if len(words) != 1 or words[0] not in shells:
        raise TutelageError(
            f"tutelage completion takes one of {', '.join(shells)}, not {' '.join(words) or 'nothing'}. "
            'For bash: eval "$(tutelage completion bash)" in ~/.bashrc.'
        )
    return "\n".join(shells[words[0]](commands()))


def commands() -> Commands:
    """Return the flags of every command."""
    from tutelage.base.config.flags import Flag, flags_of

    parallel = {command.name for command in COMMANDS if command.parallel}
    training = {command.name for command in COMMANDS if command.trains}
    return {
        command: list(map(_with_values, _merged(map(flags_of, settings))))
        + ([Flag(("--processes",))] if command[0] in parallel else [])
        + ([Flag(("--seeds",))] if command[0] in training else [])
        for command, settings in settings_by_command().items()
    }


def _with_values(flag: "Flag") -> "Flag":
    """Return a flag with its usual values as choices, if `VALUES` has them."""
    place = None if flag.choices else VALUES.get(flag.names[0].removeprefix("--"))
    if place is None:
        return flag
    module, _, name = place.partition(":")
    return flag._replace(choices=tuple(getattr(importlib.import_module(module), name)))


def settings_by_command() -> dict[tuple[str, ...], tuple[type[Any], ...]]:
    """Return the settings classes by command: ("sft",), ("collect", "init"), ...; several if the value of a flag
    selects one."""
    classes: dict[tuple[str, ...], tuple[type[Any], ...]] = {}
    for command in COMMANDS:
        for name, settings in (command.subcommands or {"": command.settings}).items():
            variants = (settings, *command.variants.values())
            classes[(command.name, name) if name else (command.name,)] = variants
    return classes


def _merged(variants: "Iterable[list[Flag]]") -> "list[Flag]":
    """Merge the flags of several settings classes of one command, with the union of their choices."""
    merged: dict[tuple[str, ...], Flag] = {}
    for flag in itertools.chain.from_iterable(variants):
        choices = merged.get(flag.names, flag).choices
        merged[flag.names] = flag._replace(choices=tuple(dict.fromkeys(choices + flag.choices)))
    return list(merged.values())


def _first_words(flags_by_command: Commands) -> list[str]:
    return [*dict.fromkeys(command[0] for command in flags_by_command), "completion", "--help", "--version"]


def _second_words(flags_by_command: Commands) -> dict[str, list[str]]:
    """Return the subcommands of commands that have some, the shells of `completion`, and the pages of `docs`."""
    subcommands: dict[str, list[str]] = {"completion": ["bash", "zsh", "fish"], "docs": list(pages())}
    for command, *names in flags_by_command:
        for name in names:
            subcommands.setdefault(command, []).append(name)
    return subcommands


def _cases(flags_by_command: Commands) -> Iterator[str]:
    """Yield the lines, the same in bash and zsh, that set `names` from `$command`, `$subcommand`, `$previous` and
    `$typed`."""
    yield '        case "$typed" in'
    yield '        -*) case "$command/$subcommand" in'
    for command, flags in flags_by_command.items():
        names = " ".join(name for flag in flags for name in flag.names)
        yield f'            {_pattern(command)}) names="{names}" ;;'
    yield "            esac ;;"
    yield '        *) case "$command/$subcommand/$previous" in'
    for command, flags in flags_by_command.items():
        for flag in flags:
            for name in flag.names if flag.choices else ():
                yield f'            {_pattern(command)}/{name}) names="{" ".join(flag.choices)}" ;;'
    yield "            esac ;;"
    yield "        esac"


def _pattern(command: tuple[str, ...]) -> str:
    """Return the shell pattern of a command and its second word, which is a flag if it has no subcommands."""
    return "/".join(command) if len(command) > 1 else f"{command[0]}/*"


def _bash(flags_by_command: Commands) -> Iterator[str]:
    yield "_tutelage() {"
    yield '    local typed="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" names=""'
    yield '    local command="${COMP_WORDS[1]}" subcommand="${COMP_WORDS[2]}"'
    # Bash makes three words of --flag=value.
    yield '    [ "$previous" = "=" ] && previous="${COMP_WORDS[COMP_CWORD-2]}"'
    yield '    [ "$typed" = "=" ] && typed=""'
    yield from _by_place(flags_by_command, '[ "$COMP_CWORD" -eq 1 ]', '[ "$COMP_CWORD" -eq 2 ]')
    yield '    COMPREPLY=($(compgen -W "$names" -- "$typed"))'
    yield "}"
    yield "complete -o default -F _tutelage tutelage"


def _zsh(flags_by_command: Commands) -> Iterator[str]:
    yield "_tutelage_words() {"
    yield '    local typed="$words[CURRENT]" previous="$words[CURRENT-1]" command="$words[2]" subcommand="$words[3]"'
    yield '    local place=$CURRENT names=""'
    yield from _by_place(flags_by_command, '[ "$place" -eq 2 ]', '[ "$place" -eq 3 ]')
    yield '    if [ -n "$names" ]; then compadd -- ${=names}; else _files; fi'
    yield "}"
    yield "compdef _tutelage_words tutelage"


def _by_place(flags_by_command: Commands, first: str, second: str) -> Iterator[str]:
    """Yield the lines that set `names` for the position of the typed word."""
    yield f"    if {first}; then"
    yield f'        names="{" ".join(_first_words(flags_by_command))}"'
    yield "    else"
    yield f'        {second} && case "$command" in'
    for command, names in _second_words(flags_by_command).items():
        yield f'        {command}) names="{" ".join(names)}" ;;'
    yield "        esac"
    yield "    fi"
    yield '    if [ -z "$names" ]; then'
    yield from _cases(flags_by_command)
    yield "    fi"


def _fish(flags_by_command: Commands) -> Iterator[str]:
    about = {command.name: command.help for command in COMMANDS} | {"completion": "a script of completions for a shell"}
    for name in [word for word in _first_words(flags_by_command) if not word.startswith("-")]:
        yield f"complete -c tutelage -n __fish_use_subcommand -f -a {name} -d {shlex.quote(about[name])}"
    for name, names in _second_words(flags_by_command).items():
        unnamed = f"__fish_seen_subcommand_from {name}; and not __fish_seen_subcommand_from {' '.join(names)}"
        yield f"complete -c tutelage -n '{unnamed}' -f -a '{' '.join(names)}'"
    for command, flags in flags_by_command.items():
        condition = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in command)
        for flag in flags:
            values = f" -x -a '{' '.join(flag.choices)}'" if flag.choices else " -r" if flag.takes_value else ""
            for name in flag.names:
                yield f"complete -c tutelage -n '{condition}' -l {name.removeprefix('--')}{values}"
