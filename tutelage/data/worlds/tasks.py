"""Instructions other than "explain": define, compare, ask a quiz question, true or false."""

from collections.abc import Callable
from random import Random
from typing import TypeAlias

from tutelage.data.worlds.topics import Topic

Task: TypeAlias = Callable[[Topic, Random], tuple[str, str]]

DEFINE = (
    "Define {name} in one sentence.",
    "In one sentence, what {is} {name}?",
    "What does a book say about {name}?",
)
COMPARE = ("Give me an analogy for {name}.", "What {is} {name} like?", "Find a picture in words for {name}.")
QUIZ = ("Ask me a quiz question about {name}.", "Write a question about {name}.", "Test me on {name}.")
VERDICT = ("True or false? {claim}", "Is this true about {name}? {claim}", "Right or wrong? {claim}")


def define(topic: Topic, rng: Random) -> tuple[str, str]:
    """One sentence, plain or technical."""
    return topic.fill(rng.choice(DEFINE)), rng.choice((topic.facts[0], topic.technical[0]))


def compare(topic: Topic, rng: Random) -> tuple[str, str]:
    """One analogy."""
    return topic.fill(rng.choice(COMPARE)), rng.choice(topic.analogies)


def quiz_question(topic: Topic, rng: Random) -> tuple[str, str]:
    """A true-or-false question."""
    return topic.fill(rng.choice(QUIZ)), f"True or false? {rng.choice(topic.facts + topic.wrong)}"


def verdict(topic: Topic, rng: Random) -> tuple[str, str]:
    """Is a claim right? If not, a fact follows."""
    question = topic.fill(rng.choice(VERDICT))
    if rng.random() < 0.5:
        return question.replace("{claim}", rng.choice(topic.facts)), "That is true."
    return question.replace("{claim}", rng.choice(topic.wrong)), f"That is false. {rng.choice(topic.facts)}"


TASKS: tuple[Task, ...] = (define, compare, quiz_question, verdict)


def choose_task(topic: Topic, rng: Random) -> tuple[str, str]:
    """An instruction of a random kind, and its answer."""
    return rng.choice(TASKS)(topic, rng)
