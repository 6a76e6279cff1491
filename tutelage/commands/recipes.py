"""`tutelage recipes`: the algorithms that `tutelage improve` knows, as one table."""

import json
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Settings:
    """List the reinforcement-learning recipes and the pieces they are made of, or tell about one."""

    about: str | None = None
    """Name of one recipe (or a recipe of your own as module:NAME): its equation, what it differs in, its slots."""
    json: bool = False
    """Print everything as JSON, for other programs."""


def main(settings: Settings) -> int:
    """Print one recipe or all, as text or as JSON."""
    from tutelage.algorithms import RECIPES, pieces, plain, recipe_named
    from tutelage.commands.tables.recipes import print_recipes, recipe_text

    if settings.about is not None:
        recipe = recipe_named(settings.about)
        print(json.dumps(plain(recipe), indent=2) if settings.json else recipe_text(settings.about))
    elif settings.json:
        known = {name: plain(recipe) for name, recipe in RECIPES.items()}
        print(json.dumps({"recipes": known, "pieces": pieces()}, indent=2))
    else:
        print_recipes()
    return 0
