"""Settings of the table of recipes."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RecipesSettings:
    """List the reinforcement-learning recipes and their pieces, or describe one recipe."""

    about: str | None = None
    """Name of one recipe (or a custom module:NAME): its equation, its differences, its slots."""
    json: bool = False
    """Print the output as JSON, for other programs."""
