"""Credit of turns: every turn-level estimator against the exact policy gradient, by enumeration.

A game has at most two turns of three actions, and action 0 in turn 1 ends the episode: seven episodes. The policy is a
table of logits, and a reward belongs to every turn of every episode. An expectation over groups of G episodes is a sum
over 7^G groups, so bias and noise are exact; nothing is trained.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from math import acos, degrees
from pathlib import Path
from statistics import median
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tutelage.base.nouns import counted
from tutelage.base.number_text import number
from tutelage.core.advantages import Advantage, Gae
from tutelage.core.groups import Group
from tutelage.core.pieces import Context
from tutelage.core.returns import returns_to_go
from tutelage.core.turns import TurnGroup, TurnRewardGroup, TurnSamples
from tutelage.data.record_files import write_jsonl
from tutelage.demo.lab.experiment import (
    Cell,
    CellResult,
    Experiment,
    ExperimentSetting,
    LabFigure,
    LabPage,
    LabTable,
    Seed,
)
from tutelage.report.figures import Axis, BarChart, Series, ValueBar

EPISODES = torch.tensor([[0, 0], [1, 0], [1, 1], [1, 2], [2, 0], [2, 1], [2, 2]])
"""Actions of every episode; [0, 0] has one turn."""
MASK = torch.stack((torch.ones(7, dtype=torch.bool), EPISODES[:, 0] != 0), 1)
TURN = torch.arange(2).expand(7, 2)
STATES = torch.stack((torch.zeros(7, dtype=torch.long), EPISODES[:, 0]), 1)
"""State before each action: the start, or the first action."""

ESTIMATORS: Mapping[str, Advantage] = {
    "RLOO": Group(leave_one_out=True),
    "turn RLOO": TurnGroup(),
    "GRPO": Group(standardise=True),
    "MT-GRPO": TurnRewardGroup(),
    "turns as samples": TurnSamples(),
    "GAE 1, V = 0": Gae(lam=1.0, per="turn", whiten=False),
    "GAE 0.5, V = 0": Gae(lam=0.5, per="turn", whiten=False),
    "GAE 0.5, exact V": Gae(lam=0.5, per="turn", whiten=False),
}
EXACT = "exact V"
"""End of the names of estimators whose critic is exact; otherwise V = 0."""
TRUTH = "exact gradient"
CLOSE = 0.01
"""Largest angle, in degrees, of an estimator that counts as exact."""


@dataclass(frozen=True, kw_only=True)
class CreditSize:
    """Numbers of random games and of episodes in a group."""

    games: int = 100
    group: int = 4
    rewards: tuple[float, ...] = tuple(round(-1 + 0.25 * step, 2) for step in range(9))
    """Rewards of the second turn in the game of going on."""


@dataclass(frozen=True)
class Game:
    """A policy, and the reward of every turn of every episode."""

    logits: Float[Tensor, "3 3"]
    reward: Float[Tensor, "7 2"]

    @property
    def probability(self) -> Float[Tensor, " 7"]:
        """Probability of every episode."""
        logp = self.logits.log_softmax(-1)[STATES, EPISODES]
        return torch.where(MASK, logp, 0.0).sum(1).exp()

    @property
    def score_functions(self) -> Float[Tensor, "7 2 9"]:
        """∇ log π of every action of every episode, with respect to the nine logits."""
        chances = self.logits.softmax(-1)
        gradients = torch.zeros(7, 2, 3, 3, dtype=chances.dtype)
        rows, turns = torch.arange(7)[:, None].expand(7, 2), TURN
        gradients[rows, turns, STATES] = torch.nn.functional.one_hot(EPISODES, 3) - chances[STATES]
        return (gradients * MASK[..., None, None]).flatten(2)

    @property
    def values(self) -> Float[Tensor, "7 2"]:
        """Expected return from the state before each action."""
        returns = returns_to_go(self.reward, MASK)
        same = (STATES[:, None, :] == STATES[None]) & MASK[:, None]  # episode × episode × turn
        weight = self.probability[None, :, None] * same
        return (weight * returns[None]).sum(1) / weight.sum(1)

    @property
    def gradient(self) -> Float[Tensor, " 9"]:
        """Exact gradient of the expected return."""
        return torch.einsum("e,e,etd->d", self.probability, self.reward.sum(1), self.score_functions)


def random_game(seed: int) -> Game:
    """Standard normal logits and rewards; the reward of a turn depends on the actions up to it."""
    generator = torch.Generator().manual_seed(seed)
    logits, reward = (torch.randn(3, 3, generator=generator).double() for _ in range(2))
    return Game(logits, reward[STATES, EPISODES] * MASK)


def going_on(reward: float, chance: float = 0.3) -> Game:
    """The policy goes on to a second turn with this chance; the first turn pays 0.5, the second `reward`."""
    logits = torch.full((3, 3), -40.0).double()
    logits[0, :2] = torch.tensor([1 - chance, chance]).log()
    logits[1:, 0] = 0.0
    return Game(logits, torch.tensor([0.5, reward]).expand(7, 2).double() * MASK)


def moments(game: Game, name: str, group: int) -> tuple[Float[Tensor, " 9"], float]:
    """Mean of a group's gradient, and the trace of its covariance, over all groups of `group` episodes."""
    rows = _groups(group)
    chance = game.probability[rows].prod(1)
    flat = rows.flatten()
    value = game.values if name.endswith(EXACT) else torch.zeros(7, 2, dtype=chance.dtype)
    psi, _ = ESTIMATORS[name](game.reward[flat], MASK[flat], value[flat], group, Context(turn=TURN[flat]))
    gradients = torch.einsum("et,etd->ed", psi, game.score_functions[flat]).reshape(*rows.shape, -1).mean(1)
    mean = chance @ gradients
    return mean, float(chance @ (gradients**2).sum(1) - (mean**2).sum())


