"""LLM judges behind an endpoint as rewards: by rating, or by comparing the completions of a prompt.

`judge_named` reads a judge from a settings file. Comparisons cover all pairs of completions of a prompt, or fewer in
a Swiss tournament.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, groupby
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from tutelage.base import config
from tutelage.base.concurrency import mapped
from tutelage.base.config.files import read_text
from tutelage.base.errors import TutelageError
from tutelage.data.chat_endpoint import AT_ONCE, KEY, Endpoint, PaidEndpoint, Prices
from tutelage.data.llm_judge import (
    CRITERION_TEMPLATE,
    PAIR_TEMPLATE,
    RATING_TEMPLATE,
    BothOrders,
    Compare,
    EndpointPairJudge,
    EndpointRubricJudge,
    conversation_text,
    fill,
    in_both_orders,
    judge_identity,
    read_rating,
    require_parts,
)
from tutelage.data.records import Messages, Prompt
from tutelage.rewards.reward import Completion, Reward
from tutelage.rewards.rubric import RubricReward


@dataclass(frozen=True)
class PairResult:
    """Result of a match between two players, by index. `score` is 1 if the first won, 1/2 for a draw."""

    first: int
    second: int
    score: float


class Schedule(Protocol):
    """Next round: pairs of indices below `players`, given the matches played so far; empty at the end."""

    def __call__(self, players: int, played: Sequence[PairResult], /) -> Sequence[tuple[int, int]]: ...


def round_robin(players: int, played: Sequence[PairResult]) -> Sequence[tuple[int, int]]:
    """All pairs in a single round: n (n − 1) / 2 comparisons."""
    return [] if played else list(combinations(range(players), 2))


def swiss(players: int, played: Sequence[PairResult]) -> Sequence[tuple[int, int]]:
    """Swiss tournament of ⌈log2 n⌉ rounds: players meet others with similar scores, and none twice.

    It takes about n/2 · log2 n comparisons (12 for 8 completions, where all pairs are 28) and separates the best
    from the worst, but not all neighbours. With an odd number, the lowest player of those with the most matches has
    a bye.
    """
    points, counts = _points(players, played)
    if players < 2 or max(counts) >= (players - 1).bit_length():
        return []
    met = {frozenset((match.first, match.second)) for match in played}
    waiting = sorted(range(players), key=lambda player: (-points[player], player))
    if players % 2:
        most = max(counts)
        waiting.remove(next(player for player in reversed(waiting) if counts[player] == most))
    pairs = []
    while len(waiting) > 1:
        first = waiting.pop(0)
        rival = next((other for other in waiting if frozenset((first, other)) not in met), waiting[0])
        waiting.remove(rival)
        pairs.append((first, rival))
    return [pair for pair in pairs if frozenset(pair) not in met]


def _points(players: int, played: Sequence[PairResult]) -> tuple[list[float], list[int]]:
    """Points and number of matches of each player."""
    points, counts = [0.0] * players, [0] * players
    for match in played:
        for player, score in ((match.first, match.score), (match.second, 1.0 - match.score)):
            points[player] += score
            counts[player] += 1
    return points, counts


OWN_PARTS = ("question", "guidelines", "conversation", "response", "lowest", "highest")
"""Placeholders of the template of a rating that are no columns of a prompt."""


@dataclass(frozen=True)
class JudgeReward:
    """Rating of each completion by a model, in [lowest, highest].

    Placeholders of `template` are question, guidelines, conversation, response, lowest and highest, and the own
    columns of the prompt's row by name ({solution} …), values other than text as JSON. Equal requests are sent once. A
    reply without a rating is requested once more, then refused.
    """

    name: ClassVar[str] = "judge"
    endpoint: PaidEndpoint
    question: str = "How good is it?"
    guidelines: str = ""
    template: str = RATING_TEMPLATE
    lowest: float = 1.0
    highest: float = 10.0
    at_once: int = AT_ONCE
    aligned_on: frozenset[str] = frozenset()
    """Ids of the prompts whose votes chose this judge (`commands.judge`)."""

    def __post_init__(self) -> None:
        require_parts(self.template, "conversation", "response")
        if not self.lowest < self.highest:
            raise TutelageError(f"A rating from {self.lowest:g} to {self.highest:g} says nothing.")

    @property
    def detail(self) -> dict[str, object]:
        """Identity of this judge for the record of a rater, without the key."""
        scale = f"{self.lowest:g} to {self.highest:g}"
        return judge_identity(self.endpoint, self.template, self.question, self.guidelines, scale)

    def __call__(self, completions: Sequence[Completion]) -> list[float]:
        """Raises TutelageError if the endpoint fails or returns no rating."""
        read = partial(read_rating, lowest=self.lowest, highest=self.highest)
        expected = f"rating from {self.lowest:g} to {self.highest:g} such as [[{self.highest:g}]]"
        requests = [self._request(one) for one in completions]
        distinct = list(dict.fromkeys(requests))
        ratings = mapped(lambda request: self.endpoint.ask(request, read, expected), distinct, self.at_once)
        by_request = dict(zip(distinct, ratings, strict=True))
        return [by_request[request] for request in requests]

    def questions(self, prompt: Prompt, completions: int) -> list[tuple[str, int]]:
        """Requests about the completions of a prompt, without their texts, and the number of each."""
        return [(self._request(Completion(prompt.id, prompt.messages, "", prompt.data)), completions)]

    def _request(self, one: Completion) -> str:
        columns = {
            name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for name, value in one.data.items()
        }
        values = (conversation_text(one.messages), one.answer, f"{self.lowest:g}", f"{self.highest:g}")
        fields = zip(OWN_PARTS, (self.question, self.guidelines, *values), strict=True)
        return fill(self.template, columns | dict(fields))


@dataclass(frozen=True)
class PairwiseJudgeReward:
    """Win rate of each completion in comparisons with others of its prompt, by a pairwise judge.

    The completions of a prompt are adjacent, at least two of them. `schedule` selects the comparisons: all pairs, or
    a tournament (`swiss`). Each comparison is made in both orders; an inconsistent verdict is a draw, and a draw is
    half a win. Equal completions are one player and share a score. Scores are relative: with all pairs, their mean
    over the different completions of a prompt is 1/2.
    """

    name: ClassVar[str] = "judge"
    compare: Compare
    schedule: Schedule = round_robin
    at_once: int = AT_ONCE
    aligned_on: frozenset[str] = frozenset()
    """As in `JudgeReward`."""

    @property
    def endpoint(self) -> PaidEndpoint | None:
        """Endpoint of the judge; None for a function."""
        return self.compare.endpoint if isinstance(self.compare, EndpointPairJudge) else None

    def questions(self, prompt: Prompt, completions: int) -> list[tuple[str, int]]:
        """Requests about the completions of a prompt, without their texts, and the number of each."""
        if not isinstance(self.compare, EndpointPairJudge):
            return []
        return [(self.compare.request(prompt.messages, "", ""), 2 * _matches(self.schedule, completions))]

    def __call__(self, completions: Sequence[Completion]) -> list[float]:
        """Raises TutelageError for a prompt with a single completion, and if the judge fails."""
        groups = [list(group) for _, group in groupby(completions, lambda one: one.prompt_id)]
        if any(len(group) < 2 for group in groups):
            raise TutelageError(
                "A judge that compares completions needs at least two adjacent ones per prompt; to score single "
                "completions, use a judge that rates."
            )
        return [score for scores in self._tournaments(groups) for score in scores]

    def opinions(self, messages: Messages, first: str, second: str) -> BothOrders:
        """Opinions of the judge on two responses to a conversation, in both orders."""
        return in_both_orders(self.compare, messages, first, second)

    def _tournaments(self, groups: Sequence[list[Completion]]) -> list[list[float]]:
        """Scores of each group. The rounds of all groups are played in parallel."""
        players = [list({one.answer: one for one in reversed(group)}.values())[::-1] for group in groups]
        played: list[list[PairResult]] = [[] for _ in groups]
        while True:
            rounds = [self.schedule(len(each), past) for each, past in zip(players, played, strict=True)]
            pairs = [(group, pair) for group, round_ in enumerate(rounds) for pair in round_]
            if not pairs:
                return [_shares(group, each, past) for group, each, past in zip(groups, players, played, strict=True)]
            results = mapped(lambda item: self._result(players[item[0]], *item[1]), pairs, self.at_once)
            for (group, _), result in zip(pairs, results, strict=True):
                played[group].append(result)

    def _result(self, players: Sequence[Completion], first: int, second: int) -> PairResult:
        one, other = players[first], players[second]
        preferred = self.opinions(one.messages, one.answer, other.answer).settled.preferred
        return PairResult(first, second, {"first": 1.0, "second": 0.0, "tie": 0.5}[preferred])


def _matches(schedule: Schedule, players: int) -> int:
    """Number of matches among equal players."""
    played: list[PairResult] = []
    while pairs := schedule(players, played):
        played += [PairResult(first, second, 0.5) for first, second in pairs]
    return len(played)


def _shares(group: Sequence[Completion], players: Sequence[Completion], played: Sequence[PairResult]) -> list[float]:
    """Win rate of each completion of a group; 1/2 without another completion."""
    share = {
        player.answer: won / count if count else 0.5
        for player, won, count in zip(players, *_points(len(players), played), strict=True)
    }
    return [share[one.answer] for one in group]


SCHEDULES: Mapping[str, Schedule] = {"pairs": round_robin, "tournament": swiss}


@dataclass(frozen=True)
class JudgeFile:
    """A language model that judges completions."""

    url: str
    """Address of an OpenAI-compatible endpoint, such as http://localhost:8000/v1."""
    model: str
    """Name of the model at the endpoint."""
    rubric: str = ""
    """Criteria of a good response, in free text; optional guidelines with by = "rubric"."""
    by: Literal["rating", "pairs", "tournament", "rubric"] = "rating"
    """rating: rate each response; pairs: compare all pairs of responses to a prompt, in both orders; tournament:
    fewer comparisons, between responses with similar scores; rubric: decide about each criterion in the column `rubric`
    of the prompt's row."""
    dropout: float = 0.0
    """For by = "rubric" in training: probability that a criterion is left out of the score of a prompt's responses in a
    step."""
    question: str = ""
    """Question before the rubric, if not the default."""
    lowest: float = 1.0
    """Lowest rating."""
    highest: float = 10.0
    """Highest rating."""
    template: Path | None = None
    """File with a custom prompt template; built-in if omitted."""
    temperature: float = 0.0
    """Sampling temperature of the judge."""
    at_once: int = AT_ONCE
    """Number of concurrent requests."""
    timeout: float = 120.0
    """Timeout in seconds without a byte; failed requests are sent again, three times at most."""
    replies: Path | None = None
    """File that caches replies across runs, so that none is paid for twice; in memory if omitted."""
    price_read: float = 0.0
    """Price of a million input tokens."""
    price_written: float = 0.0
    """Price of a million output tokens."""
    budget: float = 0.0
    """Maximum total cost, including that of the replies in the file; 0 for no limit."""
    aligned_on: tuple[str, ...] = ()
    """Ids of the prompts whose votes chose this judge, written by `tutelage judge align`; --trust leaves them out."""

    def __post_init__(self) -> None:
        if self.by != "rubric" and not self.rubric.strip():
            raise TutelageError("The rubric is empty: state what makes a response good.")
        if self.by == "rubric" and self.question:
            raise TutelageError('question does not apply to by = "rubric", whose questions are the criteria.')
        if self.by != "rubric" and self.dropout:
            raise TutelageError('dropout applies to by = "rubric" alone: there are no criteria to leave out.')
        if not self.model:
            raise TutelageError("model is empty: name the model at the endpoint.")
        if self.at_once < 1 or self.timeout <= 0 or self.temperature < 0:
            raise TutelageError("at_once has to be 1 or more, timeout above 0, temperature at least 0.")
        if self.by != "rating" and (self.lowest, self.highest) != (1.0, 10.0):
            raise TutelageError(f"lowest and highest only apply to ratings; by = {self.by!r} gives none.")


