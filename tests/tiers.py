"""Parameters that no change needs to wait for: `make test-long` takes all, `make test` a representative."""

from collections.abc import Collection, Iterable
from itertools import product
from typing import Any

import pytest

from tutelage.algorithms.registry import RECIPES


def long_except(representatives: Collection[Any], values: Iterable[Any]) -> list[Any]:
    """The values, all but the representatives marked `long`. A tuple is several arguments."""
    every, few = list(values), list(representatives)
    assert all(value in every for value in few), f"{few} are not all among {every}"
    return [
        value
        if value in few
        else pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.long)
        for value in every
    ]


def every_value(*grid: Collection[Any]) -> list[Any]:
    """The product of the lists, `long` but for a diagonal, on which every value of each list stands."""
    cases = list(product(*map(enumerate, grid)))
    least = min(map(len, grid))
    few = [tuple(value for _, value in case) for case in cases if sum(place for place, _ in case) % least == 0]
    return long_except(few, product(*grid))


def _estimator(name: str) -> tuple[type, type]:
    return type(RECIPES[name].advantage), type(RECIPES[name].update)


ONE_PER_ESTIMATOR = tuple({_estimator(name): name for name in [*reversed(list(RECIPES)), "grpo", "ppo"]}.values())
"""A recipe for each estimator of the advantage and each way of taking a step."""
EVERY_RECIPE = long_except(ONE_PER_ESTIMATOR, RECIPES)
