"""LLM judges behind an endpoint: ratings of responses, verdicts on pairs in both orders and on single criteria.

Pairs are judged in both orders, and inconsistent verdicts are ties (Zheng et al. 2023, against the position bias of
judges, which preferred the first response in up to 75 % of pairs).
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tutelage.base.errors import TutelageError
from tutelage.data.chat_endpoint import PaidEndpoint
from tutelage.data.records import Messages, texts_only
from tutelage.data.rubrics import Criterion

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


def fill(template: str, parts: Mapping[str, str]) -> str:
    """Fill a template, replacing each `{name}` by its part; unknown names are left unchanged.

    Parts are not searched for placeholders, so they cannot include other parts.
    """
    return _PLACEHOLDER.sub(lambda found: parts.get(found[1], found[0]), template)


def conversation_text(messages: Messages) -> str:
    """Conversation as one text: "role: content" for each turn, separated by blank lines.

    Raises TutelageError for tools, calls and thinking, which it does not show.
    """
    return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in texts_only(messages, "a judge"))


def placeholders(template: str) -> tuple[str, ...]:
    """Names of the parts of a template, each once."""
    return tuple(dict.fromkeys(_PLACEHOLDER.findall(template)))


Preferred: TypeAlias = Literal["first", "second", "tie"]

PAIR_TEMPLATE = """\
Compare two responses to the conversation below. {question}
Do not let the order of the responses or their length influence you.
{guidelines}
[Conversation]
{conversation}

[Response A]
{first}
[End of response A]

[Response B]
{second}
[End of response B]

Explain in one or two sentences, then end with your verdict: [[A]] if response A is better, [[B]] if response B is \
better, or [[C]] if they are equally good."""

RATING_TEMPLATE = """\
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

CRITERION_TEMPLATE = """\
Decide whether the response to the conversation below meets one criterion. Judge this criterion alone. It may describe \
a fault: decide whether the description applies, not whether that is good. If it has several parts, all must apply.
{guidelines}
[Conversation]
{conversation}

[Response]
{response}
[End of response]

[Criterion]
{criterion}
[End of criterion]

Explain in one or two sentences, then end with your verdict: [[MET]] if the response meets the criterion, or \
[[UNMET]] if it does not."""

_VERDICT = re.compile(r"\[\[([ABC])\]\]")
_DECISION = re.compile(r"\[\[\s*(UNMET|MET)\s*\]\]", re.IGNORECASE)
_MEANING: Mapping[str, Preferred] = {"A": "first", "B": "second", "C": "tie"}
_RATING = re.compile(r"\[\[\s*(-?\d+(?:\.\d+)?)\s*\]\]")


@dataclass(frozen=True)
class Opinion:
    """Preferred response of a judge, the strength of the preference (1 to 3; 0 for a tie), and the reason."""

    preferred: Preferred
    strength: int = 1
    reason: str = ""


Compare: TypeAlias = Callable[[Messages, str, str], Opinion]
"""Pairwise judge: a function of the conversation and the two responses in the order shown."""


JudgeCriterion: TypeAlias = Callable[[Messages, str, Criterion], bool | None]
"""Judge of criteria: whether a response to a conversation meets one; None if it cannot say."""


@dataclass(frozen=True)
class BothOrders:
    """Opinions of a judge on a pair, in both orders."""

    shown: Opinion
    turned: Opinion

    @property
    def settled(self) -> Opinion:
        """The response preferred in both orders, with the weaker strength, else a tie; includes both reasons."""
        reason = "\n\n".join(dict.fromkeys(each.reason for each in (self.shown, self.turned) if each.reason))
        sides: dict[tuple[Preferred, Preferred], Preferred]
        sides = {("first", "second"): "first", ("second", "first"): "second"}
        side = sides.get((self.shown.preferred, self.turned.preferred), "tie")
        strength = 0 if side == "tie" else min(self.shown.strength, self.turned.strength)
        return Opinion(side, strength, reason)


