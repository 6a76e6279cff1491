"""Children's questions, and the gold utility of a response to them.

The gold utility of an explanation for a ten-year-old is computed from any English question and response. Simulated
raters of a real model use it, because there is no bank of known sentences (as in `gold`). With

    n words   s sentences   g reading grade (Flesch-Kincaid, `reading_grade`)   x exclamation marks
    c content words of the question, of which the response covers a share of m / min(c, 2), at most 1

the utility is the sum of these parts:

    topic         TOPIC * share                                              (full for a question without any)
    grade        -GRADE * min(max(g - GRADE_HIGH, 0), GRADE_MOST)
    sentences    -SENTENCE * min(max(n / s - SENTENCE_HIGH, 0), SENTENCE_MOST)
    length       -TOO_SHORT * max(1 - n / WORDS_LOW, 0) - TOO_LONG * max(n - WORDS_HIGH, 0)
    warmth        share * (ADDRESS if it says "you" + PICTURE if it compares) + peak(x; share * CHEER, CHEER_MORE)
    repetition   -REPEATED * share of the word triples that occurred before
    ending       -UNFINISHED unless the response ends with . ! or ?

    peak(k; gain, loss) = gain * min(k, 1) - loss * max(k - 1, 0)            one is good, more are worse

Charm counts only as far as the response is on topic. Truth is not assessed. Content words are those not in STOP; two
are equal if their first four letters are, without a final s.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random

from tutelage.data.records import Message, Prompt, Split
from tutelage.data.text_counts import reading_grade, sentences, words
from tutelage.data.worlds.gold import peak, repeated, utility
from tutelage.data.worlds.world import split_items

TOPIC = 1.0
GRADE, GRADE_HIGH, GRADE_MOST = 0.2, 4.0, 8.0
SENTENCE, SENTENCE_HIGH, SENTENCE_MOST = 0.08, 12.0, 12.0
TOO_SHORT, WORDS_LOW = 2.0, 20
TOO_LONG, WORDS_HIGH = 0.04, 45
ADDRESS, PICTURE = 0.4, 0.5
CHEER, CHEER_MORE = 0.3, 0.4
REPEATED = 2.0
UNFINISHED = 1.0

YOU = frozenset(words("you your yours yourself you're you've you'll you'd let's"))
COMPARES = re.compile(r"\b(?:imagine|pretend|think of|picture|as if|like (?:a|an|the|your|when|how))\b")
STOP = frozenset(
    words(
        "a about after again all always am an and any anything are as at back be because become been before being "
        "but by can come could did different do does doing down each ever every for from get give go goes had "
        "happen happens has have having he her here him his how i if in inside into is it its just keep kind know "
        "like look made make makes many me mean more most much my need never no not of off on one only or other "
        "our out over people really same say see she should so some someone something still such take than that "
        "the their them then there these they thing things think this those through to too under up us use used "
        "very want was we were what when where which while who whose why will with without work works would you "
        "your"
    )
)
"""Stop words, which do not identify the topic of a question."""


def clarity(prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
    """Utility of each completion as a response to its question (see the module for the formula).

    Raises TutelageError for lists of different lengths.
    """
    return utility(explain_clarity, prompts, completions, "clarity")


def explain_clarity(prompt: str, completion: str) -> dict[str, float]:
    """Named parts whose sum is the utility."""
    tokens = words(completion.replace("’", "'"))
    grade, share = reading_grade(completion), _share(prompt, tokens)
    per_sentence = len(tokens) / max(sentences(completion), 1)
    address = ADDRESS if not YOU.isdisjoint(tokens) else 0.0
    picture = PICTURE if COMPARES.search(completion.lower()) else 0.0
    return {
        "topic": TOPIC * share,
        "grade": -GRADE * (GRADE_MOST if grade is None else _excess(grade, GRADE_HIGH, GRADE_MOST)),
        "sentences": -SENTENCE * _excess(per_sentence, SENTENCE_HIGH, SENTENCE_MOST),
        "length": -TOO_SHORT * max(1 - len(tokens) / WORDS_LOW, 0) - TOO_LONG * max(len(tokens) - WORDS_HIGH, 0),
        "warmth": share * (address + picture) + peak(completion.count("!"), share * CHEER, CHEER_MORE),
        "repetition": -REPEATED * repeated(tokens),
        "ending": 0.0 if completion.rstrip("\"'”’)* \n").endswith((".", "!", "?")) else -UNFINISHED,
    }


def _share(prompt: str, tokens: Sequence[str]) -> float:
    """Fraction of the question's content words that the response covers, in [0, 1]."""
    roots = {_root(word) for word in words(prompt) if word not in STOP}
    if not roots:
        return 1.0
    return min(len(roots & set(map(_root, tokens))) / min(len(roots), 2), 1.0)


def _root(word: str) -> str:
    return word.removesuffix("'s").removesuffix("s")[:4]


def _excess(value: float, limit: float, most: float) -> float:
    """Excess of a value over a limit, at most `most`."""
    return min(max(value - limit, 0.0), most)


SYSTEM = "You explain things to a ten-year-old child. Answer in two short sentences."
"""System turn of every question."""


@dataclass(frozen=True)
class ChildrensQuestions:
    """Fixed set of children's questions; the seed determines the held-out topics and the order."""

    seed: int = 0

    def topics(self, split: Split) -> tuple[str, ...]:
        """Topics of a split, in a random order: a quarter of all are held out."""
        return split_items(list(questions()), split, Random(f"tutelage/{self.seed}/questions"))

    def prompts(self, split: Split) -> list[Prompt]:
        """All questions on the topics of a split, each after the same system turn.

        Topics alternate, so that any prefix of the list covers as many topics as possible. Ids consist of the topic
        and the number of the question in it, and are the same for every seed.
        """
        topics, system = self.topics(split), Message("system", SYSTEM)
        most = max(len(questions()[topic]) for topic in topics)
        return [
            Prompt(f"{topic.replace(' ', '-')}-{number}", (system, Message("user", questions()[topic][number])), split)
            for number in range(most)
            for topic in topics
            if number < len(questions()[topic])
        ]


@cache
def questions() -> dict[str, tuple[str, ...]]:
    """Questions by topic, in the order of the file, in which a line `# name` starts a topic."""
    text = files("tutelage.data.worlds").joinpath("questions.txt").read_text(encoding="utf-8")
    topics: dict[str, tuple[str, ...]] = {}
    for part in text.removeprefix("# ").split("\n# "):
        topic, *lines = part.strip().split("\n")
        topics[topic] = tuple(lines)
    return topics
