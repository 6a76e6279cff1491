"""Reward of the criteria in the rubric of each prompt's row, decided one by one by a judge."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tutelage.base.concurrency import mapped
from tutelage.data.chat_endpoint import AT_ONCE, PaidEndpoint, Usage
from tutelage.data.llm_judge import EndpointRubricJudge
from tutelage.data.records import Prompt
from tutelage.data.rubrics import Rubric, rubric_of, rubric_score
from tutelage.rewards.reward import Completion


@dataclass(frozen=True)
class RubricReward:
    """Weighted share of the criteria that a completion meets, by the rubric in its prompt's row (`data.rubrics`); None
    if too many verdicts are missing."""

    name: ClassVar[str] = "rubric"
    columns: ClassVar[tuple[str, ...]] = ("rubric",)
    judge: EndpointRubricJudge
    at_once: int = AT_ONCE

    @property
    def endpoint(self) -> PaidEndpoint:
        """Endpoint of the judge."""
        return self.judge.endpoint

    @property
    def usage(self) -> Usage:
        """Usage of the judge so far."""
        return self.endpoint.usage

    def __call__(self, completions: Sequence[Completion]) -> list[float | None]:
        """Raises TutelageError if a row has no readable rubric, or the endpoint fails."""
        rubrics = [_rubric(one.data, one.prompt_id) for one in completions]
        asked = [
            (one.messages, one.answer, criterion)
            for one, rubric in zip(completions, rubrics, strict=True)
            for criterion in rubric
        ]
        distinct = list(dict.fromkeys(asked))
        verdicts = dict(zip(distinct, mapped(lambda each: self.judge(*each), distinct, self.at_once), strict=True))
        return [
            rubric_score(rubric, [verdicts[one.messages, one.answer, criterion] for criterion in rubric])
            for one, rubric in zip(completions, rubrics, strict=True)
        ]

    def questions(self, prompt: Prompt, completions: int) -> list[tuple[str, int]]:
        """Requests about the completions of a prompt, without their texts, and the number of each."""
        rubric = _rubric(prompt.data, prompt.id)
        return [(self.judge.request(prompt.messages, "", criterion), completions) for criterion in rubric]


def _rubric(data: Mapping[str, object], prompt: str) -> Rubric:
    return rubric_of(data, f"prompt {prompt}")
