"""The names: every on-policy algorithm as a value. `recipe.py` is the template, every other file an
algorithm.
"""

from tutelage.algorithms.registry import RECIPES, recipe_named

__all__ = ["RECIPES", "recipe_named"]
