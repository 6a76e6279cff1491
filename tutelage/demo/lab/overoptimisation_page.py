"""Page on over-optimisation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt

from tutelage.base.nouns import counted
from tutelage.base.number_text import number, percent
from tutelage.demo.lab.experiment import CellResult, LabFigure, LabPage, LabTable, followed
from tutelage.demo.lab.measurements import Measurement
from tutelage.demo.lab.policy_training import LabPlan
from tutelage.report.diagnoses import smooth
from tutelage.report.figures import Axis, Names, Rule, Series
from tutelage.stats.scaling_laws import Form, ScalingLaw, fit_law

COLOURS = (4, 1, 2, 0, 3, 5)
FITTED = 0.5
"""√nats from which the curves are fitted: the slope of that of RL is infinite at 0."""
REMEDIED = "PPO with remedies: final policies on held-out prompts"
REMEDIES = {"mean": "mean", "worst": "worst case", "lower": "mean − λ·variance"}


@dataclass(frozen=True)
class GoldPath:
    """Proxy and gold over √KL on the path of one optimiser. `low` and `high` are the interval of gold, if known."""

    title: str
    form: Form
    distance: tuple[float, ...]
    proxy: tuple[float, ...]
    gold: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def fitted(self) -> ScalingLaw | None:
        """Curve of Gao et al. through gold."""
        points = [(d, g) for d, g in zip(self.distance, self.gold, strict=True) if d >= FITTED]
        return fit_law(self.form, [d for d, _ in points], [g for _, g in points])

    @property
    def top(self) -> tuple[float, float]:
        """Distance at which gold is highest, and that gold."""
        gold, distance = max(zip(self.gold, self.distance, strict=True))
        return distance, gold

    @property
    def fell(self) -> float:
        """Fall of gold from its highest value to its last."""
        return self.top[1] - self.gold[-1]


def best_of_n_path(cell: CellResult, proxy: str, title: str) -> GoldPath:
    """Path of best-of-n by one proxy, over its exact KL."""
    rows = [row for row in cell.steps if row["proxy"] == proxy]
    worth = [Measurement(float(row["gold"]), float(row["gold_error"])) for row in rows]
    return GoldPath(
        title,
        "best_of_n",
        tuple(sqrt(float(row["kl"])) for row in rows),
        tuple(float(row["score"]) for row in rows),
        tuple(one.value for one in worth),
        tuple(one.low for one in worth),
        tuple(one.high for one in worth),
    )


def rl_path(cell: CellResult) -> GoldPath:
    """Smoothed path of a PPO run over its measured KL. It starts at the SFT model, whose scores are 0."""
    kl, score, gold = (smooth(cell.column(name)) for name in ("kl/reference", "score/mean", "gold/mean"))
    return GoldPath(cell.title, "rl", tuple(sqrt(max(value, 0.0)) for value in kl), tuple(score), tuple(gold))


def page(done: Sequence[CellResult], pairs: Sequence[int], remedied: int, plan: LabPlan, command: str) -> LabPage:
    """Page of the experiment on over-optimisation."""
    by_name = {cell.name: cell for cell in done}
    sampled = by_name["best-of-n"]
    chosen = [best_of_n_path(sampled, f"judge-{count}", counted(count, "pair")) for count in pairs]
    climbed = [rl_path(by_name[f"ppo-{count}"]) for count in pairs]
    cautious = [best_of_n_path(sampled, how, name) for how, name in REMEDIES.items()]
    alone = chosen[list(pairs).index(remedied)]
    prices = [cell for cell in done if cell.name.startswith("ppo-beta-")]
    single = by_name[f"ppo-{remedied}"]
    remedies = [(single, "one reward model"), *((by_name[f"ppo-{how}"], name) for how, name in REMEDIES.items())]
    remedies += [(cell, f"one, {cell.title}") for cell in prices]
    accuracies = {count: by_name[f"judge-{count}"].figures for count in pairs}
    return LabPage(
        title="How far can a reward model be trusted?",
        question=(
            "Reward models from few and from many pairs, climbed by choosing the best of n answers and by PPO: how far "
            "do score and gold go together, and what keeps them together longer?"
        ),
        command=command,
        findings=tuple(findings(accuracies, chosen, climbed, remedies)),
        figures=(
            _paths(
                "best-of-n", "Best-of-n", chosen, "Dashed: the score that chose; whiskers: 95% intervals over prompts."
            ),
            _paths("ppo", "PPO", climbed, "Dashed: the score that was climbed. Running averages over the steps."),
            _fits("best-of-n-fits", "Best-of-n: gold and d (α − β d)", chosen),
            _fits("ppo-fits", "PPO: gold and d (α − β log d)", climbed),
            _gold_only(
                "remedies-best-of-n", f"Best-of-n with ensembles, {counted(remedied, 'pair')}", [alone, *cautious]
            ),
            _gold_only(
                "remedies-ppo",
                f"PPO with remedies, {counted(remedied, 'pair')}",
                [replace(rl_path(cell), title=name) for cell, name in remedies],
            ),
        ),
        tables=(_accuracies(accuracies), _table(chosen, climbed), LabTable.of_policies(REMEDIED, remedies)),
        method=_method(plan),
        strands=tuple(followed(by_name[f"ppo-{remedied}"], f"PPO, {counted(remedied, 'pair')}")),
        numbers={cell.name: dict(cell.figures) for cell in done},
    )


def _method(plan: LabPlan) -> tuple[str, ...]:
    judged = (
        "Pairs are of the SFT model's answers, each judged once by an attentive simulated rater whose noise makes two "
        "of them agree on 71% of the pairs; a larger set contains the smaller ones. Scores and gold have mean 0 and "
        "standard deviation 1 over the SFT model's answers to held-out prompts."
    )
    climbed = (
        "Best-of-n is estimated without bias from all samples of a prompt (Nakano et al. 2021), at the exact KL of "
        f"log n − (n − 1)/n. PPO: {counted(plan.steps, 'step')} of {counted(plan.answers, 'answer')} at a learning "
        f"rate of {plan.lr:g} ({plan.critic_lr:g} for the critic), without a price on the KL unless it is named; one "
        f"seed. The curves of Gao et al. (2022) are fitted by least squares from √KL = {FITTED:g} on. Distances of "
        "the two methods are not comparable."
    )
    return judged, climbed


def findings(
    accuracies: Mapping[int, Mapping[str, object]],
    chosen: Sequence[GoldPath],
    climbed: Sequence[GoldPath],
    remedies: Sequence[tuple[CellResult, str]],
) -> list[str]:
    """Findings as sentences."""
    accuracy = ", ".join(
        f"{counted(count, 'pair')} {percent(float(str(one['accuracy'])), 1)}" for count, one in accuracies.items()
    )
    ends = ", ".join(f"{path.title} {path.gold[-1]:+.2f}" for path in chosen)
    return [
        f"Share of single held-out votes predicted: {accuracy}.",
        f"Best-of-n at its largest n changes gold by (in standard deviations) {ends}. {_turns(chosen)}",
        f"PPO: {'; '.join(_path(path) for path in climbed)}.",
        _cure(remedies),
    ]


def _turns(paths: Sequence[GoldPath]) -> str:
    turned = [path.title for path in paths if path.fell > 0 and path.high and path.high[-1] < path.top[1]]
    if turned:
        return f"Gold falls back for {', '.join(turned)}: beyond some n a better score is a worse answer."
    return "No curve turns over for certain: in reach of best-of-n more score is not yet less gold."


def _path(path: GoldPath) -> str:
    distance, gold = path.top
    return (
        f"from {path.title} gold rose to {gold:+.2f} at √KL {number(distance, 2)} and ended at {path.gold[-1]:+.2f} at "
        f"{number(path.distance[-1], 2)}, with the score at {path.proxy[-1]:+.2f}"
    ).replace("-", "\N{MINUS SIGN}")


def _cure(remedies: Sequence[tuple[CellResult, str]]) -> str:
    ends = [(cell.measured("gold"), title) for cell, title in remedies]
    alone, best = ends[0][0], max(ends, key=lambda pair: pair[0].value)
    final = ", ".join(f"{title} {gold.written}" for gold, title in ends)
    sure = "more than one reward model alone" if (best[0] - alone).low > 0 else "not more than one alone for certain"
    return f"Final gold on held-out prompts by remedy: {final}. Most has {best[1]}, {sure}."


# Figures -------------------------------------------------------------------------------------------------------------

AXES = Axis("√KL from the SFT model, √nats", low=0.0), Axis("gain over SFT, in its standard deviations")
over_distance = partial(LabFigure.over_axes, axes=AXES, rules=(Rule(0.0, "SFT"),), height=310)
"""Figure of series over the distance from the SFT model."""


def _paths(name: str, title: str, paths: Sequence[GoldPath], caption: str) -> LabFigure:
    """Gold as lines, proxies dashed."""
    series = []
    for path, colour in zip(paths, COLOURS, strict=False):
        series.append(Series(path.distance, path.proxy, colour=colour, style="dashed"))
        series.append(Series(path.distance, path.gold, path.title, colour=colour, low=path.low, high=path.high))
    names: Names = "ends" if name == "best-of-n" else "points"
    return over_distance(name, f"{title}: score and gold", series, caption=f"Solid: gold. {caption}", names=names)


def _fits(name: str, title: str, paths: Sequence[GoldPath]) -> LabFigure:
    """Gold as points, the fitted curve dashed."""
    series, fits = [], []
    for path, colour in zip(paths, COLOURS, strict=False):
        series.append(Series(path.distance, path.gold, path.title, mark="points", colour=colour, style="faint"))
        curve = path.fitted()
        if curve is not None:
            ends = [d for d in path.distance if d >= FITTED]
            x = tuple(FITTED + (max(ends) - FITTED) * k / 60 for k in range(61))
            series.append(Series(x, tuple(curve(d) for d in x), colour=colour, style="dashed"))
            fits.append(f"{path.title}: α {number(curve.alpha)}, β {number(curve.beta)}, R² {curve.r2:.2f}")
    return over_distance(name, title, series, caption="; ".join(fits) + ".", names="points")


def _gold_only(name: str, title: str, paths: Sequence[GoldPath]) -> LabFigure:
    series = tuple(
        Series(path.distance, path.gold, path.title, colour=colour)
        for path, colour in zip(paths, (1, 0, 2, 3, 4, 5), strict=False)
    )
    caption = "Gold along the way; every line climbs a score of its own."
    return over_distance(name, title, series, caption=caption, names="points")


def _accuracies(accuracies: Mapping[int, Mapping[str, object]]) -> LabTable:
    rows = tuple(
        (f"{count:,}", *(percent(float(str(one[key])), 1) for key in ("accuracy", "accuracy/low", "accuracy/high")))
        for count, one in accuracies.items()
    )
    return LabTable("Reward models on single held-out votes", ("pairs", "predicted", "from", "to"), rows)


def _table(chosen: Sequence[GoldPath], climbed: Sequence[GoldPath]) -> LabTable:
    rows = []
    for method, paths in (("best-of-n", chosen), ("PPO", climbed)):
        for path in paths:
            curve = path.fitted()
            fitted = (number(curve.alpha), number(curve.beta), f"{curve.r2:.2f}") if curve else ("", "", "")
            peak = number(curve.peak) if curve and curve.peak is not None else "none"
            ends = (f"{path.top[1]:+.2f}", f"{path.gold[-1]:+.2f}", f"{path.proxy[-1]:+.2f}")
            rows.append((f"{method}, {path.title}", *ends, *fitted, peak))
    columns = ("", "highest gold", "last gold", "last score", "α", "β", "R²", "peak of the fit, √nats")
    return LabTable("Along the way", columns, tuple(rows))
