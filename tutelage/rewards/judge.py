"""A language model behind an endpoint as a reward: by ratings, or by comparisons of the completions of a prompt.

`judge_named` reads one from a file of settings. All completions of a prompt are compared, or those that meet in a Swiss
tournament, which takes fewer comparisons.
"""

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import combinations, groupby
from pathlib import Path
from typing import ClassVar, Literal, Protocol

from tutelage.base import config
from tutelage.base.errors import TutelageError
from tutelage.data.chat_endpoint import AT_ONCE, KEY, Endpoint, PaidEndpoint, Prices, Usage
from tutelage.data.llm_judge import (
    PAIR_TEMPLATE,
    RATING_TEMPLATE,
    BothOrders,
    Compare,
    EndpointPairJudge,
    conversation_text,
    fill,
    in_both_orders,
    read_rating,
    require_parts,
)
from tutelage.data.records import Messages
from tutelage.rewards.reward import Completion, Reward


@dataclass(frozen=True)
class PairResult:
    """The result of a comparison of two players, by their numbers. `score` is 1 where the first won, 1/2 for a draw."""

    first: int
    second: int
    score: float


class Schedule(Protocol):
    """The next round: pairs of numbers below `players`, given the matches that were played; none at the end."""

    def __call__(self, players: int, played: Sequence[PairResult], /) -> Sequence[tuple[int, int]]: ...


def round_robin(players: int, played: Sequence[PairResult]) -> Sequence[tuple[int, int]]:
    """All pairs in a single round: n (n − 1) / 2 comparisons, the most that can be learnt about n answers."""
    return [] if played else list(combinations(range(players), 2))


def swiss(players: int, played: Sequence[PairResult]) -> Sequence[tuple[int, int]]:
    """A Swiss tournament of ⌈log2 n⌉ rounds: each player meets one that has won as much, and none twice.

    It takes about n/2 · log2 n comparisons, so 12 for 8 answers where all pairs are 28, and tells the best from the
    worst, but not every neighbour. With an odd number the lowest player that played as often as the others sits out.
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
    """The points and the number of matches of each player."""
    points, counts = [0.0] * players, [0] * players
    for match in played:
        for player, score in ((match.first, match.score), (match.second, 1.0 - match.score)):
            points[player] += score
            counts[player] += 1
    return points, counts


@dataclass(frozen=True)
class JudgeReward:
    """The rating that a model gives each answer, in [lowest, highest].

    The parts of `template` are question, guidelines, conversation, response, lowest and highest, and the own columns of
    the prompt's row by their names ({solution} …). Equal requests are sent once. A reply without a rating is asked for
    once more, then refused.
    """

    name: ClassVar[str] = "judge"
    endpoint: PaidEndpoint
    question: str = "How good is it?"
    guidelines: str = ""
    template: str = RATING_TEMPLATE
    lowest: float = 1.0
    highest: float = 10.0
    at_once: int = AT_ONCE

    def __post_init__(self) -> None:
        require_parts(self.template, "conversation", "response")
        if not self.lowest < self.highest:
            raise TutelageError(f"A rating from {self.lowest:g} to {self.highest:g} says nothing.")

    @property
    def usage(self) -> Usage:
        """What the judge was asked until now."""
        return self.endpoint.usage

    def __call__(self, completions: Sequence[Completion]) -> list[float]:
        """Raises TutelageError where the endpoint does not answer or gives no rating."""
        read = partial(read_rating, lowest=self.lowest, highest=self.highest)
        expected = f"rating from {self.lowest:g} to {self.highest:g} such as [[{self.highest:g}]]"
        requests = [self._request(one) for one in completions]
        distinct = list(dict.fromkeys(requests))
        with ThreadPoolExecutor(self.at_once) as pool:
            ratings = pool.map(lambda request: self.endpoint.ask(request, read, expected), distinct)
            by_request = dict(zip(distinct, ratings, strict=True))
        return [by_request[request] for request in requests]

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


@dataclass(frozen=True)
class PairwiseJudgeReward:
    """A judge of pairs as a reward: the share of its comparisons that an answer wins against others to its prompt.

    The completions of a prompt are adjacent, at least two of them. `schedule` says which are compared: all with all, or
    a tournament (`swiss`). Each comparison is made in both orders; one that turns with the order is a draw, and a draw
    is half a win. Equal completions are one player and share their score. So scores are relative: where all are
    compared with all, their mean over the different completions of a prompt is 1/2.
    """

    name: ClassVar[str] = "judge"
    compare: Compare
    schedule: Schedule = round_robin
    at_once: int = AT_ONCE

    @property
    def usage(self) -> Usage:
        """What the judge was asked until now."""
        endpoint = getattr(self.compare, "endpoint", None)
        return endpoint.usage if isinstance(endpoint, PaidEndpoint) else Usage()

    def __call__(self, completions: Sequence[Completion]) -> list[float]:
        """Raises TutelageError where an answer stands alone, and where the judge fails."""
        groups = [list(group) for _, group in groupby(completions, lambda one: one.prompt_id)]
        if any(len(group) < 2 for group in groups):
            raise TutelageError(
                "A judge that compares answers needs two or more to each prompt, one after the other; for single "
                "answers use one that rates them."
            )
        with ThreadPoolExecutor(self.at_once) as pool:
            scored = self._tournaments(groups, pool)
        return [score for scores in scored for score in scores]

    def opinions(self, messages: Messages, first: str, second: str) -> BothOrders:
        """What the judge says about two answers to a conversation in both orders."""
        return in_both_orders(self.compare, messages, first, second)

    def _tournaments(self, groups: Sequence[list[Completion]], pool: ThreadPoolExecutor) -> list[list[float]]:
        """The scores of each group. The rounds of all groups are played side by side."""
        players = [list({one.answer: one for one in reversed(group)}.values())[::-1] for group in groups]
        played: list[list[PairResult]] = [[] for _ in groups]
        while True:
            rounds = [self.schedule(len(each), past) for each, past in zip(players, played, strict=True)]
            pairs = [(group, pair) for group, round_ in enumerate(rounds) for pair in round_]
            if not pairs:
                return [
                    _shares(group, each, past)
                    for group, each, past in zip(groups, players, played, strict=True)
                ]
            results = pool.map(lambda item: self._result(players[item[0]], *item[1]), pairs)
            for (group, _), result in zip(pairs, results, strict=True):
                played[group].append(result)

    def _result(self, players: Sequence[Completion], first: int, second: int) -> PairResult:
        one, other = players[first], players[second]
        preferred = self.opinions(one.messages, one.answer, other.answer).settled.preferred
        return PairResult(first, second, {"first": 1.0, "second": 0.0, "tie": 0.5}[preferred])


def _shares(
    group: Sequence[Completion], players: Sequence[Completion], played: Sequence[PairResult]
) -> list[float]:
    """The share of its matches that each answer of a group won; 1/2 where there is no other."""
    share = {
        player.answer: won / count if count else 0.5
        for player, won, count in zip(players, *_points(len(players), played), strict=True)
    }
    return [share[one.answer] for one in group]


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
