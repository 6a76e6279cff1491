"""A page for each command: what it does, examples, and every setting with its default."""

import inspect
import types
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from reference.markdown import cell, code, docstring, fenced, page, table
from reference.source import text_below
from tutelage.base.config.flags import SettingField, settings_below
from tutelage.base.config.mapping import UNSET, overlay
from tutelage.base.config.sections import SHORT_FORMS, Rates
from tutelage.commands.completion import settings_by_command
from tutelage.commands.table import COMMANDS, Command

KINDS: Mapping[object, str] = {bool: "", int: "integer", float: "number", str: "text", Path: "path"}
REQUIRED = "**required**"
COMMON = """\
Every command takes `--help`, which prints its settings, and `--config FILE`, which reads them from a TOML file or
from the `config.json` of a run; flags take precedence. Commands marked ∥ take `--processes N`, which distributes the
work over N processes of this machine ([several GPUs](../../howto/several_gpus.md)). Commands that train take
`--dry-run`, which prints [the plan](../../scale.md) of the run instead of running it, and `--seeds N`, which trains
with N seeds and compares the runs ([comparing runs](../../howto/compare_runs.md)). `--model`, `--dtype`,
`--device` and `--engine` are short for `--model.path`, `--model.dtype`, `--model.device` and `--model.engine`.

A flag with several values takes them separated by spaces: `--reward a b`. A switch has two flags, `--quiet` and
`--no-quiet`. The names of settings in Python and in files are those of the flags, with `_` for `-`."""


def pages() -> dict[str, str]:
    """The index, and a page for each command."""
    classes = settings_by_command()
    texts = {f"reference/cli/{command.name}.md": command_page(command, classes) for command in COMMANDS}
    return texts | {"reference/cli/README.md": index()}


def index() -> str:
    parts = []
    for group, commands in groupby(COMMANDS, lambda command: command.group):
        rows = (
            (f"[{command.name}]({command.name}.md)" + (" ∥" if command.parallel else ""), cell(command.help))
            for command in commands
        )
        parts.append(f"## {group.capitalize()}\n\n{table(('command', ''), rows)}")
    return page("Command line", COMMON, *parts)


def command_page(command: Command, classes: Mapping[tuple[str, ...], tuple[type[Any], ...]]) -> str:
    """The page of a command. `classes` are those of settings of every command and subcommand, by their words."""
    name = command.name
    settings_of = {words: first for words, (first, *_) in classes.items() if words[0] == name}
    examples = fenced("sh", (f"tutelage {name} {example}".rstrip() for example in command.examples))
    about = docstring(inspect.getdoc(settings_of[(name,)]) or "") if (name,) in settings_of else ""
    parts = [about or cell(command.help[0].upper() + command.help[1:] + "."), examples]
    alike = {"\n".join(tables(settings)) for settings in settings_of.values()}
    if name == "plan":
        own, *_ = (_own(settings, classes[words[1:]][0]) for words, settings in settings_of.items())
        planned = ", ".join(f"[{other}]({other}.md)" for _, other in settings_of)
        parts += [f"It takes a command ({planned}) with the flags of that command, and these:", *tables(own)]
    elif len(settings_of) > 1 and len(alike) == 1:
        parts += [f"The commands are {', '.join(code(other) for _, other in settings_of)}.", alike.pop()]
    else:
        for (_, *subcommand), settings in settings_of.items():
            if subcommand:
                about = docstring(inspect.getdoc(settings) or "")
                parts += [f"## {name} {subcommand[0]}", about]
            parts += tables(settings, "###" if subcommand else "##")
            for variant in classes[(name, *subcommand)][1:]:
                parts += ["## Other settings", docstring(inspect.getdoc(variant) or ""), *tables(variant, "###")]
    return page(f"tutelage {name}", *parts)


def _own(settings: type[Any], command: type[Any]) -> list[SettingField]:
    """The settings that `plan` has beside those of the command that is planned."""
    planned = {setting.key for setting in settings_below(command)}
    return [setting for setting in settings_below(settings) if setting.key not in planned]


def tables(settings: type[Any] | list[SettingField], heading: str = "##") -> Iterator[str]:
    """The tables of some settings: those of the command, then a section each."""
    every = settings if isinstance(settings, list) else list(settings_below(settings))
    defaults = overlay(settings, {}) if isinstance(settings, type) else None
    own = sorted((setting for setting in every if "." not in setting.key), key=inherited)
    rows = [row(one, defaults) for one in own]
    if own:
        yield table(("setting", "default", "meaning"), sorted(rows, key=lambda cells: cells[1] != REQUIRED))
    rest = [setting for setting in every if "." in setting.key]
    for section, members in groupby(rest, lambda setting: setting.key.rpartition(".")[0]):
        inner = list(members)
        yield f"{heading} {section}"
        yield docstring(inspect.getdoc(inner[0].owner) or "")
        yield table(("setting", "default", "meaning"), (row(one, defaults) for one in inner))


def inherited(setting: SettingField) -> bool:
    """Whether a setting is one that several commands share."""
    return setting.name not in vars(setting.owner).get("__annotations__", {})


def row(setting: SettingField, defaults: object) -> tuple[str, str, str]:
    """The row of a setting: its flag with the kind of its value, its default, its meaning."""
    name = setting.flags[0] if setting.flags else setting.name.upper()
    kind = kind_of(setting.hint)
    choices = ", ".join(code(choice) for choice in setting.choices)
    short = next((f"--{name}" for name, key in SHORT_FORMS.items() if key == setting.key), "")
    meaning = cell(text_below(setting.owner, setting.name))
    if choices:
        meaning = f"{meaning} One of {choices}.".strip()
    flag = code(name) + (f", {code(short)}" if short else "") + (f" *{kind}*" if kind else "")
    return flag, default_of(setting, defaults), meaning


def default_of(setting: SettingField, defaults: object) -> str:
    sections = setting.key.split(".")[:-1]
    value = getattr(setting.owner, setting.name, UNSET) if defaults is None else defaults
    for name in () if defaults is None else (*sections, setting.name):
        value = getattr(value, name, UNSET)
    if value is UNSET:
        return REQUIRED
    rates = getattr(defaults, "RATES", None)
    if setting.key == "optimiser.lr" and isinstance(rates, Rates):
        return f"{code(f'{rates.all:g}')}, with LoRA {code(f'{rates.lora:g}')}"
    if value is None or value == () or value == "":
        return "–"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return code(" ".join(map(str, value)))
    return code(f"{value:g}" if isinstance(value, float) else str(value))


def kind_of(hint: Any) -> str:
    """What a setting takes, in a word or two; empty for a switch and for a few known values."""
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [kind_of(member) for member in get_args(hint) if member is not types.NoneType]
        return " or ".join(dict.fromkeys(filter(None, kinds)))
    if get_origin(hint) is Literal:
        return ""
    if get_origin(hint) is tuple:
        return " ".join(filter(None, dict.fromkeys(kind_of(one) for one in get_args(hint) if one is not ...))) + " …"
    if get_origin(hint) is dict:
        return "section"
    return KINDS.get(hint, getattr(hint, "__name__", str(hint)))
