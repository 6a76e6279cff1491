"""The page about the settings of recipes, `--set SLOT=VALUE`, from the classes of the slots and the pieces."""

import inspect
import types
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from reference.markdown import cell, code, docstring, page, table
from reference.source import text_below
from tutelage.algorithms.override import PIECES
from tutelage.algorithms.slots import Choices, Critic, GradientSteps, NaturalStep, Penalty
from tutelage.algorithms.table import brief
from tutelage.core.preferences import PREFERENCE_LOSSES

INTRODUCTION = """\
A recipe is a value with a slot for each choice of an algorithm. `--set SLOT=VALUE`, of `improve` and `distill`,
changes a slot of the recipe that `--recipe` names: `--set penalty.coef=0.02 advantage=Gae advantage.lam=0.9
critic=none`. A value is a number, `true`, `false`, `none`, a keyword of the slot, the class of a piece, or
`module:NAME` for a piece of your own ([a custom algorithm](../howto/custom_algorithm.md)).
[Algorithms](../algorithms/README.md) shows what every recipe sets. `dpo` has no recipe: its `--set` changes the
settings of the loss."""

WORDS = {
    "name": "Name of the recipe.",
    "critic": "The network that predicts returns, for recipes that need one.",
    "update": "How the policy moves: gradient steps, or one natural step.",
    "epochs": "Passes over the rollout.",
    "minibatches": "Optimiser steps in each pass.",
    "baseline": "Baseline that is subtracted from the return.",
    "gamma": "Discount per token.",
    "lam": "λ: 1 uses the actual return, 0 the critic's estimate.",
    "value_lam": "λ of the critic's target; None takes `lam`.",
    "whiten": "Scale the advantages of a batch to mean 0 and spread 1.",
    "n": "Steps of reward before the critic's estimate.",
}
"""What a setting means in every piece that has it without a text of its own."""


def pages() -> dict[str, str]:
    parts = [INTRODUCTION, "## Slots", of_class(Choices)]
    for title, classes in {
        "penalty": (Penalty,),
        "critic": (Critic,),
        "update": (GradientSteps, NaturalStep),
        **{protocol.__name__.lower(): found for protocol, found in PIECES.items()},
    }.items():
        parts.append(f"## {title}")
        parts += [part for cls in classes for part in piece(cls)]
    parts += ["## Losses of dpo", losses()]
    return {"reference/recipes.md": page("Settings of recipes", *parts)}


def piece(cls: type[Any]) -> Iterator[str]:
    yield f"### {cls.__name__}"
    yield docstring(inspect.getdoc(cls) or "")
    if fields(cls):
        yield of_class(cls)


def of_class(cls: type[Any]) -> str:
    hints = get_type_hints(cls)
    rows = [(f"`{field.name}`", default(field), meaning(cls, field.name, hints[field.name])) for field in fields(cls)]
    return table(("setting", "default", "meaning"), rows)


def meaning(cls: type[Any], name: str, hint: Any) -> str:
    """The text below a field; where it has none, what the name means in every piece."""
    said = cell(text_below(cls, name)) or WORDS.get(name, "")
    return f"{said}{choices(hint)}".strip() or "as above"


def default(field: "Field[Any]") -> str:
    value = field.default if field.default_factory is MISSING else field.default_factory()
    if value is MISSING:
        return "**required**"
    return code(brief(value)) if value != "" else "–"


def choices(hint: Any) -> str:
    """The words that a slot knows, where it knows only these."""
    if get_origin(hint) in (Union, types.UnionType):
        return "".join(choices(member) for member in get_args(hint))
    if get_origin(hint) is not Literal:
        return ""
    return " One of " + ", ".join(code(str(one)) for one in get_args(hint)) + "."


def losses() -> str:
    rows = []
    for name, loss in PREFERENCE_LOSSES.items():
        settings = fields(loss) if is_dataclass(loss) else ()
        rows.append((f"`{name}`", ", ".join(f"`{f.name}={brief(getattr(loss, f.name))}`" for f in settings)))
    return table(("`--loss`", "settings"), rows)
