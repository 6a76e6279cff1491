"""Settings from command-line flags, on top of a file, on top of the defaults; tyro parses the flags."""

import dataclasses
import functools
import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import tyro

from tutelage.base.config.aliases import aliases, note_old_name, used_aliases
from tutelage.base.config.bounds import require_finite
from tutelage.base.config.files import read_mapping, read_onto
from tutelage.base.config.hints import default_of, field_texts, is_section, section_of, settable
from tutelage.base.config.mapping import overlay
from tutelage.base.config.sections import SHORT_FORMS, Rates
from tutelage.base.errors import TutelageError

_POSITIONAL = get_args(tyro.conf.Positional[str])[1]
"""Marker in the type hint of a positional argument."""


def settings_from(settings: type[Any], words: Sequence[str], *, prog: str, epilogue: str = "") -> Any:
    """Return settings from flags, on top of the file named by `--config`, on top of the defaults.

    Exits after `--help`, which ends with the `epilogue`, and (with status 2) for invalid flags.

    Raises TutelageError for an invalid file and for settings that contradict each other.
    """
    path, flags = _take_config(words)
    if path is None:
        defaults = overlay(settings, {}, unset=tyro.MISSING)
    else:
        defaults = read_onto(settings, path, unset=tyro.MISSING)
        for alias in used_aliases(settings, read_mapping(Path(path))):
            note_old_name(f"{path}: the setting {alias.old}", alias.new)
    short = _short_forms(settings)
    try:
        parsed = tyro.cli(
            settings,
            prog=prog,
            description=_description(settings, defaults, short),
            args=[_expanded(word, short) for word in _present_flags(settings, flags)],
            default=defaults,
            registry=_REGISTRY,
        )
    except SystemExit as stop:
        if epilogue and not stop.code:
            print(f"\n{epilogue}\n")
        raise
    require_finite(parsed)
    return parsed


_REGISTRY = tyro.constructors.ConstructorRegistry()


@_REGISTRY.struct_rule
def _required_first(info: tyro.constructors.StructTypeInfo) -> tyro.constructors.StructConstructorSpec | None:
    """Read a class of settings in the order of its help: required settings, and sections with some, come first. The
    texts of the fields are paragraphs, without the line breaks of the source."""
    if not is_section(info.type):
        return None
    hints, has_values = get_type_hints(info.type, include_extras=True), isinstance(info.default, info.type)
    texts = functools.cache(functools.partial(field_texts, info.type))  # read for a help alone

    def text(name: str) -> str:
        return texts().get(name, "")

    fields = [
        tyro.constructors.StructFieldSpec(
            field.name,
            hints[field.name],
            getattr(info.default, field.name) if has_values else _default(field),
            helptext=functools.partial(text, field.name),
        )
        for field in settable(info.type)
    ]
    fields.sort(key=lambda field: not _is_open(field.default))
    return tyro.constructors.StructConstructorSpec(info.type, tuple(fields))


def _default(field: "dataclasses.Field[Any]") -> Any:
    default = default_of(field)
    return tyro.MISSING if default is dataclasses.MISSING else default


def _is_open(value: object) -> bool:
    """Whether a setting, or one of a section, is required and has no value."""
    if dataclasses.is_dataclass(value):
        return any(_is_open(getattr(value, field.name)) for field in settable(type(value)))
    return value is tyro.MISSING