@cache
def _groups(size: int) -> Int[Tensor, "N G"]:
    """All groups of episodes, by index."""
    return torch.tensor(list(product(range(7), repeat=size)))


def cells(setting: ExperimentSetting[CreditSize]) -> list[Cell]:
    """Random games, and one decision at several rewards."""
    size, seed = setting.size, setting.seed
    return [
        Cell("random", "random games", (size, Seed(seed)), partial(_random_games, size, seed)),
        Cell("going-on", "one decision", (size,), partial(_one_decision, size)),
    ]


def _random_games(size: CreditSize, seed: int, folder: Path) -> Mapping[str, Any]:
    """Angle and noise of every estimator in every game, one line each."""
    rows: list[dict[str, object]] = []
    for index in range(size.games):
        game = random_game(seed * 100_003 + index)
        truth = game.gradient
        for name in ESTIMATORS:
            mean, noise = moments(game, name, size.group)
            cosine = float(torch.nn.functional.cosine_similarity(mean, truth, dim=0).clamp(-1, 1))
            signal = float((mean**2).sum())
            rows.append({"game": index, "estimator": name, "cosine": cosine, "noise": noise / signal})
    write_jsonl(folder / "metrics.jsonl", rows)
    return {"games": size.games, "group": size.group}


def _one_decision(size: CreditSize, folder: Path) -> Mapping[str, Any]:
    """Expected gradient of the logit of going on, for several rewards of the second turn."""
    rows: list[dict[str, object]] = []
    for reward in size.rewards:
        game = going_on(reward)
        rows.append({"reward": reward, "estimator": TRUTH, "gradient": float(game.gradient[1])})
        for name in ESTIMATORS:
            rows.append({"reward": reward, "estimator": name, "gradient": float(moments(game, name, size.group)[0][1])})
    write_jsonl(folder / "metrics.jsonl", rows)
    return {"chance": 0.3}


@dataclass(frozen=True)
class CreditResult:
    """One estimator over all random games: the median and the largest angle of its mean from the exact gradient, in
    degrees, and the median noise of a group's gradient relative to its squared mean."""

    name: str
    angle: float
    worst: float
    noise: float

    @property
    def is_exact(self) -> bool:
        """Whether the direction is right in every game."""
        return self.worst < CLOSE


def credit_results(random: CellResult) -> list[CreditResult]:
    """Result of every estimator, in the order of its rows."""
    names = dict.fromkeys(str(row["estimator"]) for row in random.steps)
    results = []
    for name in names:
        rows = [row for row in random.steps if row["estimator"] == name]
        # acos loses half of the digits near 1: a cosine within 1e-12 of 1 is an angle below 1e-4 degrees
        angles = [degrees(acos(min(float(row["cosine"]), 1.0))) for row in rows]
        results.append(CreditResult(name, median(angles), max(angles), median(float(row["noise"]) for row in rows)))
    return results


