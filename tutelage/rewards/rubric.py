"""Reward of the criteria in the rubric of each prompt's row, decided one by one by a judge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from random import Random
from typing import Any, ClassVar

from tutelage.base.concurrency import mapped
from tutelage.base.errors import TutelageError
from tutelage.data.chat_endpoint import AT_ONCE, PaidEndpoint
from tutelage.data.llm_judge import EndpointRubricJudge, JudgeCriterion
from tutelage.data.records import Prompt
from tutelage.data.rubrics import Rubric, rubric_of, rubric_score
from tutelage.rewards.reward import Completion, Reward, made_of


@dataclass(frozen=True)
class RubricReward:
    """Weighted share of the criteria that a completion meets, by the rubric in its prompt's row (`data.rubrics`); None
    if too many verdicts are missing.

    With `dropout` p, every criterion is left out with probability p, the same ones for all completions of a prompt in
    a call, and the score is that of the rest, which has a criterion with positive points (Yang et al. 2026, Rubric
    Dropout, arXiv 2608.11669). The draw follows from prompt and completions, so that a resumed run repeats it.
    """

    name: ClassVar[str] = "rubric"
    columns: ClassVar[tuple[str, ...]] = ("rubric",)
    applies_to_all: ClassVar[bool] = True
    judge: JudgeCriterion
    at_once: int = AT_ONCE
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.dropout < 1:
            raise TutelageError(f"dropout has to be at least 0 and below 1, not {self.dropout:g}.")

    @property
    def endpoint(self) -> PaidEndpoint | None:
        """Endpoint of the judge, if it has one."""
        return self.judge.endpoint if isinstance(self.judge, EndpointRubricJudge) else None

    def __call__(self, completions: Sequence[Completion]) -> list[float | None]:
        """Raises TutelageError if a row has no readable rubric, or the endpoint fails."""
        rubrics = self._rubrics(completions)
        decisions = [
            (one.messages, one.answer, criterion)
            for one, rubric in zip(completions, rubrics, strict=True)
            for criterion in rubric
        ]
        distinct = list(dict.fromkeys(decisions))
        verdicts = dict(zip(distinct, mapped(lambda each: self.judge(*each), distinct, self.at_once), strict=True))
        return [
            rubric_score(rubric, [verdicts[one.messages, one.answer, criterion] for criterion in rubric])
            for one, rubric in zip(completions, rubrics, strict=True)
        ]

    def _rubrics(self, completions: Sequence[Completion]) -> list[Rubric]:
        """Rubric of each completion, without the criteria that are left out."""
        if not self.dropout:
            return [_rubric(one.data, one.prompt_id) for one in completions]
        answers: dict[str, list[str]] = {}
        for one in completions:
            answers.setdefault(one.prompt_id, [one.prompt_id]).append(one.answer)
        generators = {prompt: Random("\x1f".join(texts)) for prompt, texts in answers.items()}
        first = {one.prompt_id: one for one in reversed(completions)}
        rubrics = {
            prompt: some_criteria(_rubric(one.data, prompt), self.dropout, generators[prompt])
            for prompt, one in first.items()
        }
        return [rubrics[one.prompt_id] for one in completions]

    def questions(self, prompt: Prompt, completions: int) -> list[tuple[str, int]]:
        """Requests about the completions of a prompt, without their texts, and the number of each, as if no criterion
        were left out; none without an endpoint."""
        if not isinstance(self.judge, EndpointRubricJudge):
            return []
        rubric = _rubric(prompt.data, prompt.id)
        return [(self.judge.request(prompt.messages, "", criterion), completions) for criterion in rubric]


def without_dropout(reward: Reward) -> Reward:
    """A reward whose rubrics, in all its components, leave no criterion out: for measurements."""
    return _undropped(reward)


def _undropped(value: object) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_undropped, value))
    if isinstance(value, RubricReward):
        return replace(value, dropout=0.0)
    if not any(isinstance(part, RubricReward) for part in made_of(value)) or not is_dataclass(value):
        return value
    fields_of = {each.name: _undropped(getattr(value, each.name)) for each in fields(value) if each.init}
    return replace(value, **fields_of)  # type: ignore[type-var]


def some_criteria(rubric: Rubric, dropout: float, draw: Random) -> Rubric:
    """A rubric of which every criterion is left out with probability `dropout`, given that one with positive points
    remains."""
    while True:
        rest = tuple(criterion for criterion in rubric if draw.random() >= dropout)
        if any(criterion.points > 0 for criterion in rest):
            return rest


def _rubric(data: Mapping[str, object], prompt: str) -> Rubric:
    return rubric_of(data, f"prompt {prompt}")
