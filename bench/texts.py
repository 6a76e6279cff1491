"""Text that looks like conversations, from nothing: words of syllables, as frequent as words are, in sentences."""

import itertools
import random
from collections.abc import Iterator
from typing import TypeAlias

Pair: TypeAlias = tuple[list[dict[str, str]], str, str]
"""The turns of a conversation up to the question, the better answer, the worse one."""

STARTS = ("b", "br", "c", "ch", "d", "f", "fl", "g", "h", "j", "k", "l", "m", "n", "p", "pr", "r", "s", "st", "t")
VOWELS = ("a", "e", "i", "o", "u", "ea", "ou")
ENDS = ("", "", "n", "r", "s", "l", "t", "nd", "m", "ng")
WORDS = 40_000


def generated(seed: int = 0) -> Iterator[Pair]:
    """Pairs without end. Questions have about 60 words and answers about 40, each with a long tail, as chats do."""
    chance = random.Random(seed)
    words = _words(chance)
    weights = list(itertools.accumulate(1 / (rank + 3) for rank in range(WORDS)))  # Zipf's law

    def passage(median: float) -> str:
        length = max(4, round(median * chance.lognormvariate(0, 0.7)))
        drawn = chance.choices(words, cum_weights=weights, k=length)
        sentences = []
        while drawn:
            size = chance.randint(5, 18)
            sentence, drawn = drawn[:size], drawn[size:]
            sentences.append(" ".join([sentence[0].capitalize(), *sentence[1:]]))
        return ". ".join(sentences) + "."

    while True:
        yield [{"role": "user", "content": passage(60)}], passage(40), passage(34)


def _words(chance: random.Random) -> list[str]:
    syllables = ["".join(parts) for parts in itertools.product(STARTS, VOWELS, ENDS)]
    found: dict[str, None] = {}
    while len(found) < WORDS:
        count = 1 + min(3, len(found) // 1_000)  # frequent words are short
        found["".join(chance.choices(syllables, k=count))] = None
        if count == 1 and len(found) > 900:
            found["".join(chance.choices(syllables, k=2))] = None
    return list(found)
