"""Writes the `__init__.pyi` of packages whose names are imported when they are first used, for editors and type
checkers.

python scripts/interface.py
"""

import importlib
import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from tutelage.algorithms.recipe import Recipe
from tutelage.base.config import Model
from tutelage.base.config.sections import SHORT_FORMS

ROOT = Path(__file__).parents[1]
HEADER = "# Written by scripts/interface.py.\n\n"
ITEM = "_Item: TypeAlias = str | Path | Callable[..., object]"
PACKAGES = {
    "tutelage": ("from tutelage import train as train", "from tutelage.base.version import __version__ as __version__"),
    "tutelage.commands.plan": (),
    "tutelage.people": (),
    "tutelage.rollout.server": (),
    "tutelage.train": (),
}
"""The packages, with the lines that do not follow from their tables of names."""


def file_of(name: str) -> Path:
    """The file with the names of a package."""
    return ROOT.joinpath(*name.split("."), "__init__.pyi")


def interface(name: str) -> str:
    """The text of the file: every name of the package, imported from the module that defines it, and workflows with
    the types of their keyword arguments."""
    imports, functions = set(PACKAGES[name]), []
    for one, module in importlib.import_module(name)._PLACES.items():
        value = getattr(importlib.import_module(module), one)
        if settings_of(value) is not None:
            functions.append(workflow(one, value, imports))
            continue
        home = getattr(value, "__module__", module) if isinstance(value, type) else module
        imports.add(f"from {home} import {one} as {one}")
    aliases = ["", ITEM] if functions else []
    public = {*importlib.import_module(name)._PLACES, "train", "__version__"}
    imports = {line if line.rpartition(" ")[2] in public else line.partition(" as ")[0] for line in imports}
    own = sorted(line for line in imports if line.split()[1].partition(".")[0] == "tutelage")
    others = sorted(imports.difference(own))
    return HEADER + "\n".join([*others, *([""] if others else []), *own, *aliases, *functions]) + "\n"


def settings_of(value: object) -> type | None:
    """The class of settings of a workflow; None for other values."""
    function = getattr(value, "__wrapped__", None)
    parameter = None if function is None else inspect.signature(function).parameters.get("settings")
    return None if parameter is None else parameter.annotation


def workflow(name: str, value: Callable[..., object], imports: set[str]) -> str:
    """A workflow as its two forms: with a settings object, and with settings as keyword arguments.

    Adds the imports of their types to `imports`.
    """
    settings, signature = settings_of(value), inspect.signature(value)
    imports |= {"from typing import Any, Literal, Required, TypeAlias, TypedDict, Unpack, overload"}
    keywords, result = f"_{settings.__name__.removesuffix('Settings')}", written(signature.return_annotation, imports)
    lines = [
        "@overload",
        f"def {name}(settings: {written(settings, imports)}, /) -> {result}: ...",
        "@overload",
        f"def {name}(**settings: Unpack[{keywords}]) -> {result}: ...",
    ]
    if name.startswith("prepare_"):
        return "\n".join(lines)
    fields = {one.name: accepted(one, imports) for one in signature.parameters.values()}
    if any(one.annotation is Model for one in signature.parameters.values()):
        hints = get_type_hints(Model)
        short = {one: full.partition(".")[2] for one, full in SHORT_FORMS.items() if one != "model"}
        fields |= {one: written(hints[field], imports) for one, field in short.items() if one not in fields}
    body = [f"    {one}: {hint}" for one, hint in fields.items()]
    return "\n".join(["", f"class {keywords}(TypedDict, total=False):", *body, "", *lines])


def accepted(one: inspect.Parameter, imports: set[str]) -> str:
    """The type of a keyword argument: what `commands.calls.settings_from` takes for the setting."""
    text = written(one.annotation, imports)
    if one.annotation is Model:
        text += " | str | Path"
    elif is_dataclass(one.annotation):
        text += " | Mapping[str, object]"
    elif one.name == "recipe":
        text += " | " + written(Recipe, imports)
    elif one.annotation in (str, Path):
        text = "str | Path"
    elif one.annotation == tuple[str, ...]:
        text = "_Item | Sequence[_Item] | Mapping[Any, float] | Mapping[str, _Item]"
    elif get_origin(one.annotation) is tuple:
        text = f"Sequence[{written(get_args(one.annotation)[0], imports)}]"
    imports |= {"from collections.abc import Callable, Mapping, Sequence", "from pathlib import Path"}
    return f"Required[{text}]" if one.default is one.empty else text


def written(hint: Any, imports: set[str]) -> str:
    """A type as source text. Adds the imports of its names to `imports`."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return written(arguments[0], imports)
    if origin in (Union, UnionType):
        return " | ".join(written(one, imports) for one in arguments)
    if origin is Literal:
        return f"Literal[{', '.join(map(json.dumps, arguments))}]"
    if hint is None or hint is NoneType or hint is Ellipsis:
        return "..." if hint is Ellipsis else "None"
    if arguments:
        return f"{written(origin, imports)}[{', '.join(written(one, imports) for one in arguments)}]"
    if hint is Any:
        return "Any"
    if hint.__module__ not in ("builtins", "pathlib"):
        imports.add(f"from {hint.__module__} import {hint.__name__} as {hint.__name__}")
    return str(hint.__name__)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    for package in PACKAGES:
        file_of(package).write_text(interface(package), encoding="utf-8")
