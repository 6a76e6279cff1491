"""Every sentence that a tutor of this world can say, and which of them a given sentence is nearest to."""

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain, pairwise
from typing import Literal, TypeAlias

from tutelage.data.worlds import phrases
from tutelage.data.worlds.topics import Topic, topics

Kind: TypeAlias = Literal[
    "fact", "technical", "analogy", "wrong", "question",
    "greeting", "encouragement", "filler", "discouragement", "aside",
]  # fmt: skip
Bigrams: TypeAlias = frozenset[tuple[str, str]]

# Words that keep their capital inside a sentence.
PROPER = frozenset({"DNA", "Earth", "I"})
# Words after a subject that no pronoun can stand before: "Clouds that touch the ground".
MODIFIERS = frozenset({"of", "in", "that", "with"})


@dataclass(frozen=True)
class WorldSentence:
    """One thing to say. `topic` is a topic's name, or empty for what fits any; `key` is the same for every way to say
    it (with the subject or with its pronoun)."""

    text: str
    kind: Kind
    topic: str
    key: str


@dataclass(frozen=True)
class SentenceMatch:
    """The nearest sentence of the bank and how near it is: 1 for the same words, 0 for no two words in common."""

    sentence: WorldSentence
    nearness: float


def words(text: str) -> list[str]:
    """The lower-cased words of a text, without punctuation."""
    return re.findall(r"[a-z0-9]+(?:[-'][a-z0-9]+)*", text.lower())


def split_sentences(text: str) -> list[str]:
    """Cut a text after each run of `.`, `!` or `?`; pieces without a word are left out."""
    pieces = (piece.strip() for piece in re.findall(r"[^.!?]+[.!?]*", text))
    return [piece for piece in pieces if words(piece)]


def with_pronoun(text: str, topic: Topic) -> str:
    """Let the pronoun stand for the subject, as in "It pulls you down."; what begins in another way stays."""
    rest = text.removeprefix(topic.subject + " ")
    if rest == text or rest.split(" ", 1)[0] in MODIFIERS:
        return text
    return f"{topic.pronoun} {rest}"


def lower_first(text: str) -> str:
    """The sentence as it stands after an opener ("Also, gravity …")."""
    return text if text.split(" ", 1)[0] in PROPER else text[0].lower() + text[1:]


@lru_cache(maxsize=1 << 16)
def nearest(text: str, topic: str) -> SentenceMatch | None:
    """The bank sentence with the greatest bigram overlap; equals are decided for `topic`, the one asked about.

    Nearness is Dice's coefficient 2|A∩B| / (|A|+|B|) of the two sets of word pairs, sentence ends included, so words
    that are left out, added or moved all lower it. The sentence is read with and without an opener such as "You see,"
    and the nearer reading counts. None when no pair of words is known.
    """
    said = words(text)
    readings = dict.fromkeys((tuple(said), tuple(_without_opener(said))))
    matches = (_nearest(reading, topic) for reading in readings)
    return max(filter(None, matches), key=lambda match: match.nearness, default=None)


@lru_cache(maxsize=1 << 16)
def _nearest(said: tuple[str, ...], topic: str) -> SentenceMatch | None:
    sentences, sizes, index = _index()
    asked = _bigrams(said)
    common = Counter(chain.from_iterable(index.get(bigram, ()) for bigram in asked))
    if not common:
        return None
    nearness = {row: 2 * count / (len(asked) + sizes[row]) for row, count in common.items()}
    most = max(nearness.values())
    equals = (row for row, value in nearness.items() if value == most)
    best = max(equals, key=lambda row: (sentences[row].topic == topic, -row))
    return SentenceMatch(sentences[best], most)


@cache
def bank() -> tuple[WorldSentence, ...]:
    """All sentences, in a fixed order."""
    everything = list(_generic("greeting", phrases.GREETINGS))
    everything += _generic("encouragement", phrases.ENCOURAGEMENTS)
    everything += _generic("discouragement", phrases.DISCOURAGEMENTS)
    for topic in topics():
        everything += _said_of(topic)
    return tuple(everything)


def _generic(kind: Kind, texts: tuple[str, ...]) -> list[WorldSentence]:
    return [WorldSentence(text, kind, "", text) for text in texts]


def _said_of(topic: Topic) -> list[WorldSentence]:
    own: dict[Kind, tuple[str, ...]] = {
        "fact": topic.facts,
        "technical": topic.technical,
        "analogy": topic.analogies,
        "wrong": topic.wrong,
        "question": topic.questions + phrases.QUESTIONS,
        "filler": phrases.FILLERS,
        "aside": phrases.ASIDES,
    }
    said = []
    for kind, texts in own.items():
        for key in map(topic.fill, texts):
            forms = dict.fromkeys((key, with_pronoun(key, topic)))
            said += [WorldSentence(form, kind, topic.name, key) for form in forms]
    return said


@cache
def _index() -> tuple[tuple[WorldSentence, ...], list[int], dict[tuple[str, str], list[int]]]:
    index: dict[tuple[str, str], list[int]] = defaultdict(list)
    sizes = []
    for row, sentence in enumerate(bank()):
        bigrams = _bigrams(tuple(words(sentence.text)))
        sizes.append(len(bigrams))
        for bigram in bigrams:
            index[bigram].append(row)
    return bank(), sizes, dict(index)


def _bigrams(said: tuple[str, ...]) -> Bigrams:
    return frozenset(pairwise(("<", *said, ">")))


def _without_opener(said: list[str]) -> list[str]:
    for opener in _openers():
        if len(said) > len(opener) and said[: len(opener)] == opener:
            return said[len(opener) :]
    return said


@cache
def _openers() -> tuple[list[str], ...]:
    return tuple(words(opener) for opener in phrases.OPENERS)
