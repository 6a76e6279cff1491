"""A language model behind an endpoint as a reward: by ratings, or by comparisons of the answers to a prompt."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import ClassVar

from tutelage.base.errors import TutelageError
from tutelage.data.chat_endpoint import AT_ONCE, PaidEndpoint, Usage
from tutelage.data.llm_judge import (
    RATING_TEMPLATE,
    BothOrders,
    Compare,
    conversation_text,
    fill,
    in_both_orders,
    read_rating,
    require_parts,
)
from tutelage.data.records import Messages
from tutelage.rewards.matches import Match, Schedule, round_robin
from tutelage.rewards.reward import Completion


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
        read = partial(read_rating, lowest=self.lowest, highest=self.highest)
        expected = f"rating from {self.lowest:g} to {self.highest:g} such as [[{self.highest:g}]]"
        return self.endpoint.ask(request, read, expected)


@dataclass(frozen=True)
class PairwiseJudgeReward:
    """A judge of pairs as a reward: the share of its comparisons that an answer wins against others to its prompt.

    Answers to one prompt stand side by side, at least two of them. `schedule` says which are compared: all with all, or
    a tournament (`rewards.matches`). Each comparison is made in both orders; one that turns with the order is a draw,
    and a draw is half a win. Equal answers are one player and share their score. So scores are relative: where all are
    compared with all, their mean over the different answers to a prompt is 1/2.
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
        players = [_different(group) for group in groups]
        played: list[list[Match]] = [[] for _ in groups]
        while True:
            drawn = [self.schedule(len(each), past) for each, past in zip(players, played, strict=True)]
            pairs = [(group, pair) for group, round_ in enumerate(drawn) for pair in round_]
            if not pairs:
                return [
                    _shares(group, each, past)
                    for group, each, past in zip(groups, players, played, strict=True)
                ]
            won = pool.map(lambda item: self._won(players[item[0]], *item[1]), pairs)
            for (group, (first, second)), score in zip(pairs, won, strict=True):
                played[group].append(Match(first, second, score))

    def _won(self, players: Sequence[Completion], first: int, second: int) -> float:
        """1 where the first of two players wins, 0 where the second does, 1/2 for a draw."""
        one, other = players[first], players[second]
        preferred = self.opinions(one.messages, one.answer, other.answer).settled.preferred
        return {"first": 1.0, "second": 0.0, "tie": 0.5}[preferred]


def _different(group: Sequence[Completion]) -> list[Completion]:
    """The different answers of a group, each once."""
    return list({one.answer: one for one in reversed(group)}.values())[::-1]


def _shares(
    group: Sequence[Completion], players: Sequence[Completion], played: Sequence[Match]
) -> list[float]:
    """The share of its matches that each answer of a group won; 1/2 where there is no other."""
    points, matches = [0.0] * len(players), [0] * len(players)
    for match in played:
        for player, score in ((match.first, match.score), (match.second, 1.0 - match.score)):
            points[player] += score
            matches[player] += 1
    share = {
        player.answer: won / count if count else 0.5
        for player, won, count in zip(players, points, matches, strict=True)
    }
    return [share[one.answer] for one in group]
