"""Every on-policy algorithm as a value: `recipe.py` is the template, most other files are an algorithm each."""

from tutelage.algorithms.override import override
from tutelage.algorithms.registry import RECIPES, about, recipe_named
from tutelage.algorithms.table import pieces, plain, table

__all__ = ["RECIPES", "about", "override", "pieces", "plain", "recipe_named", "table"]
