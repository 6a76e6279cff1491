"""Recipes by name. Adding an algorithm is one file and its line here."""

import importlib
from difflib import get_close_matches
from types import ModuleType

from tutelage.algorithms import (
    a2c,
    actor_critic,
    baselines,
    best_of_group,
    cispo,
    dapo,
    distillation,
    dr_grpo,
    grpo,
    gspo,
    off_policy,
    ppo,
    ppo_penalty,
    reinforce,
    reinforce_pp,
    remax,
    reward_to_go,
    rloo,
    trpo,
    vapo,
)
from tutelage.algorithms.recipe import Recipe
from tutelage.base.errors import TutelageError

FILES: dict[ModuleType, tuple[Recipe, ...]] = {
    reinforce: (reinforce.REINFORCE,),
    reward_to_go: (reward_to_go.REWARD_TO_GO,),
    baselines: (
        baselines.BATCH_BASELINE,
        baselines.MOVING_BASELINE,
        baselines.MINIMUM_VARIANCE,
        baselines.TIME_BASELINE,
        baselines.VALUE_BASELINE,
    ),
    actor_critic: (actor_critic.Q_ACTOR_CRITIC, actor_critic.TD_ACTOR_CRITIC, actor_critic.VPG),
    a2c: (a2c.A2C, a2c.A2C_N_STEP),
    off_policy: (off_policy.OFF_POLICY,),
    trpo: (trpo.NATURAL_GRADIENT, trpo.TRPO),
    ppo: (ppo.PPO, ppo.PPO_KL_STOP),
    ppo_penalty: (ppo_penalty.PPO_PENALTY,),
    vapo: (vapo.VC_PPO, vapo.VAPO),
    rloo: (rloo.RLOO, rloo.RLOO_CLIPPED),
    remax: (remax.REMAX,),
    reinforce_pp: (reinforce_pp.REINFORCE_PP, reinforce_pp.REINFORCE_PP_BASELINE),
    grpo: (grpo.GRPO,),
    dr_grpo: (dr_grpo.DR_GRPO,),
    dapo: (dapo.DAPO,),
    gspo: (gspo.GSPO,),
    cispo: (cispo.CISPO,),
    best_of_group: (best_of_group.BEST_OF_GROUP,),
    distillation: (distillation.REVERSE_KL, distillation.GKD),
}
"""The recipes of each file, in the order in which they are best read."""

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipes in FILES.values() for recipe in recipes}
"""Every recipe of the package, by its name."""


def recipe_named(name: str) -> Recipe:
    """The recipe of this name, or a user's own as `module:NAME`.

    Raises TutelageError with the nearest names when there is none.
    """
    if ":" in name:
        found = imported(name)
        if not isinstance(found, Recipe):
            raise TutelageError(f"{name} is a {type(found).__name__}, not a Recipe.")
        return found
    if name in RECIPES:
        return RECIPES[name]
    near = get_close_matches(name.lower().replace("-", "_"), RECIPES, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(RECIPES)}."
    raise TutelageError(f"there is no recipe named {name!r}. {hint} One of your own is given as module:NAME.")


def imported(path: str) -> object:
    """The object that `module:NAME` names. Raises TutelageError when it cannot be imported."""
    module, _, attribute = path.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        raise TutelageError(f"{path}: {error}; is the module's folder on PYTHONPATH?") from error
    except AttributeError as error:
        raise TutelageError(f"{path}: the module {module} has no {attribute}.") from error


def about(name: str) -> str:
    """The docstring of a recipe's file: equation, differences, when the algorithm degenerates."""
    recipe = recipe_named(name)
    home = next((file for file, recipes in FILES.items() if recipe in recipes), None)
    return (home.__doc__ or "").strip() if home else ""
