"""Votes as integer codes: the input of all statistics in this package."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Singles: TypeAlias = NDArray[np.float32]
Array = TypeVar("Array", Floats, Singles)


@dataclass(frozen=True, eq=False)
class Votes:
    """N votes: vote n is rater `rater[n]` choosing `choice[n]` for item `item[n]`; the codes index the name
    tuples.

    There is at most one vote per (item, rater); `Votes.of` keeps the last one and counts the others in `repeated`.
    Names without votes are allowed, so that a selection (`keep`) has the same codes.
    """

    item: Ints
    rater: Ints
    choice: Ints
    items: tuple[str, ...]
    raters: tuple[str, ...]
    choices: tuple[str, ...]
    repeated: int = 0

    @classmethod
    def of(
        cls, item: Sequence[str], rater: Sequence[str], choice: Sequence[str], choices: Sequence[str] | None = None
    ) -> "Votes":
        """Encode three equally long columns of names. `choices` sets the classes and their order; by
        default those that occur, in numerical order if all are numbers and otherwise in alphabetical order.

        Raises TutelageError if the columns differ in length or a choice is not among `choices`.
        """
        if not len(item) == len(rater) == len(choice):
            raise TutelageError(
                f"The columns of a votes table differ in length: {counted(len(item), 'item')}, "
                f"{counted(len(rater), 'rater')}, {counted(len(choice), 'choice')}. Give one of each per vote."
            )
        names = tuple(choices) if choices is not None else ordered_names(set(choice))
        codes = {name: code for code, name in enumerate(names)}
        unknown = sorted(set(choice) - codes.keys())
        if unknown:
            raise TutelageError(f"The choice '{unknown[0]}' is not one of {', '.join(names)}.")
        item_code, items = _encode(item)
        rater_code, raters = _encode(rater)
        choice_code = np.array([codes[name] for name in choice], dtype=np.int64)
        last = _last_of_each(item_code * max(1, len(raters)) + rater_code)
        return cls(item_code[last], rater_code[last], choice_code[last], items, raters, names, len(item) - len(last))

    def __len__(self) -> int:
        return len(self.item)

    def keep(self, mask: Bools) -> "Votes":
        """The votes where `mask` [N] is true, with the same codes and names."""
        return replace(self, item=self.item[mask], rater=self.rater[mask], choice=self.choice[mask])

    def counts(self) -> Ints:
        """The number of raters who chose k for item i [I, K]."""
        shape = (len(self.items), len(self.choices))
        flat = np.bincount(self.item * shape[1] + self.choice, minlength=shape[0] * shape[1])
        return flat.reshape(shape)

    def per_rater(self) -> Ints:
        """The number of votes of each rater [R]."""
        return np.bincount(self.rater, minlength=len(self.raters))

    def per_item(self) -> Ints:
        """The number of votes on each item [I]."""
        return np.bincount(self.item, minlength=len(self.items))

    def table(self) -> Ints:
        """The choice of each rater on each item [I, R]; -1 without a vote."""
        choices = np.full((len(self.items), len(self.raters)), -1)
        choices[self.item, self.rater] = self.choice
        return choices


def ordered_names(names: set[str]) -> tuple[str, ...]:
    """Names in numerical order if all are numbers, otherwise in alphabetical order."""
    alphabetical = tuple(sorted(names))
    values = numbers_of(alphabetical)
    return alphabetical if values is None else tuple(name for _, name in sorted(zip(values, alphabetical, strict=True)))


def numbers_of(names: Sequence[str]) -> list[float] | None:
    """The numbers that the names are; None unless all are numbers, which NaN is not."""
    try:
        values = [float(name) for name in names]
    except ValueError:
        return None
    return None if any(map(math.isnan, values)) else values


def _encode(names: Sequence[str]) -> tuple[Ints, tuple[str, ...]]:
    """Codes in the order of first appearance."""
    codes: dict[str, int] = {}
    encoded = np.array([codes.setdefault(name, len(codes)) for name in names], dtype=np.int64)
    return encoded, tuple(codes)


def _last_of_each(key: Ints) -> Ints:
    """Positions, ascending, of the last occurrence of each value of `key` [N]."""
    _, from_the_end = np.unique(key[::-1], return_index=True)
    return np.sort(len(key) - 1 - from_the_end)


def sum_by(code: Ints, values: Floats, size: int) -> Floats:
    """The sum of `values` [N] for each code [size]."""
    return np.bincount(code, weights=values, minlength=size).astype(np.float64)


def softmax(x: Array) -> Array:
    """The softmax over the second axis of two."""
    mass = np.exp(x - x.max(axis=1, keepdims=True))
    mass /= mass.sum(axis=1, keepdims=True)
    return mass
