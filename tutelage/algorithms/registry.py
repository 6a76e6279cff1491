"""Recipes by name."""

import importlib
from difflib import get_close_matches

from tutelage.algorithms.a2c import A2C, A2C_N_STEP
from tutelage.algorithms.grpo import GRPO
from tutelage.algorithms.ppo import PPO, PPO_KL_STOP
from tutelage.algorithms.recipe import Recipe
from tutelage.algorithms.reinforce import REINFORCE
from tutelage.algorithms.rloo import RLOO
from tutelage.errors import TutelageError

RECIPES: dict[str, Recipe] = {r.name: r for r in (REINFORCE, A2C, A2C_N_STEP, PPO, PPO_KL_STOP, RLOO, GRPO)}


def recipe_named(name: str) -> Recipe:
    """The recipe of this name, or a user's own as `module:NAME`.

    Raises TutelageError with the nearest names when there is none.
    """
    if ":" in name:
        return _imported(name)
    if name in RECIPES:
        return RECIPES[name]
    near = get_close_matches(name.lower().replace("-", "_"), RECIPES, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Known: {', '.join(RECIPES)}."
    raise TutelageError(
        f"there is no recipe named {name!r}. {hint} A recipe of your own is given as module:NAME."
    )


def _imported(path: str) -> Recipe:
    module, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise TutelageError(f"recipe {path!r}: {error}; is the module's folder on PYTHONPATH?") from error
    except AttributeError as error:
        raise TutelageError(f"recipe {path!r}: module {module!r} has no {attribute!r}.") from error
    if not isinstance(found, Recipe):
        raise TutelageError(f"recipe {path!r} is a {type(found).__name__}, not a Recipe.")
    return found
