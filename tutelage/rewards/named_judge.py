"""A judge as a reward from a file of settings: `judge:FILE.toml`."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.data.chat_endpoint import AT_ONCE, KEY, Endpoint, PaidEndpoint, Prices
from tutelage.data.llm_judge import PAIR_TEMPLATE, RATING_TEMPLATE, EndpointPairJudge
from tutelage.rewards.judge import JudgeReward, PairwiseJudgeReward
from tutelage.rewards.matches import Schedule, round_robin, swiss
from tutelage.rewards.reward import Reward

SCHEDULES: Mapping[str, Schedule] = {"pairs": round_robin, "tournament": swiss}


@dataclass(frozen=True)
class JudgeSettings:
    """A language model that judges answers."""

    url: str
    """Address of an OpenAI-compatible endpoint, such as http://localhost:8000/v1."""
    model: str
    """Name of the model there."""
    rubric: str
    """What makes an answer good, in as many words as it takes."""
    by: Literal["rating", "pairs", "tournament"] = "rating"
    """rating: a number for each answer; pairs: every two answers to a prompt are compared, in both orders; tournament:
    fewer comparisons, between answers that won as much."""
    question: str = ""
    """The question before the rubric, if not the usual one."""
    lowest: float = 1.0
    """The worst rating."""
    highest: float = 10.0
    """The best rating."""
    template: Path | None = None
    """File with the whole prompt, if not the built-in one."""
    temperature: float = 0.0
    """Of the judge."""
    at_once: int = AT_ONCE
    """Requests that wait for the endpoint at the same time."""
    timeout: float = 120.0
    """Seconds without an answer after which a request has failed and is sent again, three times at most."""
    replies: Path | None = None
    """File in which replies are kept, so that no run pays for one twice; in memory without it."""
    price_read: float = 0.0
    """Price of a million tokens that the judge reads."""
    price_written: float = 0.0
    """Price of a million tokens that it writes."""
    budget: float = 0.0
    """What may be spent, with the replies in the file; 0 for no limit."""

    def __post_init__(self) -> None:
        if not self.rubric.strip():
            raise TutelageError("The rubric is empty: say what makes an answer good.")
        if not self.model:
            raise TutelageError("model is empty: name the model at the endpoint.")
        if self.at_once < 1 or self.timeout <= 0 or self.temperature < 0:
            raise TutelageError("at_once has to be 1 or more, timeout above 0, temperature at least 0.")
        if self.by != "rating" and (self.lowest, self.highest) != (1.0, 10.0):
            raise TutelageError(f"lowest and highest are those of ratings; by = {self.by!r} gives none.")


def judge_named(file: str) -> Reward:
    """The judge that a file of settings describes. Paths in it are relative to the file.

    Raises TutelageError, with the file, where the settings make no judge.
    """
    try:
        return _judge(config.load(JudgeSettings, file), Path(file).parent)
    except TutelageError as error:
        raise TutelageError(str(error) if file in str(error) else f"{file}: {error}") from error


def _judge(settings: JudgeSettings, folder: Path) -> Reward:
    endpoint = PaidEndpoint(
        Endpoint(settings.url, settings.model, os.environ.get(KEY, ""), settings.timeout),
        settings.temperature,
        Prices(settings.price_read, settings.price_written, settings.budget),
        None if settings.replies is None else folder / settings.replies,
    )
    if settings.by == "rating":
        return JudgeReward(
            endpoint,
            settings.question or JudgeReward.question,
            settings.rubric,
            _template(settings, folder, RATING_TEMPLATE),
            settings.lowest,
            settings.highest,
            settings.at_once,
        )
    template = _template(settings, folder, PAIR_TEMPLATE)
    judge = EndpointPairJudge(
        endpoint, settings.question or EndpointPairJudge.question, settings.rubric, template
    )
    return PairwiseJudgeReward(judge, SCHEDULES[settings.by], settings.at_once)


def _template(settings: JudgeSettings, folder: Path, usual: str) -> str:
    if settings.template is None:
        return usual
    try:
        template = (folder / settings.template).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TutelageError(f"The prompt {settings.template} cannot be read: {error}.") from error
    if "{guidelines}" not in template:
        raise TutelageError(f"The prompt {settings.template} lacks {{guidelines}}, the place of the rubric.")
    return template
