"""Styles of responses, from excellent to poor, and their composition from the sentences of a topic."""

from dataclasses import dataclass
from random import Random
from typing import TypeAlias

from tutelage.data.worlds import phrases
from tutelage.data.worlds.gold import lower_first, with_pronoun
from tutelage.data.worlds.topics import Texts, Topic, topics

Count: TypeAlias = tuple[int, int]

NONE: Count = (0, 0)
OPENER_SHARE = 0.15
PRONOUN_SHARE = 0.4
OWN_QUESTION_SHARE = 0.5


@dataclass(frozen=True)
class Style:
    """Style of a tutor. Pairs of numbers are the minimum and maximum of sentences of a kind; `greeting`,
    `encouragement` and `discouragement` are probabilities, `marks` that of "!" instead of each full stop. `again`
    sentences are repeated, `other` ones are about another topic."""

    name: str
    share: float
    facts: Count = NONE
    technical: Count = NONE
    analogies: Count = NONE
    questions: Count = NONE
    fillers: Count = NONE
    wrong: Count = NONE
    other: Count = NONE
    again: Count = NONE
    greeting: float = 0.0
    encouragement: float = 0.0
    discouragement: float = 0.0
    marks: float = 0.0


# Shares of the demonstrations. Few are excellent, so that there is something left to learn; and some chat without an
# explanation, so that raters see and refuse what a policy would end in that is rewarded for charm alone.
# fmt: off
STYLES = (
    Style("excellent", 0.06, facts=(3, 3), analogies=(1, 1), questions=(1, 1), greeting=0.9, encouragement=0.4),
    Style("good", 0.11, facts=(2, 3), analogies=(0, 1), questions=(0, 1), greeting=0.5, encouragement=0.3),
    Style("plain", 0.20, facts=(2, 4), technical=(0, 1), questions=(0, 1), greeting=0.2),
    Style("dry", 0.16, facts=(0, 1), technical=(2, 3), greeting=0.05),
    Style("short", 0.12, facts=(1, 1), technical=(0, 1), greeting=0.2, discouragement=0.3),
    Style("rambling", 0.09, facts=(2, 4), analogies=(0, 3), questions=(0, 2), fillers=(2, 4), greeting=0.4),
    Style("drifting", 0.07, facts=(1, 2), analogies=(0, 1), other=(2, 3), greeting=0.3),
    Style("excited", 0.05, facts=(2, 3), analogies=(0, 2), questions=(1, 3), greeting=1, encouragement=0.9, marks=0.9),
    Style("mistaken", 0.05, facts=(1, 2), wrong=(1, 2), analogies=(0, 1), questions=(0, 1), greeting=0.3),
    Style("chatting", 0.06, questions=(1, 2), greeting=1, encouragement=0.8),
    Style("repeating", 0.03, facts=(1, 2), analogies=(0, 1), again=(1, 3), greeting=0.1),
)
# How people talk in the conversations of the pretraining corpus: a bit of everything, about every topic.
CASUAL = Style(
    "casual", 1.0, facts=(1, 3), technical=(0, 2), analogies=(0, 1), fillers=(0, 1), greeting=0.1, encouragement=0.05,
)
# fmt: on


def choose_style(rng: Random) -> Style:
    """Random style, with the probabilities of `STYLES`."""
    return rng.choices(STYLES, weights=[style.share for style in STYLES])[0]


def compose(topic: Topic, style: Style, rng: Random, others: tuple[Topic, ...] = ()) -> str:
    """Compose a response about the topic: greeting, facts and the like, a digression to one of the others, question."""
    parts = _chance(phrases.GREETINGS, style.greeting, rng)
    parts += _chance(phrases.ENCOURAGEMENTS, style.encouragement, rng)
    parts += _body(topic, style, rng)
    parts += _digression(style.other, [other for other in others or topics() if other is not topic], rng)
    parts += _chance(phrases.DISCOURAGEMENTS, style.discouragement, rng)
    parts += _questions(topic, style.questions, rng)
    return " ".join(_excited(part, style.marks, rng) for part in parts)


def speak(topic: Topic, sentences: list[str], rng: Random) -> list[str]:
    """Join statements about one topic into speech: those after the first may get a pronoun or an opener."""
    spoken = sentences[:1]
    for sentence in sentences[1:]:
        if rng.random() < PRONOUN_SHARE:
            sentence = with_pronoun(sentence, topic)
        if rng.random() < OPENER_SHARE:
            sentence = f"{rng.choice(phrases.OPENERS)} {lower_first(sentence)}"
        spoken.append(sentence)
    return spoken


def pick(sentences: Texts, count: int, rng: Random) -> list[str]:
    """Random selection of `count` sentences (all if there are fewer), in their original order."""
    chosen = rng.sample(range(len(sentences)), min(count, len(sentences)))
    return [sentences[i] for i in sorted(chosen)]


def _body(topic: Topic, style: Style, rng: Random) -> list[str]:
    facts = _some(topic.facts, style.facts, rng)
    rest = _some(topic.technical, style.technical, rng) + _some(topic.wrong, style.wrong, rng)
    rest += _some(topic.analogies, style.analogies, rng)
    rng.shuffle(rest)
    # Facts keep the order in which they explain each other; the rest falls in between, seldom first.
    said = _interleave(facts, rest, rng)
    said = speak(topic, said + _some(tuple(said), style.again, rng), rng)
    fillers = [topic.fill(filler) for filler in _some(phrases.FILLERS, style.fillers, rng)]
    return _interleave(said, fillers, rng)


def _interleave(first: list[str], rest: list[str], rng: Random) -> list[str]:
    """Insert each item of `rest` at a random position after the first sentence."""
    woven = list(first)
    for sentence in rest:
        woven.insert(rng.randint(min(1, len(woven)), len(woven)), sentence)
    return woven


def _digression(count: Count, others: list[Topic], rng: Random) -> list[str]:
    wanted = rng.randint(*count)
    if not wanted:
        return []
    other = rng.choice(others)
    return [other.fill(rng.choice(phrases.ASIDES)), *speak(other, rng.sample(other.facts, wanted), rng)]


def _questions(topic: Topic, count: Count, rng: Random) -> list[str]:
    wanted = rng.randint(*count)
    generic = [topic.fill(question) for question in rng.sample(phrases.QUESTIONS, wanted)]
    own = [rng.choice(topic.questions)] if wanted and rng.random() < OWN_QUESTION_SHARE else []
    return (own + generic)[:wanted]


def _some(sentences: Texts, count: Count, rng: Random) -> list[str]:
    return pick(sentences, rng.randint(*count), rng)


def _chance(sentences: Texts, probability: float, rng: Random) -> list[str]:
    return [rng.choice(sentences)] if rng.random() < probability else []


def _excited(sentence: str, probability: float, rng: Random) -> str:
    if sentence.endswith(".") and rng.random() < probability:
        return sentence[:-1] + "!"
    return sentence
