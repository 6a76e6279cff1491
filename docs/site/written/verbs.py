"""A page for each verb of the command line: what it does, examples, and every setting with its default."""

import inspect
import types
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from tutelage.base.config.flags import SHORT_FORMS, Setting, settings_below
from tutelage.base.config.mapping import UNSET, overlay
from tutelage.base.config.pieces import Rates
from tutelage.commands.completion import settings_by_command
from tutelage.commands.table import COMMANDS, Command
from written.markdown import cell, code, docstring, fenced, page, table
from written.source import text_below

KINDS: Mapping[object, str] = {
    bool: "",
    int: "integer",
    float: "number",
    str: "text",
    Path: "path",
}
REQUIRED = "**required**"
COMMON = """\
Every verb takes `--help`, which prints its settings, and `--config FILE`, which reads them from a TOML file or from
the `config.json` of a run; flags win. Verbs marked ∥ take `--processes N`, which shares the work among N processes
of this machine ([several GPUs](../../howto/several_gpus.md)). Verbs that train take `--dry-run`, which prints [the
plan](../../scale.md) of the run in place of running it. `--model`, `--dtype`, `--device` and `--engine` are short
for `--model.path`, `--model.dtype`, `--model.device` and `--model.engine`.

A flag of several values takes them one after the other: `--reward a b`. A switch has two flags, `--quiet` and
`--no-quiet`. The names of settings in Python and in files are those of the flags, with `_` for `-`."""


def pages() -> dict[str, str]:
    """The index, and a page for each verb."""
    known = settings_by_command()
    found = {f"reference/cli/{verb.name}.md": verb_page(verb, known) for verb in COMMANDS}
    return found | {"reference/cli/README.md": index()}


def index() -> str:
    parts = []
    for group, verbs in groupby(COMMANDS, lambda verb: verb.group):
        rows = (
            (f"[{verb.name}]({verb.name}.md)" + (" ∥" if verb.parallel else ""), cell(verb.help))
            for verb in verbs
        )
        parts.append(f"## {group.capitalize()}\n\n{table(('verb', ''), rows)}")
    return page("Command line", COMMON, *parts)


def verb_page(verb: Command, known: Mapping[tuple[str, ...], tuple[type[Any], ...]]) -> str:
    commands = {command: first for command, (first, *_) in known.items() if command[0] == verb.name}
    examples = fenced("sh", (f"tutelage {verb.name} {example}".rstrip() for example in verb.examples))
    said = docstring(inspect.getdoc(commands[(verb.name,)]) or "") if (verb.name,) in commands else ""
    parts = [said or cell(verb.help[0].upper() + verb.help[1:] + "."), examples]
    alike = {"\n".join(tables(settings)) for settings in commands.values()}
    if verb.name == "plan":
        own, *_ = (_own(settings, known[command[1:]][0]) for command, settings in commands.items())
        verbs = ", ".join(f"[{name}]({name}.md)" for _, name in commands)
        parts += [f"It takes a verb ({verbs}) with the flags of that verb, and these:", *tables(own)]
    elif len(commands) > 1 and len(alike) == 1:
        parts += [f"The commands are {', '.join(code(name) for _, name in commands)}.", alike.pop()]
    else:
        for (_, *command), settings in commands.items():
            if command:
                about = docstring(inspect.getdoc(settings) or "")
                parts += [f"## {verb.name} {command[0]}", about]
            parts += tables(settings, "###" if command else "##")
            for variant in known[(verb.name, *command)][1:]:
                parts += [
                    "## Other settings",
                    docstring(inspect.getdoc(variant) or ""),
                    *tables(variant, "###"),
                ]
    return page(f"tutelage {verb.name}", *parts)


def _own(settings: type[Any], verb: type[Any]) -> list[Setting]:
    """The settings that a command has beside those of a verb."""
    of_verb = {setting.key for setting in settings_below(verb)}
    return [setting for setting in settings_below(settings) if setting.key not in of_verb]


def tables(settings: type[Any] | list[Setting], heading: str = "##") -> Iterator[str]:
    """The tables of some settings: those of the verb, then a section each."""
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


def inherited(setting: Setting) -> bool:
    """Whether a setting is one that several verbs share."""
    return setting.name not in vars(setting.owner).get("__annotations__", {})


def row(setting: Setting, defaults: object) -> tuple[str, str, str]:
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


def default_of(setting: Setting, defaults: object) -> str:
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
        return (
            " ".join(filter(None, dict.fromkeys(kind_of(one) for one in get_args(hint) if one is not ...)))
            + " …"
        )
    if get_origin(hint) is dict:
        return "section"
    return KINDS.get(hint, getattr(hint, "__name__", str(hint)))
