"""The embedded default: a small tutoring world on which the whole loop can run without downloading anything."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.data.records import Demonstration, Prompt, Split, user
from tutelage.data.worlds import phrases
from tutelage.data.worlds.registers import REGISTERS
from tutelage.data.worlds.styles import choose_style, compose
from tutelage.data.worlds.tasks import choose_task
from tutelage.data.worlds.topics import Topic, topics

HELD_OUT_SHARE = 0.25
EXPLAIN_SHARE = 0.85

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """A tutoring world. The topics are always the same; the seed decides which are held out and what is drawn.

    Each method draws from a stream of its own, so asking for one thing never changes another.
    """

    seed: int = 0

    def topics(self, split: Split) -> tuple[Topic, ...]:
        """The topics of a split, in a random order: a quarter of all are held out."""
        return divided(topics(), split, self._rng("topics"))

    def corpus(self, tokens: int) -> Iterator[str]:
        """Pretraining documents about all topics, in mixed registers, until about `tokens` words and marks are said.

        Each topic comes once before any comes again. Raises TutelageError when `tokens` is not positive.
        """
        if tokens <= 0:
            raise TutelageError(f"A corpus of {counted(tokens, 'token')} was asked for; ask for at least 1.")
        return self._documents(tokens)

    def demonstrations(self, n: int) -> list[Demonstration]:
        """Instructions with answers of mixed quality, mostly explanations for a child.

        They speak of all topics: what is held out of the prompts is what nobody judged and no policy practised.
        """
        rng = self._rng("demonstrations")
        known = topics()
        return [_demonstrate(rng.choice(known), known, rng) for _ in range(n)]

    def prompts(self, split: Split) -> list[Prompt]:
        """Every way to ask for an explanation of every topic of a split.

        The order goes round the topics, so that any first part of the list speaks of as many topics as it can. Ids
        name the topic and the phrasing and are the same for every seed.
        """
        rng = self._rng(f"prompts/{split}")
        turns = [list(range(len(phrases.ASK))) for _ in self.topics(split)]
        for turn in turns:
            rng.shuffle(turn)
        return [
            Prompt(f"{topic.slug}-{turn[i]:02d}", user(topic.fill(phrases.ASK[turn[i]])), split)
            for i in range(len(phrases.ASK))
            for topic, turn in zip(self.topics(split), turns, strict=True)
        ]

    def _documents(self, tokens: int) -> Iterator[str]:
        rng = self._rng("corpus")
        writers, shares = zip(*REGISTERS, strict=True)
        said = 0
        while True:
            for topic in rng.sample(topics(), len(topics())):
                if said >= tokens:
                    return
                document: str = rng.choices(writers, weights=shares)[0](topic, rng)
                said += len(re.findall(r"\w+|[^\w\s]", document))
                yield document

    def _rng(self, stream: str) -> Random:
        return Random(f"tutelage/{self.seed}/{stream}")


def divided(items: Sequence[T], split: Split, rng: Random) -> tuple[T, ...]:
    """The items of a split in a random order: a share of HELD_OUT_SHARE is held out, the others are the train split."""
    shuffled = list(items)
    rng.shuffle(shuffled)
    held_out = round(len(shuffled) * HELD_OUT_SHARE)
    return tuple(shuffled[:held_out] if split == "held_out" else shuffled[held_out:])


def _demonstrate(topic: Topic, others: tuple[Topic, ...], rng: Random) -> Demonstration:
    if rng.random() < EXPLAIN_SHARE:
        question = topic.fill(rng.choice(phrases.ASK))
        return Demonstration(user(question), compose(topic, choose_style(rng), rng, others))
    question, answer = choose_task(topic, rng)
    return Demonstration(user(question), answer)