def in_both_orders(compare: Compare, messages: Messages, first: str, second: str) -> BothOrders:
    """Opinions of a judge on two responses in both orders."""
    return BothOrders(compare(messages, first, second), compare(messages, second, first))


@dataclass(frozen=True)
class EndpointPairJudge:
    """Model that compares two responses with `template`. A reply without a verdict is requested once more, then
    refused."""

    endpoint: PaidEndpoint
    question: str = "Which response is better?"
    guidelines: str = ""
    template: str = PAIR_TEMPLATE

    def __post_init__(self) -> None:
        require_parts(self.template, "conversation", "first", "second")

    @property
    def detail(self) -> dict[str, object]:
        """Identity of this judge for the record of a rater, without the key."""
        return judge_identity(self.endpoint, self.template, self.question, self.guidelines)

    def __call__(self, messages: Messages, first: str, second: str) -> Opinion:
        """Raises TutelageError if the endpoint fails or returns no verdict."""
        return self.endpoint.ask(self.request(messages, first, second), read_verdict, "verdict such as [[A]]")

    def request(self, messages: Messages, first: str, second: str) -> str:
        """The question about two responses in the order shown."""
        parts = {"question": self.question, "guidelines": self.guidelines, "conversation": conversation_text(messages)}
        return fill(self.template, parts | {"first": first, "second": second})


@dataclass(frozen=True)
class EndpointRubricJudge:
    """Model that decides about single criteria with `template`, one request each, so that equal ones (of judge,
    conversation, response and criterion) are sent once. A reply without a verdict is requested once more; then the
    verdict is missing, and counted in `endpoint.usage.missing`."""

    endpoint: PaidEndpoint
    guidelines: str = ""
    template: str = CRITERION_TEMPLATE

    def __post_init__(self) -> None:
        require_parts(self.template, "conversation", "response", "criterion")

    @property
    def detail(self) -> dict[str, object]:
        """Identity of this judge for the record of a rater, without the key."""
        return judge_identity(self.endpoint, self.template, self.guidelines)

    def __call__(self, messages: Messages, response: str, criterion: Criterion) -> bool | None:
        """Raises TutelageError if the endpoint fails."""
        return self.endpoint.find(self.request(messages, response, criterion), read_decision)

    def request(self, messages: Messages, response: str, criterion: Criterion) -> str:
        """The question about one criterion; its points are not shown."""
        parts = {"guidelines": self.guidelines, "conversation": conversation_text(messages), "response": response}
        return fill(self.template, parts | {"criterion": criterion.text})


def judge_identity(endpoint: PaidEndpoint, *asked: str) -> dict[str, object]:
    """Identity of a judge for the record of a rater, without the key; `asked` are the parts of its prompt."""
    digest = hashlib.sha256("\x1f".join(asked).encode()).hexdigest()
    where, temperature = endpoint.endpoint, endpoint.temperature
    return {"model": where.model, "url": where.url, "temperature": temperature, "prompt_sha256": digest}


def read_verdict(reply: str) -> Opinion | None:
    """Last verdict in a reply; None if there is none."""
    verdicts = _VERDICT.findall(reply)
    if not verdicts:
        return None
    preferred = _MEANING[verdicts[-1]]
    return Opinion(preferred, 0 if preferred == "tie" else 1, reply.strip())


def read_decision(reply: str) -> bool | None:
    """Last verdict about a criterion in a reply; None if there is none."""
    verdicts = _DECISION.findall(reply)
    return verdicts[-1].upper() == "MET" if verdicts else None


def read_rating(reply: str, lowest: float, highest: float) -> float | None:
    """Last rating in a reply; None if there is none from lowest to highest."""
    ratings = [float(text) for text in _RATING.findall(reply)]
    return ratings[-1] if ratings and lowest <= ratings[-1] <= highest else None


def require_parts(template: str, *names: str) -> None:
    """Check that a judge's prompt has the required placeholders. Raises TutelageError naming the missing ones."""
    missing = [f"{{{name}}}" for name in names if f"{{{name}}}" not in template]
    if missing:
        raise TutelageError(f"The judge's prompt lacks {', '.join(missing)}.")
