"""Recipes by name. To add an algorithm, add its file and a line here.

Names are available without torch, for completion."""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tutelage.base.errors import TutelageError, did_you_mean
from tutelage.base.modules import LazyTable, value_named

if TYPE_CHECKING:
    from tutelage.algorithms.recipe import Recipe

FILES: Mapping[str, tuple[str, ...]] = {
    "reinforce": ("reinforce",),
    "reward_to_go": ("reward_to_go",),
    "baselines": ("batch_baseline", "moving_baseline", "minimum_variance", "time_baseline", "value_baseline"),
    "actor_critic": ("q_actor_critic", "td_actor_critic", "vpg"),
    "a2c": ("a2c", "a2c_n_step"),
    "off_policy": ("off_policy",),
    "trpo": ("natural_gradient", "trpo"),
    "ppo": ("ppo", "ppo_kl_stop"),
    "ppo_penalty": ("ppo_penalty",),
    "vapo": ("vc_ppo", "vapo"),
    "rloo": ("rloo", "rloo_clipped"),
    "remax": ("remax",),
    "reinforce_pp": ("reinforce_pp", "reinforce_pp_baseline"),
    "grpo": ("grpo",),
    "dr_grpo": ("dr_grpo",),
    "dapo": ("dapo",),
    "gspo": ("gspo",),
    "cispo": ("cispo",),
    "best_of_group": ("best_of_group",),
    "turn_credit": ("turn_rloo", "turn_ppo", "mt_grpo", "turn_samples"),
    "distillation": ("reverse_kl", "gkd"),
}
"""Names of the recipes in each file, in recommended reading order. The recipe `ppo_kl_stop` is the constant
`PPO_KL_STOP` of its file."""


RECIPES: "LazyTable[Recipe]" = LazyTable(
    {name: (f"tutelage.algorithms.{file}", name.upper()) for file, names in FILES.items() for name in names}
)
"""All recipes of the package by name."""


def recipe_named(name: str) -> "Recipe":
    """The recipe with this name, or a custom one as `module:NAME`.

    Raises TutelageError, with similar names, if there is none.
    """
    if ":" in name:
        from tutelage.algorithms.recipe import Recipe

        recipe = value_named(name)
        if not isinstance(recipe, Recipe):
            raise TutelageError(f"{name} is a {type(recipe).__name__}, not a Recipe.")
        return recipe
    if name in RECIPES:
        return RECIPES[name]
    known, guess = ", ".join(RECIPES), did_you_mean(name.lower().replace("-", "_"), RECIPES, most=3)
    raise TutelageError(f"there is no recipe named {name!r}{guess} Known are {known}, and your own as module:NAME.")


def about(name: str) -> str:
    """The docstring of a recipe's file: equations, differences, and limitations of the algorithm."""
    recipe = recipe_named(name)
    file = next((file for file, names in FILES.items() if recipe.name in names and recipe is RECIPES[recipe.name]), "")
    return (importlib.import_module(f"tutelage.algorithms.{file}").__doc__ or "").strip() if file else ""
