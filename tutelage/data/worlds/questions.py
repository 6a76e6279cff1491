"""Questions that children ask, as prompts for a real chat model: 625 of them, about 125 topics (questions.txt)."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from random import Random

from tutelage.data.records import Message, Prompt, Split
from tutelage.data.worlds.world import divided

SYSTEM = "You explain things to a ten-year-old child. Answer in two short sentences."
"""The system turn before every question."""


@dataclass(frozen=True)
class ChildrensQuestions:
    """Questions of children. They are always the same; the seed decides which topics are held out, and the order."""

    seed: int = 0

    def topics(self, split: Split) -> tuple[str, ...]:
        """The topics of a split, in a random order: a quarter of all are held out."""
        return divided(list(questions()), split, Random(f"tutelage/{self.seed}/questions"))

    def prompts(self, split: Split) -> list[Prompt]:
        """Every question about the topics of a split, each after the same system turn.

        The order goes round the topics, so that any first part of the list speaks of as many topics as it can. Ids
        name the topic and the number of the question in it, and are the same for every seed.
        """
        topics = self.topics(split)
        most = max(len(questions()[topic]) for topic in topics)
        return [
            Prompt(f"{topic.replace(' ', '-')}-{number}", _asked(questions()[topic][number]), split)
            for number in range(most)
            for topic in topics
            if number < len(questions()[topic])
        ]


@cache
def questions() -> dict[str, tuple[str, ...]]:
    """The questions of each topic, in the order of the file, in which a line `# name` begins a topic."""
    text = files("tutelage.data.worlds").joinpath("questions.txt").read_text(encoding="utf-8")
    found: dict[str, tuple[str, ...]] = {}
    for part in text.removeprefix("# ").split("\n# "):
        topic, *asked = part.strip().split("\n")
        found[topic] = tuple(asked)
    return found


def _asked(question: str) -> tuple[Message, ...]:
    return Message("system", SYSTEM), Message("user", question)
