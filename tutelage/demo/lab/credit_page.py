"""Page on the credit of turns."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import acos, degrees
from statistics import median

from tutelage.base.nouns import counted
from tutelage.base.number_text import number
from tutelage.demo.lab.experiment import CellResult, LabFigure, LabPage, LabTable
from tutelage.report.figures import Axis, BarChart, Series, ValueBar

TRUTH = "exact gradient"
CLOSE = 0.01
"""Largest angle, in degrees, of an estimator that counts as exact."""


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
    found = max(abs(float(row["gradient"])) for row in decision.steps if row["estimator"] == "MT-GRPO")
    truth = max(abs(float(row["gradient"])) for row in decision.steps if row["estimator"] == TRUTH)
    change = 100 * (turn.noise / whole.noise - 1)
    bias = (
        f"Furthest from the exact gradient: {biased.name}, {number(biased.angle, 2)}° in the median game and "
        f"{number(biased.worst, 2)}° in the worst."
    )
    one_decision = (
        f"In the game of one decision, MT-GRPO has an expected gradient of at most {number(found, 2)}, whatever the "
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
    shown = {TRUTH: 0, "turn RLOO": 2, "turns as samples": 3, "MT-GRPO": 1}
    series = []
    for name, colour in shown.items():
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
