"""Protocols that kinds of questions need of a simulated rater (`simulate.raters.SimulatedRater` is one)."""

from dataclasses import dataclass
from random import Random
from typing import Protocol


class PairJudgement(Protocol):
    """A vote as displayed: left, right, tie or both_bad, its strength (0 to 3), and the seconds it took."""

    @property
    def verdict(self) -> str: ...
    @property
    def strength(self) -> int: ...
    @property
    def seconds(self) -> float: ...


class PairJudge(Protocol):
    """A simulated rater who judges two responses by their gold utilities; `tau` is the noise in units of gold."""

    @property
    def tau(self) -> float: ...

    def judge(
        self,
        gold_left: float,
        gold_right: float,
        words_left: int,
        words_right: int,
        rng: Random,
        answered: int = 0,
    ) -> PairJudgement: ...


@dataclass(frozen=True)
class ResponseValues:
    """The responses from left to right, by their gold utilities and their lengths in words."""

    gold: tuple[float, ...]
    words: tuple[int, ...]
