"""The designs of `bench.raters`: simulated studies whose truth is known.

`nominal_grid`: raters who are alike, differ, guess, are biased, confuse neighbouring classes, or face items that are
hard for all. `ordered_grid`: items with a latent difference, and raters with private thresholds on it.
"""

from dataclasses import dataclass
from random import Random
from typing import Protocol

import numpy as np

from tutelage.stats.vote_codes import Floats, Ints, Votes

KINDS = ("alike", "differing", "guessers", "biased", "confused", "hard")
SIZES = ((5, 20), (5, 100), (20, 10), (20, 100), (100, 6), (100, 50), (1000, 2), (1000, 20), (5000, 6), (5000, 100))
OVERLAP = {2: 3, 3: 4, 5: 5}
ORDERED_DESIGNS = 210


class SimulatedStudy(Protocol):
    """A design: its `name` in the table, whether its classes are `ordered`, and about how many `votes` it has."""

    @property
    def name(self) -> str: ...

    @property
    def ordered(self) -> bool: ...

    @property
    def votes(self) -> int: ...

    @property
    def overlap(self) -> int: ...

    def simulate(self, seed: int) -> tuple[Votes, Ints]:
        """Votes and the truth [I]."""


@dataclass(frozen=True)
class Design:
    """A simulated study: raters of a kind, about `each` votes by each rater, `overlap` votes on each item."""

    kind: str
    raters: int
    each: int
    classes: int
    overlap: int

    @property
    def name(self) -> str:
        return f"{self.kind} {self.raters} x {self.each}, {self.classes} classes"

    @property
    def ordered(self) -> bool:
        return False

    @property
    def votes(self) -> int:
        return self.raters * self.each

    def simulate(self, seed: int) -> tuple[Votes, Ints]:
        """Votes and the truth [I]."""
        return simulate(self, seed)


def nominal_grid() -> list[Design]:
    """All designs, in a random order that is always the same, so that what was measured first is a sample of all."""
    designs = [
        Design(kind, raters, each, classes, overlap)
        for kind in KINDS
        for raters, each in SIZES
        for classes, overlap in OVERLAP.items()
    ]
    Random(0).shuffle(designs)
    return designs