def _take_config(words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Split `--config FILE` or `--config=FILE` from the other words."""
    path, flags, rest = None, [], iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name != "--config":
            flags.append(word)
            continue
        file = value if equals else next(rest, "")
        if not file or file.startswith("--"):
            raise TutelageError("--config needs the name of a TOML file, or of the config.json of a run.")
        if path is not None:
            raise TutelageError(f"--config is given twice, with {path} and {file}: put the settings in one file.")
        path = file
    return path, flags


def _present_flags(settings: type[Any], words: Sequence[str]) -> list[str]:
    """Replace old flags with their present names and print a note for each."""
    present = {}
    for alias in aliases(settings):
        present[_flag(alias.old)] = _flag(alias.new)
        present[_flag(alias.old, "no-")] = _flag(alias.new, "no-")
    flags = []
    for word in words:
        name, equals, value = word.partition("=")
        new = present.get(name.replace("_", "-"))
        if new is not None:
            note_old_name(name, new)
        flags.append(word if new is None else new + equals + value)
    return flags


def _flag(key: str, negation: str = "") -> str:
    """Return the flag of a dotted key: "lora.max_rank" is --lora.max-rank, and negated --lora.no-max-rank."""
    *sections, name = key.replace("_", "-").split(".")
    return "--" + ".".join([*sections, negation + name])


def _short_forms(settings: type[Any]) -> dict[str, str]:
    """Return the entries of SHORT_FORMS that apply to these settings: {"--model": "--model.path", ...}."""
    hints = get_type_hints(settings)
    short = {}
    for name, key in SHORT_FORMS.items():
        section, leaf = key.split(".")
        piece = hints.get(section)
        names = {field.name for field in dataclasses.fields(piece)} if dataclasses.is_dataclass(piece) else set()
        if leaf in names and (name == section or name not in hints):
            short[f"--{name}"] = f"--{key}"
    return short


def _expanded(word: str, short: dict[str, str]) -> str:
    name, equals, value = word.partition("=")
    return short.get(name, name) + equals + value


def _description(settings: type[Any], defaults: object, short: dict[str, str]) -> str:
    needed = [
        next((name for name, full in short.items() if full == flag), flag) for flag in _open_flags(settings, defaults)
    ]
    lines = [
        "\n\n".join(" ".join(part.split()) for part in (inspect.getdoc(settings) or "").split("\n\n")),
        "",
        *([f"Required: {', '.join(needed)}.", ""] if needed else []),
        "With --config FILE, settings come from a TOML file or from the config.json of a run; flags win.",
        *([f"{', '.join(short)} are short for {', '.join(short.values())}."] if short else []),
        *_rates(settings),
    ]
    return "\n".join(lines)


def _open_flags(settings: type[Any], defaults: object) -> Iterator[str]:
    """Yield the flags of required settings without a value."""
    for field in settings_below(settings):
        *sections, _ = field.key.split(".")
        owner = functools.reduce(lambda piece, section: getattr(piece, section, None), sections, defaults)
        if field.flags and getattr(owner, field.name, None) is tyro.MISSING:
            yield field.flags[0]


def _rates(settings: type[Any]) -> Iterator[str]:
    """Yield help lines about the default learning rates of the command."""
    rates = getattr(settings, "RATES", None)
    if isinstance(rates, Rates):
        yield ""
        yield f"Without --optimiser.lr the learning rate is {rates.all:g}, with LoRA {rates.lora:g}."


class Flag(NamedTuple):
    """A flag: its names (two for a boolean), its choices if limited, and whether it takes a value."""

    names: tuple[str, ...]
    choices: tuple[str, ...] = ()
    takes_value: bool = True


def flags_of(settings: type[Any]) -> list[Flag]:
    """Return the flags that `settings_from` reads into `settings`, without positional arguments and aliases."""
    fields = [each for each in settings_below(settings) if not each.positional]
    own = [Flag(each.flags, each.choices, takes_value=each.hint is not bool) for each in fields]
    own += [Flag(("--config",)), Flag(("--help",), takes_value=False)]
    by_name = {flag.names[0]: flag for flag in own}
    short = {name: by_name[full] for name, full in _short_forms(settings).items()}
    return own + [full._replace(names=(name,)) for name, full in short.items() if name not in by_name]


class SettingField(NamedTuple):
    """A setting of a command: dotted key (also its flag), type, class, and name of its field."""

    key: str
    hint: Any
    owner: type[Any]
    name: str
    positional: bool = False

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags that set it (two for a boolean); empty for a positional argument."""
        if self.positional:
            return ()
        return (_flag(self.key), _flag(self.key, "no-")) if self.hint is bool else (_flag(self.key),)

    @property
    def choices(self) -> tuple[str, ...]:
        """Allowed values of a Literal; empty for other types."""
        return _literals(self.hint)


def settings_below(settings: type[Any], section: str = "") -> Iterator[SettingField]:
    """Yield every setting of a class and its sections, in the order of the fields."""
    hints = get_type_hints(settings, include_extras=True)
    for field in settable(settings):
        hint = hints[field.name]
        remarks = getattr(hint, "__metadata__", ())
        key = section + next((own for each in remarks if (own := getattr(each, "name", None))), field.name)
        while hasattr(hint, "__metadata__"):
            hint = get_args(hint)[0]
        if inner := section_of(hint):
            yield from settings_below(inner, f"{key}.")
        else:
            yield SettingField(key, hint, settings, field.name, positional=_POSITIONAL in remarks)


def _literals(hint: Any) -> tuple[str, ...]:
    """Return the values of every Literal in a hint, also inside a tuple or `Literal[...] | None`."""
    if get_origin(hint) is Literal:
        return tuple(map(str, get_args(hint)))
    return tuple(value for inner in get_args(hint) for value in _literals(inner))
