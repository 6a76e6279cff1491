"""What raters say when they are asked again."""

import math

import numpy as np
import pytest

from tutelage.stats.consistency import Repeats, self_consistency


def test_later_choices_are_compared_with_the_first() -> None:
    item = ["x", "y", "x", "x", "y", "x"]
    rater = ["r", "r", "r", "r", "s", "s"]
    choice = ["a", "b", "a", "b", "a", "a"]
    assert self_consistency(item, rater, choice) == {"r": Repeats(1, 2)}


@pytest.mark.parametrize("accuracy", [0.55, 0.7, 0.9])
@pytest.mark.parametrize("classes", [2, 3, 5])
def test_the_accuracy_behind_repeats_is_recovered(accuracy: float, classes: int) -> None:
    """Somebody right with probability a, and wrong evenly, is drawn twice about every item."""
    generator = np.random.default_rng(classes)
    size = 60_000
    truth = generator.integers(classes, size=size)

    def say() -> list[str]:
        wrong = (truth + generator.integers(1, classes, size=size)) % classes
        return list(map(str, np.where(generator.random(size) < accuracy, truth, wrong)))

    items = list(map(str, range(size)))
    (found,) = self_consistency(items * 2, ["r"] * 2 * size, say() + say()).values()
    assert found.seen == size
    implied = found.reliability(classes)
    assert implied == pytest.approx(accuracy, abs=0.02 if accuracy > 0.6 else 0.04)


def test_chance_proves_nothing_and_no_repeats_even_less() -> None:
    assert Repeats(5, 10).reliability() == 0.5
    assert Repeats(1, 10).reliability() == 0.5
    assert Repeats(10, 10).reliability() == 1.0
    assert Repeats(0, 0).reliability() is None
    assert Repeats(0, 0).share.value is None
    share = Repeats(8, 10).share
    assert share.value == 0.8
    assert share.low is not None
    assert share.low < 0.8
    assert math.isclose(Repeats(82, 100).reliability() or 0, 0.9)
