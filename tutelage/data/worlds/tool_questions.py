"""Questions that a policy answers with its tools: about prices in a market, and sums.

    How much is one fig?              search figs → 6                                             6
    How much are 4 figs?              search figs → 6                     calculator 4*6 → 24     24
    How much are 4 figs and 3 nuts?   search figs → 6   search nuts → 8   calculator 4*6+3*8 → 48   48

A price is only in the list that the tool `search` reads: every demonstration has prices of its own, and held-out
questions others than those of training. So a right answer takes two to four turns. Most demonstrations go wrong, in one
of the ways of `CARELESS`.

A step (a turn of the policy, with the results of its calls) is good if it is right and follows from what was read:

    a search      that finds a price which is asked for and not yet known
    a calculation whose result is the answer and not yet computed, after all prices were found
    an answer     the right one, after all prices were found

The answer of a sum is a product, alone or with something added or taken away, and the calculator computes it:

    What is 37 times 48?                                              calculator 37*48 → 1776        1776
    From 48 rolls of 37 metres 215 metres are cut off. How many …?    calculator 48*37-215 → 1561    1561
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from random import Random
from typing import Literal, TypeAlias

from tutelage.data.records import Message, Messages, Prompt, Split, ToolCall, user
from tutelage.data.worlds.world import split_items

GOODS: Mapping[str, str] = {
    "figs": "fig", "pears": "pear", "plums": "plum", "limes": "lime", "nuts": "nut", "kiwis": "kiwi",
    "dates": "date", "beans": "bean", "eggs": "egg", "leeks": "leek", "rolls": "roll", "cakes": "cake",
}  # fmt: skip
"""What is sold: the plural and the singular."""
COUNTS = PRICES = range(2, 10)
PER_PAIR = 4
"""Questions about each pair of goods."""

Way: TypeAlias = Literal["careful", "added", "guess", "mental", "invented", "half"]
CARELESS: Mapping[Way, float] = {"added": 0.3, "guess": 0.2, "mental": 0.15, "invented": 0.1, "half": 0.1}
"""Shares of the demonstrations that add numbers and prices instead of multiplying them, guess at once, search but guess
the answer, calculate with invented prices, or search for the first good alone."""


@dataclass(frozen=True)
class Purchase:
    """Numbers of one or two goods."""

    counts: tuple[int, ...]
    goods: tuple[str, ...]

    @property
    def question(self) -> str:
        if self.counts == (1,):
            return f"How much is one {GOODS[self.goods[0]]}?"
        return f"How much are {' and '.join(f'{n} {good}' for n, good in zip(self.counts, self.goods, strict=True))}?"

    def sum(self, prices: Mapping[str, int], sign: str = "*") -> str:
        """The price as a sum of products; empty if one price is the answer."""
        if self.counts == (1,):
            return ""
        return "+".join(f"{n}{sign}{prices[good]}" for n, good in zip(self.counts, self.goods, strict=True))

    def total(self, prices: Mapping[str, int]) -> int:
        return sum(n * prices[good] for n, good in zip(self.counts, self.goods, strict=True))


@dataclass(frozen=True)
class Market:
    """Market with fixed goods; the seed determines prices, held-out questions and demonstrations. Prices of held-out
    questions are others than those of training, and every demonstration has its own."""

    seed: int = 0

    def prices(self, split: Split) -> Mapping[str, int]:
        """Price of one piece of each good."""
        return _prices(self._rng(f"prices/{split}"))

    def price_list(self, split: Split) -> list[dict[str, str]]:
        """Rows of the file that the tool `search` reads."""
        return [{"id": good, "text": f"{good} cost {price}"} for good, price in self.prices(split).items()]

    def purchases(self, split: Split) -> list[Purchase]:
        """Purchases of a split in a random order: of one piece, of one good and of two, a quarter of each held out."""
        rng, goods = self._rng("purchases"), list(GOODS)
        one = [Purchase((1,), (good,)) for good in goods]
        several = [Purchase((n,), (good,)) for n in COUNTS for good in goods]
        pairs = [pair for pair in permutations(goods, 2) for _ in range(PER_PAIR)]
        both = dict.fromkeys(Purchase((rng.choice(COUNTS), rng.choice(COUNTS)), pair) for pair in pairs)
        kinds = [split_items(kind, split, rng) for kind in (one, several, list(both))]
        purchases = [purchase for kind in kinds for purchase in kind]
        rng.shuffle(purchases)
        return purchases

    def prompts(self, split: Split) -> list[Prompt]:
        """The questions of a split, each with its `solution` and `goods`."""
        prices = self.prices(split)
        return [
            Prompt(
                f"{split}-{number:04d}",
                user(purchase.question),
                split,
                {"solution": str(purchase.total(prices)), "goods": list(purchase.goods)},
            )
            for number, purchase in enumerate(self.purchases(split))
        ]

    def demonstrations(self, n: int) -> list[Messages]:
        """Conversations about questions of the train split: few are careful, the others `CARELESS`."""
        rng, asked = self._rng("demonstrations"), self.purchases("train")
        ways: list[Way] = ["careful", *CARELESS]
        shares = [1 - sum(CARELESS.values()), *CARELESS.values()]
        return [conversation(rng.choice(asked), _prices(rng), rng.choices(ways, shares)[0], rng) for _ in range(n)]

    def _rng(self, stream: str) -> Random:
        return Random(f"tutelage/{self.seed}/market/{stream}")


def _prices(rng: Random) -> Mapping[str, int]:
    return {good: rng.choice(PRICES) for good in GOODS}


def conversation(purchase: Purchase, prices: Mapping[str, int], way: Way, rng: Random) -> Messages:
    """A conversation about a purchase, as the policy and its tools write it."""
    searched = {"guess": (), "invented": (), "half": purchase.goods[:1]}.get(way, purchase.goods)
    invented = _prices(rng)
    believed = {good: (prices if good in searched else invented)[good] for good in purchase.goods}
    messages = list(user(purchase.question))
    for good in searched:
        messages += called("search", "query", good, f"[{good}] {good} cost {prices[good]}")
    answer = purchase.total(believed)
    if way in ("guess", "mental"):
        answer = rng.randint(3, 2 * answer)
    elif expression := purchase.sum(believed, "+" if way == "added" else "*"):
        answer = sum(purchase.counts) + sum(believed.values()) if way == "added" else answer
        messages += called("calculator", "expression", expression, str(answer))
    return (*messages, Message("assistant", str(answer)))


def called(tool: str, argument: str, value: str, result: str) -> Messages:
    call = ToolCall(tool, f'{{"{argument}": "{value}"}}')
    return Message("assistant", "", calls=(call,)), Message("tool", result, name=tool)


def good_steps(goods: Sequence[str], solution: str, steps: Sequence[Messages]) -> list[bool]:
    """Whether each step of an episode is good (see the module), for the columns `goods` and `solution` of its prompt. A
    step is a message of the policy and the results of its calls; with several calls, all of them have to be good."""
    unknown, computed, good = set(goods), False, list[bool]()
    for said, *results in steps:
        outcomes = []
        for result in results:
            found = {each for each in unknown if f"[{each}] " in result.content} if result.name == "search" else set()
            sums = result.name == "calculator" and result.content == solution and not (unknown or computed)
            unknown, computed = unknown - found, computed or sums
            outcomes.append(bool(found) or sums)
        good.append(all(outcomes) if results else said.content == solution and not unknown)
    return good


# Sums ----------------------------------------------------------------------------------------------------------------

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