def simulate(design: Design, seed: int) -> tuple[Votes, Ints]:
    """Votes and the truth [I]."""
    generator = np.random.default_rng(seed)
    raters, classes = design.raters, design.classes
    number = np.maximum(1, np.round(design.each * generator.lognormal(-0.125, 0.5, size=raters)).astype(int))
    if raters <= 20:
        number = np.full(raters, design.each)
    items = max(2, int(number.sum()) // design.overlap)
    item = np.concatenate([generator.permutation(items)[:n] for n in number])
    rater = np.repeat(np.arange(raters), np.minimum(number, items))
    truth = generator.integers(classes, size=items)
    chance = _confusion(design, generator)[rater, truth[item]]
    if design.kind == "hard":
        chance = _with_hard_items(chance, truth, item, generator)
    choice = (generator.random((len(item), 1)) > np.cumsum(chance, axis=1)).sum(axis=1).clip(max=classes - 1)
    names = [tuple(map(str, range(size))) for size in (items, raters, classes)]
    return Votes(item, rater, choice, names[0], names[1], names[2]), truth


def _confusion(design: Design, generator: np.random.Generator) -> Floats:
    """[R, K, K]."""
    raters, classes = design.raters, design.classes

    def coins(accuracy: Floats) -> Floats:
        a = accuracy[:, None, None]
        return np.where(np.eye(classes, dtype=bool), a, (1 - a) / (classes - 1))

    if design.kind == "alike":
        return coins(np.full(raters, 0.75))
    if design.kind == "guessers":
        return coins(np.where(generator.random(raters) < 0.3, 1 / classes, 0.85))
    if design.kind == "biased":
        share = generator.beta(1, 3, size=(raters, 1, 1))
        favourite = np.eye(classes)[generator.integers(classes, size=raters)][:, None, :]
        return (1 - share) * coins(generator.beta(12, 4, size=raters)) + share * favourite
    if design.kind == "confused":
        distance = np.abs(np.arange(classes)[:, None] - np.arange(classes))
        near = np.exp(-distance / generator.gamma(4, 0.15, size=(raters, 1, 1))) + 0.01
        return np.asarray(near / near.sum(axis=2, keepdims=True))
    return coins(generator.beta(6, 2.5, size=raters))


def _with_hard_items(chance: Floats, truth: Ints, item: Ints, generator: np.random.Generator) -> Floats:
    """Each item lures all raters to one wrong class, by a share that differs from item to item."""
    classes = chance.shape[1]
    wrong = (truth + generator.integers(1, classes, size=len(truth))) % classes
    share = 0.6 * generator.beta(1.2, 3, size=len(truth))[item][:, None]
    return np.asarray((1 - share) * chance + share * np.eye(classes)[wrong[item]])


@dataclass(frozen=True)
class OrderedDesign:
    """A simulated study of items with a latent difference d = c_z m, m of the `magnitude` and of mean about `scale`,
    and raters who choose by logistic noise around exp(.4 x) d + .3 x' and by thresholds in proportion to
    `threshold` exp(`private` x''). Of three classes a share `ties` has d = 0; a share `careless` of the raters chooses
    at random. `overlap` votes an item, about `each` a rater."""

    classes: int
    overlap: int
    ties: float
    threshold: float
    private: float
    magnitude: str
    careless: float
    scale: float
    each: int
    items: int

    @property
    def name(self) -> str:
        return (
            f"{self.classes} classes, {self.overlap} votes an item, {self.each} a rater, ties {self.ties:g}, threshold "
            f"{self.threshold:g} ± {self.private:g}, {self.magnitude} {self.scale:g}, careless {self.careless:g}"
        )

    @property
    def ordered(self) -> bool:
        return True

    @property
    def votes(self) -> int:
        return self.items * self.overlap

    def simulate(self, seed: int) -> tuple[Votes, Ints]:
        """Votes and the truth [I]."""
        generator = np.random.default_rng(seed)
        items, classes = self.items, self.classes
        raters = max(self.overlap + 1, self.votes // self.each)
        place = np.linspace(-1, 1, classes)
        share = np.full(classes, 1 / classes)
        if classes == 3:
            share = np.array([(1 - self.ties) / 2, self.ties, (1 - self.ties) / 2])
        truth = generator.choice(classes, size=items, p=share)
        magnitude = {
            "equal": np.ones(items),
            "half normal": np.abs(generator.normal(size=items)) * 1.25,
            "lognormal": np.exp(0.8 * generator.normal(size=items) - 0.32),
        }[self.magnitude]
        difference = place[truth] * magnitude * self.scale * (1 if classes < 4 else 2)
        ability, shift = np.exp(0.4 * generator.normal(size=raters)), 0.3 * generator.normal(size=raters)
        width = self.threshold * np.exp(self.private * generator.normal(size=raters))
        cuts = np.linspace(-1, 1, classes - 1) * (1 if classes < 4 else 2) if classes > 2 else np.zeros(1)
        careless = generator.random(raters) < self.careless
        item = np.repeat(np.arange(items), self.overlap)
        rater = np.argsort(generator.random((items, raters)), axis=1)[:, : self.overlap].ravel()
        view = ability[rater] * difference[item] + shift[rater] + generator.logistic(size=len(item))
        choice = (view[:, None] > width[rater][:, None] * cuts).sum(axis=1)
        choice = np.where(careless[rater], generator.integers(classes, size=len(item)), choice)
        names = [tuple(map(str, range(size))) for size in (items, raters, classes)]
        return Votes(item, rater, choice, names[0], names[1], names[2]), truth


def ordered_grid() -> list[OrderedDesign]:
    """A random sample of the combinations, always the same."""
    generator = np.random.default_rng(2027)

    def pick(values: tuple[float, ...]) -> float:
        return values[int(generator.integers(len(values)))]

    designs: dict[str, OrderedDesign] = {}
    while len(designs) < ORDERED_DESIGNS:
        classes, overlap = int(pick((2, 3, 3, 3, 4, 5))), int(pick((2, 3, 5, 10, 30, 100)))
        design = OrderedDesign(
            classes=classes,
            overlap=overlap,
            ties=pick((0.0, 0.05, 0.2, 0.4)) if classes == 3 else 0.0,
            threshold=pick((0.3, 0.8, 1.5)) if classes > 2 else 0.0,
            private=pick((0.0, 0.5, 1.0)) if classes > 2 else 0.0,
            magnitude=("equal", "half normal", "lognormal")[int(generator.integers(3))],
            careless=pick((0.0, 0.2)),
            scale=pick((1.5, 2.5)),
            each=int(pick((10, 30, 80))),
            items=400 if overlap < 10 else 200 if overlap < 100 else 60,
        )
        designs.setdefault(design.name, design)
    return list(designs.values())
