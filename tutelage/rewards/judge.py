"""A language model behind an OpenAI-compatible endpoint as a reward."""

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from tutelage.data.endpoint import Endpoint
from tutelage.data.records import Messages, user
from tutelage.data.templates import conversation_text, fill
from tutelage.errors import TutelageError
from tutelage.rewards.reward import Completion

AT_ONCE = 8
"""Requests that wait for an endpoint at the same time."""

TEMPLATE = """\
Rate the response to the conversation below. {question}
Do not let the length of the response influence you.
{guidelines}
[Conversation]
{conversation}

[Response]
{response}
[End of response]

Explain in one or two sentences, then end with your rating from {lowest} (worst) to {highest} (best) in double square \
brackets, such as [[{highest}]]."""
_RATING = re.compile(r"\[\[\s*(-?\d+(?:\.\d+)?)\s*\]\]")


@dataclass(frozen=True)
class JudgeReward:
    """The rating that a model gives each answer, in [lowest, highest].

    The parts of `template` are question, guidelines, conversation, response, lowest and highest, and the own columns of
    the prompt's row by their names ({solution} …). Equal requests are sent once. A reply without a rating is asked for
    once more, then refused.
    """

    endpoint: Endpoint
    question: str = "How good is it?"
    guidelines: str = ""
    template: str = TEMPLATE
    lowest: float = 1.0
    highest: float = 10.0
    temperature: float = 0.0
    at_once: int = AT_ONCE

    def __post_init__(self) -> None:
        missing = [name for name in ("{conversation}", "{response}") if name not in self.template]
        if missing:
            raise TutelageError(f"The judge's prompt lacks {', '.join(missing)}.")
        if not self.lowest < self.highest:
            raise TutelageError(f"A rating from {self.lowest:g} to {self.highest:g} says nothing.")

    def __call__(self, completions: Sequence[Completion]) -> list[float]:
        """Raises TutelageError where the endpoint does not answer or gives no rating."""
        requests = [self._request(one) for one in completions]
        distinct = list(dict.fromkeys(requests))
        with ThreadPoolExecutor(self.at_once) as pool:
            ratings = dict(zip(distinct, pool.map(self._rating, distinct), strict=True))
        return [ratings[request] for request in requests]

    def _request(self, one: Completion) -> str:
        columns = {name: str(value) for name, value in one.data.items()}
        fields = {
            "question": self.question,
            "guidelines": self.guidelines,
            "conversation": conversation_text(one.messages),
            "response": one.answer,
            "lowest": f"{self.lowest:g}",
            "highest": f"{self.highest:g}",
        }
        return fill(self.template, columns | fields)

    def _rating(self, request: str) -> float:
        said = ""
        for _ in range(2):
            (reply,) = self.endpoint.ask(user(request), temperature=self.temperature)
            said = reply.text.strip()
            ratings = [float(text) for text in _RATING.findall(said)]
            if ratings and self.lowest <= ratings[-1] <= self.highest:
                return ratings[-1]
        raise TutelageError(
            f"The judge {self.endpoint.model} gave no rating from {self.lowest:g} to {self.highest:g} such as "
            f"[[{self.highest:g}]]: '{said[-200:]}'."
        )


class Opinion(Protocol):
    """Which of two answers is preferred: "first", "second" or "tie"."""

    @property
    def preferred(self) -> str: ...


Compare: TypeAlias = Callable[[Messages, str, str], Opinion]


@dataclass(frozen=True)
class PairwiseJudgeReward:
    """A judge of pairs as a reward of answers that come in twos, neighbours that answer one prompt: 1 for the answer
    that it prefers in both orders, 0 for the other, and 1/2 for both where its preference turns with the order."""

    compare: Compare
    at_once: int = AT_ONCE

    def __call__(self, completions: Sequence[Completion]) -> list[float]:
        """Raises TutelageError where the answers do not come in twos, and where the judge fails."""
        pairs = list(zip(completions[::2], completions[1::2], strict=False))
        if len(completions) % 2 or any(one.prompt_id != other.prompt_id for one, other in pairs):
            raise TutelageError("A judge of pairs needs two answers to each prompt, one after the other.")
        with ThreadPoolExecutor(self.at_once) as pool:
            won = list(pool.map(lambda pair: self._first(*pair), pairs))
        return [score for first in won for score in (first, 1.0 - first)]

    def _first(self, one: Completion, other: Completion) -> float:
        """The score of the first of two answers."""
        if one.answer == other.answer:
            return 0.5
        shown = self.compare(one.messages, one.answer, other.answer).preferred
        turned = self.compare(one.messages, other.answer, one.answer).preferred
        return {("first", "second"): 1.0, ("second", "first"): 0.0}.get((shown, turned), 0.5)
