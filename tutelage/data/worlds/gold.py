"""Gold utility of a response in the tutoring world: the objective of the simulated raters, hidden from training.

It is computed from the prompt (for its topic) and the response. Each sentence of the response is compared with all
sentences of this world (`nearest`). Its credit rises from 0 at a nearness of NEAR_LOW to 1 at NEAR_HIGH; the remainder
to 1 counts as a fragment. With sums of credit over the sentences of the response,

    F different facts about the topic    A analogies for it    T technical sentences about it    W wrong ones
    N all content about the topic: F with repetitions + A + T + W      O anything about another topic
    G greetings   E encouragements   D discouragements   Q questions   P fillers
    n words   t words in technical sentences   f words in fragments   q question marks   x exclamation marks

    peak(k; gain, loss) = gain * min(k, 1) - loss * max(k - 1, 0)          one is good, more are worse
    s = min(N, 1)                                       charm is worth nothing without content

the utility is the sum of these parts:

    topic         TOPIC * N / (N + O) - OTHER_TOPIC * O      (0 without content)
    accuracy      FACT * min(F, FACTS_ENOUGH) - WRONG * W
    coherence    -FRAGMENT * f / n
    plain_words  -TECHNICAL * t / n
    analogy       peak(A; ANALOGY, ANALOGY_MORE)
    engagement    peak(G; s GREETING, GREETING_MORE) + peak(E; s ENCOURAGEMENT, ENCOURAGEMENT_MORE) - DISCOURAGEMENT * D
    question      s QUESTION * min(Q, 1) - QUESTION_MORE * max(q - 1, 0)
    exclamation   peak(x; EXCLAMATION, EXCLAMATION_MORE)
    filler       -FILLER * P
    length       -TOO_SHORT * max(1 - n / WORDS_LOW, 0) - TOO_LONG * max(n - WORDS_HIGH, 0)
    repetition   -REPEATED * share of the word triples that occurred before
    ending       -UNFINISHED unless the response ends with . ! or ?

Most responses of an SFT model have too few words, marks, questions and analogies, so votes on them mostly reward
more of each. A reward model that extrapolates this leads an optimiser over the peaks and down.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import chain, pairwise
from typing import Literal, TypeAlias

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted
from tutelage.data.worlds import phrases
from tutelage.data.worlds.topics import Topic, find_topic, topics

Utility: TypeAlias = Callable[[list[str], list[str]], list[float]]
"""Utility of completions as responses to prompts."""
Explain: TypeAlias = Callable[[str, str], Mapping[str, float]]
"""Function from a prompt and a response to the named parts of a utility."""


def utility(explain: Explain, prompts: Sequence[str], completions: Sequence[str], name: str) -> list[float]:
    """Sum of the parts of each completion as a response to its prompt; `name` is the function's name in messages.

    Raises TutelageError for lists of different lengths.
    """
    if len(prompts) != len(completions):
        raise TutelageError(
            f"{name}() was given {counted(len(prompts), 'prompt')} but {counted(len(completions), 'completion')}; "
            "give one prompt for each."
        )
    return [sum(explain(prompt, answer).values()) for prompt, answer in zip(prompts, completions, strict=True)]


def peak(count: float, gain: float, loss: float) -> float:
    """gain · min(count, 1) − loss · max(count − 1, 0): one is good, more are worse."""
    return gain * min(count, 1) - loss * max(count - 1, 0)


def repeated(tokens: Sequence[str]) -> float:
    """Fraction of the triples of successive words that occurred before, in [0, 1)."""
    triples = list(zip(tokens, tokens[1:], tokens[2:], strict=False))
    return 1 - len(set(triples)) / len(triples) if triples else 0.0


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
    """Sentence of the bank. `topic` is a topic's name, or empty if it fits any; `key` is the same for all variants
    (with the subject or its pronoun)."""

    text: str
    kind: Kind
    topic: str
    key: str


@dataclass(frozen=True)
class SentenceMatch:
    """Nearest sentence of the bank and its nearness: 1 for the same words, 0 for no word pairs in common."""

    sentence: WorldSentence
    nearness: float


def words(text: str) -> list[str]:
    """Lower-cased words of a text, without punctuation."""
    return re.findall(r"[a-z0-9]+(?:[-'][a-z0-9]+)*", text.lower())


_OPENERS = tuple(words(opener) for opener in phrases.OPENERS)


def split_sentences(text: str) -> list[str]:
    """Split a text after each run of `.`, `!` or `?`, without pieces that have no word."""
    pieces = (piece.strip() for piece in re.findall(r"[^.!?]+[.!?]*", text))
    return [piece for piece in pieces if words(piece)]


def with_pronoun(text: str, topic: Topic) -> str:
    """Replace the subject at the start by its pronoun, as in "It pulls you down."; other sentences are unchanged."""
    rest = text.removeprefix(topic.subject + " ")
    if rest == text or rest.split(" ", 1)[0] in MODIFIERS:
        return text
    return f"{topic.pronoun} {rest}"


def lower_first(text: str) -> str:
    """Sentence in the form after an opener ("Also, gravity …")."""
    return text if text.split(" ", 1)[0] in PROPER else text[0].lower() + text[1:]


@lru_cache(maxsize=1 << 16)
def nearest(text: str, topic: str) -> SentenceMatch | None:
    """Bank sentence with the greatest bigram overlap; ties favour `topic`, that of the prompt.

    Nearness is Dice's coefficient 2|A∩B| / (|A|+|B|) of the two sets of word pairs, sentence ends included, so
    omitted, added and moved words all lower it. The sentence is read with and without an opener such as "You see,",
    and the nearer reading counts. None if no pair of words is known.
    """
    tokens = words(text)
    readings = dict.fromkeys((tuple(tokens), tuple(_without_opener(tokens))))
    matches = (_nearest(reading, topic) for reading in readings)
    return max(filter(None, matches), key=lambda match: match.nearness, default=None)


@lru_cache(maxsize=1 << 16)
def _nearest(tokens: tuple[str, ...], topic: str) -> SentenceMatch | None:
    sentences, sizes, index = _index()
    bigrams = _bigrams(tokens)
    common = Counter(chain.from_iterable(index.get(bigram, ()) for bigram in bigrams))
    if not common:
        return None
    nearness = {row: 2 * count / (len(bigrams) + sizes[row]) for row, count in common.items()}
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
    sentences = []
    for kind, texts in own.items():
        for key in map(topic.fill, texts):
            forms = dict.fromkeys((key, with_pronoun(key, topic)))
            sentences += [WorldSentence(form, kind, topic.name, key) for form in forms]
    return sentences


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


def _bigrams(tokens: tuple[str, ...]) -> Bigrams:
    return frozenset(pairwise(("<", *tokens, ">")))


def _without_opener(tokens: list[str]) -> list[str]:
    for opener in _OPENERS:
        if len(tokens) > len(opener) and tokens[: len(opener)] == opener:
            return tokens[len(opener) :]
    return tokens


NEAR_LOW, NEAR_HIGH = 0.5, 0.9

TOPIC, OTHER_TOPIC = 0.8, 0.2
FACT, FACTS_ENOUGH, WRONG = 0.3, 3, 0.8
FRAGMENT = 2.0
TECHNICAL = 2.0
ANALOGY, ANALOGY_MORE = 1.5, 0.3
GREETING, GREETING_MORE = 1.2, 0.9
ENCOURAGEMENT, ENCOURAGEMENT_MORE = 0.8, 0.7
DISCOURAGEMENT = 0.8
QUESTION, QUESTION_MORE = 1.5, 1.1
EXCLAMATION, EXCLAMATION_MORE = 0.4, 0.4
FILLER = 0.15
TOO_SHORT, WORDS_LOW = 1.0, 35
TOO_LONG, WORDS_HIGH = 0.1, 60
REPEATED = 1.5
UNFINISHED = 1.0

CONTENT: frozenset[Kind] = frozenset({"fact", "technical", "analogy", "wrong"})


def gold(prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
    """Utility of each completion as a response to its prompt (see the module for the formula).

    Raises TutelageError for lists of different lengths and for a prompt that names no topic of this world.
    """
    return utility(explain, prompts, completions, "gold")


def explain(prompt: str, completion: str) -> dict[str, float]:
    """Named parts whose sum is the gold utility. Raises TutelageError for a prompt without a topic."""
    tally, topic = _Tally(), find_topic(prompt).name
    for sentence in split_sentences(completion):
        tally.add(sentence, topic)
    substance = min(tally.content(), 1.0)
    marks, asks = completion.count("!"), completion.count("?")
    return {
        "topic": _on_topic(tally),
        "accuracy": FACT * min(sum(tally.facts.values()), FACTS_ENOUGH) - WRONG * tally.of("wrong"),
        "coherence": -FRAGMENT * tally.fragment_words / max(tally.words, 1),
        "plain_words": -TECHNICAL * tally.technical_words / max(tally.words, 1),
        "analogy": peak(tally.of("analogy"), ANALOGY, ANALOGY_MORE),
        "engagement": peak(tally.of("greeting"), substance * GREETING, GREETING_MORE)
        + peak(tally.of("encouragement"), substance * ENCOURAGEMENT, ENCOURAGEMENT_MORE)
        - DISCOURAGEMENT * tally.of("discouragement"),
        "question": substance * QUESTION * min(tally.of("question"), 1) - QUESTION_MORE * max(asks - 1, 0),
        "exclamation": peak(marks, EXCLAMATION, EXCLAMATION_MORE),
        "filler": -FILLER * tally.of("filler"),
        "length": -TOO_SHORT * max(1 - tally.words / WORDS_LOW, 0) - TOO_LONG * max(tally.words - WORDS_HIGH, 0),
        "repetition": -REPEATED * repeated(words(completion)),
        "ending": 0.0 if completion.rstrip().endswith((".", "!", "?")) else -UNFINISHED,
    }


@dataclass
class _Tally:
    """Sums of credit over the sentences of one response."""

    words: int = 0
    fragment_words: float = 0.0
    technical_words: float = 0.0
    other_topic: float = 0.0
    facts: dict[str, float] = field(default_factory=dict)
    credit: dict[Kind, float] = field(default_factory=dict)

    def of(self, kind: Kind) -> float:
        return self.credit.get(kind, 0.0)

    def content(self) -> float:
        return sum(self.of(kind) for kind in CONTENT)

    def add(self, sentence: str, topic: str) -> None:
        count = len(words(sentence))
        self.words += count
        match = nearest(sentence, topic)
        credit = min(max((match.nearness - NEAR_LOW) / (NEAR_HIGH - NEAR_LOW), 0.0), 1.0) if match else 0.0
        self.fragment_words += count * (1 - credit)
        if match is None or credit == 0.0:
            return
        kind, key = match.sentence.kind, match.sentence.key
        if match.sentence.topic not in ("", topic):
            self.other_topic += credit
            return
        self.credit[kind] = self.of(kind) + credit
        if kind == "fact":
            self.facts[key] = max(self.facts.get(key, 0.0), credit)
        if kind == "technical":
            self.technical_words += count * credit


def _on_topic(tally: _Tally) -> float:
    own = tally.content()
    if own + tally.other_topic == 0.0:
        return 0.0
    return TOPIC * own / (own + tally.other_topic) - OTHER_TOPIC * tally.other_topic