def judge_named(file: str) -> Reward:
    """Judge from a settings file. Paths in it are relative to the file.

    Raises TutelageError, with the file, for invalid settings.
    """
    try:
        settings, folder = config.load(JudgeFile, file), Path(file).parent
        return judge_of(settings, folder, endpoint_of(settings, folder))
    except TutelageError as error:
        raise TutelageError(str(error) if file in str(error) else f"{file}: {error}") from error


def endpoint_of(settings: JudgeFile, folder: Path) -> PaidEndpoint:
    """Endpoint of a judge, with its replies and its budget."""
    return PaidEndpoint(
        Endpoint(settings.url, settings.model, os.environ.get(KEY, ""), settings.timeout),
        settings.temperature,
        Prices(settings.price_read, settings.price_written, settings.budget),
        None if settings.replies is None else folder / settings.replies,
    )


def judge_of(settings: JudgeFile, folder: Path, endpoint: PaidEndpoint) -> Reward:
    """Judge of these settings behind an endpoint. Paths are relative to `folder`. Raises TutelageError for invalid
    settings."""
    aligned_on = frozenset(settings.aligned_on)
    if settings.by == "rating":
        return JudgeReward(
            endpoint,
            settings.question or JudgeReward.question,
            settings.rubric,
            _template(settings, folder, RATING_TEMPLATE),
            settings.lowest,
            settings.highest,
            settings.at_once,
            aligned_on,
        )
    if settings.by == "rubric":
        template = _template(settings, folder, CRITERION_TEMPLATE)
        return RubricReward(
            EndpointRubricJudge(endpoint, settings.rubric, template), settings.at_once, settings.dropout
        )
    template = _template(settings, folder, PAIR_TEMPLATE)
    judge = EndpointPairJudge(endpoint, settings.question or EndpointPairJudge.question, settings.rubric, template)
    return PairwiseJudgeReward(judge, SCHEDULES[settings.by], settings.at_once, aligned_on)


def _template(settings: JudgeFile, folder: Path, usual: str) -> str:
    if settings.template is None:
        return usual
    template = read_text(folder / settings.template, "prompt")
    if "{guidelines}" not in template and (settings.rubric or settings.by != "rubric"):
        raise TutelageError(f"The prompt {settings.template} lacks {{guidelines}}, the place of the rubric.")
    return template
