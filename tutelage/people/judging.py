"""Model judges and reward models as raters, through the same questions and answers as people.

A judge is asked about both orders of a pair; if it does not prefer the same response both times, that is a tie (what
Zheng et al. 2023 do against the position bias of judges, which preferred the first response in up to 75 % of pairs).
Its answers are kept apart from people's: they take nobody's place and count only where they are asked for by kind.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

from tutelage.data.endpoint import Endpoint
from tutelage.data.records import Messages, user
from tutelage.data.templates import conversation_text, fill
from tutelage.errors import TutelageError
from tutelage.people.answers import Answer
from tutelage.people.assign import next_assignment
from tutelage.people.store.engine import Store
from tutelage.people.store.questions import Assignment
from tutelage.people.store.raters import add_rater, find_rater
from tutelage.people.store.studies import study_of
from tutelage.people.submit import submit

Preferred: TypeAlias = Literal["first", "second", "tie"]
Compare: TypeAlias = Callable[[Messages, str, str], "Opinion"]

TEMPLATE = """\
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
_VERDICT = re.compile(r"\[\[([ABC])\]\]")
_MEANING: Mapping[str, Preferred] = {"A": "first", "B": "second", "C": "tie"}


@dataclass(frozen=True)
class Opinion:
    """Which of two responses a judge prefers, how strongly (1 to 3; 0 for a tie), and why."""

    preferred: Preferred
    strength: int = 1
    reason: str = ""


@dataclass(frozen=True)
class EndpointJudge:
    """A model behind an OpenAI-compatible endpoint (`url` ends before `/chat/completions`).

    `key` is sent as a bearer token and never stored. A reply without a verdict is asked for once more, then refused.
    """

    url: str
    model: str
    question: str
    guidelines: str = ""
    template: str = TEMPLATE
    temperature: float = 0.0
    key: str = field(default="", repr=False)
    timeout: float = 120.0

    @property
    def detail(self) -> dict[str, object]:
        """What makes this judge this judge: for the record of the rater."""
        asked = f"{self.template}\x1f{self.question}\x1f{self.guidelines}"
        digest = hashlib.sha256(asked.encode()).hexdigest()
        return {
            "model": self.model,
            "url": self.url,
            "temperature": self.temperature,
            "prompt_sha256": digest,
        }

    def __call__(self, messages: Messages, first: str, second: str) -> Opinion:
        """Raises TutelageError where the endpoint does not answer or gives no verdict."""
        conversation = conversation_text(messages)
        parts = {"question": self.question, "guidelines": self.guidelines, "conversation": conversation}
        text = fill(self.template, parts | {"first": first, "second": second})
        for _ in range(2):
            (found,) = self._endpoint.ask(user(text), temperature=self.temperature)
            reply = found.text
            verdicts = _VERDICT.findall(reply)
            if verdicts:
                preferred = _MEANING[verdicts[-1]]
                return Opinion(preferred, 0 if preferred == "tie" else 1, reply.strip())
        raise TutelageError(
            f"The judge {self.model} gave no verdict such as [[A]]: '{reply.strip()[-200:]}'."
        )

    @cached_property
    def _endpoint(self) -> Endpoint:
        return Endpoint(self.url, self.model, self.key, self.timeout)


@dataclass(frozen=True)
class ScoreJudge:
    """A reward model, or any `score(conversations, responses) -> list[float]`, as a rater. Scores no further apart than
    `tie` are equal; the strength grows by one with each `step` of difference."""

    score: Callable[[Sequence[Messages], Sequence[str]], Sequence[float]]
    tie: float = 0.0
    step: float = 1.0

    def __call__(self, messages: Messages, first: str, second: str) -> Opinion:
        one, two = self.score([messages, messages], [first, second])
        difference = one - two
        if abs(difference) <= self.tie:
            return Opinion("tie", 0)
        strength = min(3, 1 + int((abs(difference) - self.tie) / self.step))
        return Opinion("first" if difference > 0 else "second", strength)


def judge_study(
    store: Store,
    study_id: int,
    name: str,
    compare: Compare,
    *,
    detail: Mapping[str, object] | None = None,
    most: int | None = None,
    done: Callable[[int], None] = lambda count: None,
) -> int:
    """Let a judge answer every question that it was not asked yet, or the next `most` of them; returns the number of
    its answers. After an interruption the next call goes on where this one stopped.

    Raises:
        TutelageError: the study asks for more than a side, the name belongs to a person or to a judge with another
            detail, or the judge fails; what it answered before is kept.
    """
    study = study_of(store, study_id)
    if not study.kind.traits.sides:
        raise TutelageError(f"'{study.name}' {study.kind.traits.does}; a model judge compares pairs.")
    rater_id = _judge(store, study_id, name, dict(detail or {}))
    count = 0
    while most is None or count < most:
        question = next_assignment(store, rater_id)
        if question is None:
            break
        submit(store, question.id, both_orders(question, compare), rater_id=rater_id)
        count += 1
        done(count)
    return count


def both_orders(question: Assignment, compare: Compare) -> Answer:
    """The judge's answer: the response it prefers wherever it stands, else a tie. The strength is the weaker of the
    two; both reasons are kept."""
    shown = compare(question.messages, question.left, question.right)
    turned = compare(question.messages, question.right, question.left)
    reason = "\n\n".join(dict.fromkeys(opinion.reason for opinion in (shown, turned) if opinion.reason))
    sides = {("first", "second"): "left", ("second", "first"): "right"}
    side = sides.get((shown.preferred, turned.preferred))
    if side is None:
        return Answer("tie", reason=reason)
    return Answer("left" if side == "left" else "right", min(shown.strength, turned.strength), reason=reason)


def _judge(store: Store, study_id: int, name: str, detail: dict[str, object]) -> int:
    known = find_rater(store, study_id, name)
    if known is None:
        return add_rater(store, study_id, name, kind="llm", detail=detail).id
    if known.kind != "llm" or dict(known.detail) != detail:
        raise TutelageError(
            f"There is a rater '{name}' already, and it is not this judge (another kind, model or prompt); "
            "give the judge another name."
        )
    return known.id
