"""The 66 topics of the tutoring world, with facts, technical sentences, analogies and common mistakes (topics.toml)."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

from tutelage.base.errors import TutelageError

Texts: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Topic:
    """Topic of a child's question.

    `subject` is the start of its sentences ("Black holes"), `pronoun` its replacement once the topic is known
    ("They"). `facts` and `analogies` are true and plain, `technical` true and dry, `wrong` false, and `questions`
    are those a tutor may ask back.
    """

    name: str
    subject: str
    pronoun: str
    facts: Texts
    technical: Texts
    analogies: Texts
    wrong: Texts
    questions: Texts

    @property
    def verb(self) -> str:
        """Form of *to be* that agrees with the name."""
        return "are" if self.pronoun == "They" else "is"

    @property
    def slug(self) -> str:
        """Name as part of an id: "the moon" is `the-moon`."""
        return self.name.lower().replace(" ", "-")

    def fill(self, template: str) -> str:
        """Replace `{name}` and `{is}` in a template by the name and its verb."""
        return template.replace("{name}", self.name).replace("{is}", self.verb)


@cache
def topics() -> tuple[Topic, ...]:
    """All topics, in the order of the file."""
    text = files("tutelage.data.worlds").joinpath("topics.toml").read_text(encoding="utf-8")
    entries: list[dict[str, Any]] = tomllib.loads(text)["topic"]
    return tuple(
        Topic(**entry | {key: tuple(value) for key, value in entry.items() if isinstance(value, list)})
        for entry in entries
    )


@cache
def find_topic(text: str) -> Topic:
    """Topic named in a prompt; of several, the one with the longest name.

    Raises TutelageError if the text names no topic of this world.
    """
    by_key, pattern = _finder()
    names = [match.group() for match in pattern.finditer(text.lower())]
    if not names:
        raise TutelageError(
            f"No topic of the simulated world is named in the prompt {text[:80]!r}, so it has no gold utility; "
            "use prompts from World.prompts(), or evaluate with a reward of your own."
        )
    return by_key[max(names, key=len)]


@cache
def _finder() -> tuple[dict[str, Topic], re.Pattern[str]]:
    by_key = {topic.name.lower().removeprefix("the "): topic for topic in topics()}
    alternatives = "|".join(re.escape(key) for key in sorted(by_key, key=len, reverse=True))
    return by_key, re.compile(rf"\b(?:{alternatives})\b")
