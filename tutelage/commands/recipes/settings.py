"""Settings of the table of recipes."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RecipesSettings:
    """List the reinforcement-learning recipes and the pieces they are made of, or tell about one."""

    about: str | None = None
    """Name of one recipe (or a recipe of your own as module:NAME): its equation, what it differs in, its slots."""
    json: bool = False
    """Print everything as JSON, for other programs."""