def page(done: Sequence[CellResult], command: str) -> LabPage:
    """Page of the experiment on credit."""
    random, decision = done
    results = credit_results(random)
    return LabPage(
        title="Which turn gets the credit?",
        question=(
            "Every turn-level estimator of Ψ on games small enough to enumerate: does its expected gradient point "
            "where the expected return rises, and how noisy is it?"
        ),
        command=command,
        findings=tuple(findings(results, decision)),
        figures=(_angles(results), _decision(decision)),
        tables=(_table(results),),
        method=_method(random),
        numbers={"estimators": {one.name: {"angle": one.angle, "worst": one.worst} for one in results}},
    )


def findings(results: Sequence[CreditResult], decision: CellResult) -> list[str]:
    """Findings as sentences."""
    exact = [one.name for one in results if one.is_exact]
    biased = max((one for one in results if not one.is_exact), key=lambda one: one.angle)
    by_name = {one.name: one for one in results}
    whole, turn = by_name["RLOO"], by_name["turn RLOO"]
    largest = max(abs(float(row["gradient"])) for row in decision.steps if row["estimator"] == "MT-GRPO")
    truth = max(abs(float(row["gradient"])) for row in decision.steps if row["estimator"] == TRUTH)
    change = 100 * (turn.noise / whole.noise - 1)
    bias = (
        f"Furthest from the exact gradient: {biased.name}, {number(biased.angle, 2)}° in the median game and "
        f"{number(biased.worst, 2)}° in the worst."
    )
    one_decision = (
        f"In the game of one decision, MT-GRPO has an expected gradient of at most {number(largest, 2)}, whatever the "
        f"second turn pays; the exact one reaches {number(truth, 2)}."
    )
    noise = (
        f"Crediting a turn with the return from it on (turn RLOO) changes the noise of RLOO by {number(change, 2)}% in "
        "the median game."
    )
    return [f"Without bias in every game: {'; '.join(exact)}.", bias, one_decision, noise]


def _angles(results: Sequence[CreditResult]) -> LabFigure:
    bars = tuple(ValueBar(one.name, one.angle, _degrees(one.angle), colour=2 if one.is_exact else 0) for one in results)
    chart = BarChart("Angle between the expected and the exact gradient", bars, Axis("degrees, median game", low=0.0))
    return LabFigure.of("angles", chart, "0° is a gradient without bias, up to a positive factor.")


def _degrees(angle: float) -> str:
    return f"{number(angle if angle > CLOSE else 0.0, 2)}°"


def _decision(decision: CellResult) -> LabFigure:
    colours = {TRUTH: 0, "turn RLOO": 2, "turns as samples": 3, "MT-GRPO": 1}
    series = []
    for name, colour in colours.items():
        rows = [row for row in decision.steps if row["estimator"] == name]
        x, y = (tuple(float(row[column]) for row in rows) for column in ("reward", "gradient"))
        series.append(Series(x, y, name, colour=colour, style="dashed" if name == TRUTH else "plain"))
    return LabFigure.over_axes(
        "going-on",
        "One decision: go on to a second turn, or stop",
        series,
        (Axis("reward of the second turn"), Axis("expected gradient of going on")),
        "Above 0 the policy learns to go on, below 0 to stop. The first turn pays 0.5 either way.",
    )


def _table(results: Sequence[CreditResult]) -> LabTable:
    return LabTable(
        "Random games",
        ("estimator", "angle, median", "angle, worst", "noise / signal, median"),
        tuple((one.name, _degrees(one.angle), _degrees(one.worst), number(one.noise, 3)) for one in results),
        "turn RLOO: TurnGroup; MT-GRPO: TurnRewardGroup; turns as samples: TurnSamples; GAE: λ over turns, critic V. "
        "Signal is the squared length of the expected gradient of a group; noise the trace of its covariance.",
    )


def _method(random: CellResult) -> tuple[str, ...]:
    games, group = int(random.figures["games"]), int(random.figures["group"])
    random_games = (
        f"{counted(games, 'random game')} of at most two turns and three actions, with standard normal logits and "
        f"rewards, and all groups of {counted(group, 'episode')}: expectations are sums, without sampling error. The "
        "mean over a group weighs episodes equally, as the reduction sequence_sum does."
    )
    decision = "One decision: the policy goes on with chance 0.3, turn 1 pays 0.5, turn 2 the reward on the axis."
    return random_games, decision


EXPERIMENT = Experiment(size=CreditSize(), cells=cells, page=lambda done, size, command: page(done, command))
