"""Sums: questions whose answer is a product, alone or with something added or taken away, and a tool that computes it.

What is 37 times 48?                                              calculator 37*48 → 1776        1776
From 48 rolls of 37 metres 215 metres are cut off. How many …?    calculator 48*37-215 → 1561    1561
"""

from dataclasses import dataclass
from random import Random

from tutelage.data.records import Message, Messages, Prompt, Split, user
from tutelage.data.worlds.market import called

FORMS = (
    ("What is {a} times {b}?", "{a}*{b}"),
    ("A crate holds {a} pears. How many pears are in {b} crates?", "{a}*{b}"),
    ("Ann buys {b} boxes of {a} pencils and has {c} already. How many pencils does she have?", "{b}*{a}+{c}"),
    ("From {b} rolls of {a} metres {c} metres are cut off. How many metres are left?", "{b}*{a}-{c}"),
)
"""Questions, and the expressions of their answers."""
TOOL = "calculator"


@dataclass(frozen=True)
class Sum:
    """A question, and the expression of its answer."""

    question: str
    expression: str
    answer: int

    @property
    def demonstration(self) -> Messages:
        """A conversation in which the answer is computed by the tool."""
        answer = str(self.answer)
        return (
            *user(self.question),
            *called(TOOL, "expression", self.expression, answer),
            Message("assistant", answer),
        )


def sums(split: Split, count: int, seed: int = 0) -> list[Sum]:
    """Sums of a split, no two with the same numbers. The first factor of held-out ones is a multiple of 4, and of the
    others none."""
    rng = Random(f"tutelage/{seed}/sums/{split}")
    held_out = split == "held_out"
    factors = [a for a in range(12, 99) if (a % 4 == 0) == held_out]
    problems: dict[tuple[int, int], Sum] = {}
    while len(problems) < count:
        a, b, c = rng.choice(factors), rng.randrange(12, 99), rng.randrange(101, 144)
        question, expression = FORMS[len(problems) % len(FORMS)]
        answer = a * b + (c if "+" in expression else -c if "-" in expression else 0)
        numbers = {"a": a, "b": b, "c": c}
        problems.setdefault((a, b), Sum(question.format(**numbers), expression.format(**numbers), answer))
    return list(problems.values())


def prompts_of(some: list[Sum], split: Split) -> list[Prompt]:
    """The questions as prompts, each with its `solution`."""
    return [
        Prompt(f"{split}-{number:04d}", user(one.question), split, {"solution": str(one.answer)})
        for number, one in enumerate(some)
    ]
