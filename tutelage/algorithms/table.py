"""Table of all recipes, with slots as columns, for comparing algorithms."""

from dataclasses import MISSING, fields, is_dataclass
from typing import TypeAlias

from tutelage.algorithms.override import PIECES
from tutelage.algorithms.recipe import GradientSteps, NaturalStep, Penalty, Recipe
from tutelage.algorithms.registry import RECIPES
from tutelage.base.nouns import counted


def table() -> list[dict[str, str]]:
    """One row per recipe: column names to short texts."""
    return [row(recipe) for recipe in RECIPES.values()]


def row(recipe: Recipe) -> dict[str, str]:
    """The slots of a recipe as short texts; rarely changed slots are listed under `also`."""
    penalty, critic = recipe.penalty, recipe.critic
    return {
        "name": recipe.name,
        "samples": str(recipe.samples),
        "advantage": brief(recipe.advantage),
        "surrogate": brief(recipe.surrogate),
        "penalty": _penalty(penalty) if penalty else "-",
        "update": _update(recipe),
        "reduce": recipe.reduce,
        "critic": f"{critic.coef:g}" + (f", clip {critic.clip:g}" if critic.clip else "") if critic else "-",
        "also": _also(recipe),
        "paper": recipe.paper,
    }


def brief(value: object) -> str:
    """A piece as text: its class and its non-default settings."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if not is_dataclass(value) or isinstance(value, type):
        return getattr(value, "__name__", None) or str(value)
    parts = []
    for field in fields(value):
        inner = getattr(value, field.name)
        if field.default is MISSING or inner != field.default:
            parts.append(brief(inner) if is_dataclass(inner) else f"{field.name}={brief(inner)}")
    return f"{type(value).__name__}({', '.join(parts)})" if parts else type(value).__name__


def _penalty(penalty: Penalty) -> str:
    mixture = f"({penalty.mixture:g})" if penalty.mixture != 1 else ""
    return f"{penalty.coef:g} {penalty.kind}{mixture} in {penalty.where}"


def _update(recipe: Recipe) -> str:
    match recipe.update:
        case GradientSteps(epochs=1, minibatches=1):
            return "1 step"
        case GradientSteps(epochs, minibatches, max_kl):
            return f"{epochs} x {counted(minibatches, 'step')}" + (f" to KL {max_kl:g}" if max_kl else "")
        case NaturalStep(max_kl=max_kl, search=search):
            return f"natural, KL {max_kl:g}" + (", search" if search else "")


Plain: TypeAlias = "str | float | bool | dict[str, Plain] | None"


def plain(value: object) -> Plain:
    """A recipe or piece as nested JSON-serialisable mappings; `piece` is the class name."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if not is_dataclass(value) or isinstance(value, type):
        return brief(value)
    return {"piece": type(value).__name__} | {f.name: plain(getattr(value, f.name)) for f in fields(value)}


def pieces() -> dict[str, dict[str, str]]:
    """The pieces accepted by each open slot, with the first sentence of their docstrings."""
    return {
        protocol.__name__.lower(): {
            cls.__name__: " ".join((cls.__doc__ or "").strip().split("\n\n")[0].split()) for cls in classes
        }
        for protocol, classes in PIECES.items()
    }


def _also(recipe: Recipe) -> str:
    parts = [
        f"{name}={brief(getattr(recipe, name))}"
        for name in ("dynamic_sampling", "shaping", "entropy", "ptx")
        if getattr(recipe, name) != getattr(Recipe, name)
    ]
    if recipe.critic and recipe.critic.warmup:
        parts.append(f"critic.warmup={recipe.critic.warmup}")
    return ", ".join(parts)
