"""What the gold utilities have in common: a sum of named parts for each answer, and the shapes of those parts."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted

Explain: TypeAlias = Callable[[str, str], Mapping[str, float]]
"""A function from a prompt and an answer to the named parts of a utility."""


def utility(explain: Explain, prompts: Sequence[str], completions: Sequence[str], name: str) -> list[float]:
    """The sum of the parts of each completion as an answer to its prompt; `name` is what a message calls the function.

    Raises TutelageError for lists of different lengths.
    """
    if len(prompts) != len(completions):
        raise TutelageError(
            f"{name}() was given {counted(len(prompts), 'prompt')} but {counted(len(completions), 'completion')}; "
            "give one prompt for each."
        )
    return [
        sum(explain(prompt, answer).values()) for prompt, answer in zip(prompts, completions, strict=True)
    ]


def peak(count: float, gain: float, loss: float) -> float:
    """gain · min(count, 1) − loss · max(count − 1, 0): one is good, more is worse."""
    return gain * min(count, 1) - loss * max(count - 1, 0)


def repeated(said: Sequence[str]) -> float:
    """The share of the triples of successive words that were said before, in [0, 1)."""
    triples = list(zip(said, said[1:], said[2:], strict=False))
    return 1 - len(set(triples)) / len(triples) if triples else 0.0
