"""Page on KL estimators."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import stdev

from tutelage.base.nouns import counted
from tutelage.base.number_text import number, percent
from tutelage.demo.lab.experiment import CellResult, LabFigure, LabPage, LabTable, measured_series
from tutelage.demo.lab.measurements import (
    Z95,
    Floats,
    Measurement,
    cosine,
    inner,
    jackknife,
    load_sketches,
    mean,
    products,
    relative_noise,
)
from tutelage.demo.lab.policy_training import LabPlan
from tutelage.report.figures import Axis, Rule, Series
from tutelage.report.figures.plots import averaged

COLOURS = {"k1": 0, "k2": 1, "k3": 2, "abs": 3, "exact": 4, "none": 5}
KINDS = ("k1", "k2", "k3", "abs")
TRUTH = "truth"


@dataclass(frozen=True)
class KLEstimate:
    """One estimator at one policy, in units of the exact KL there: its mean, and the standard deviation per
    completion. `kl` is the exact KL per completion."""

    kind: str
    kl: float
    mean: Measurement
    spread: float


@dataclass(frozen=True)
class PenaltyGradient:
    """Gradient by one estimator in one place: its cosine with the true gradient, its length relative to the true
    one, and its noise relative to the true one's minimum."""

    name: str
    angle: Measurement
    length: Measurement
    noise: Measurement

    @property
    def directed(self) -> bool:
        """Whether the mean gradient exceeds its noise, so that it has an angle."""
        return isfinite(self.angle.value) and isfinite(self.angle.error)


def kl_estimates(cell: CellResult) -> list[KLEstimate]:
    """Estimates at one policy. The error of a mean is that of its difference from the exact KL on the same
    completions."""
    exact = cell.column("exact")
    whole = sum(exact) / len(exact)
    estimates = []
    for kind in KINDS:
        values = cell.column(kind)
        apart = mean([value - true for value, true in zip(values, exact, strict=True)])
        estimates.append(
            KLEstimate(
                kind, whole, Measurement(1 + apart.value / whole, apart.error / abs(whole)), stdev(values) / abs(whole)
            )
        )
    return estimates


def penalty_gradients(sketches: Mapping[str, Floats]) -> list[PenaltyGradient]:
    """Every gradient of a penalty compared with the true one, from sketches. [K, width] each"""
    true = sketches[TRUTH]

    def length(a: Floats, b: Floats) -> float:
        return inner(products(a, b)) / inner(products(b, b))

    return [
        PenaltyGradient(
            name, jackknife(cosine, rows, true), jackknife(length, rows, true), jackknife(relative_noise, rows, true)
        )
        for name, rows in sketches.items()
        if name != TRUTH
    ]


def page(done: Sequence[CellResult], coef: float, plan: LabPlan, command: str) -> LabPage:
    """Page of the experiment on estimators."""
    measured = [kl_estimates(cell) for cell in done if cell.name.startswith("at-")]
    (steep,) = [cell for cell in done if cell.name == "gradients"]
    gradients = penalty_gradients(load_sketches([steep.place]))
    runs = [cell for cell in done if "gold" in cell.figures]
    return LabPage(
        title="Which estimator of the KL, and where?",
        question=(
            "k1, k2, k3 and abs against the exact KL: as numbers to report, as penalties in the reward, and as terms "
            "of the loss."
        ),
        command=command,
        findings=tuple(findings(measured, gradients, runs)),
        figures=(*_numbers(measured), _angles(gradients), *_training(runs, plan)),
        tables=(_estimates(measured), _gradient_table(gradients), _runs(runs)),
        method=_method(coef, plan, len(done[0].steps)),
        numbers={
            "gradients": {
                gradient.name: {"cosine": gradient.angle.value, "noise": gradient.noise.value} for gradient in gradients
            },
            "runs": {cell.name: dict(cell.figures) for cell in runs},
        },
    )


def _method(coef: float, plan: LabPlan, answers: int) -> tuple[str, ...]:
    numbers = (
        f"Numbers: {counted(answers, 'answer')} each of policies on the line from the SFT model to the "
        "demonstration's policy and beyond, against the exact KL of every state they visit. Gradients: with respect "
        "to all weights, at the demonstration's policy, of the mean over answers of the penalty; the true one "
        "follows the exact KL of each state and, by the score function, that of the states to come. Intervals: 95%, "
        "by the jackknife over batches."
    )
    training = (
        f"Training: RLOO, {counted(plan.steps, 'step')} of {counted(plan.answers, 'answer')}, every run with the same "
        f"coefficient of {coef:g} per nat, once on every token's reward and once in the loss; one seed."
    )
    return numbers, training


def findings(
    measured: Sequence[Sequence[KLEstimate]], gradients: Sequence[PenaltyGradient], runs: Sequence[CellResult]
) -> list[str]:
    """Findings as sentences."""
    by_name = {gradient.name: gradient for gradient in gradients}
    return [_as_numbers(measured), _as_gradients(by_name), _zero(by_name["k1 in the loss"]), *_as_penalties(runs)]


def _as_numbers(measured: Sequence[Sequence[KLEstimate]]) -> str:
    near, far = measured[0], measured[-1]

    def ratios(estimates: Sequence[KLEstimate]) -> str:
        return ", ".join(f"{one.kind} {one.mean.value:.2f} ± {Z95 * one.mean.error:.2f}" for one in estimates)

    quiet_near, quiet_far = (
        min(estimates, key=lambda one: one.spread) for estimates in (near, [o for o in far if o.kind in ("k1", "k3")])
    )
    noisy = next(one for one in far if one.kind != quiet_far.kind and one.kind in ("k1", "k3"))
    return (
        f"As numbers, in units of the exact KL: at {number(near[0].kl)} nats {ratios(near)}; at {number(far[0].kl)} "
        f"nats {ratios(far)}. Near the reference {quiet_near.kind} is the quietest; far away, of the two without bias, "
        f"one answer's {quiet_far.kind} spreads by {quiet_far.spread:.2f} and {noisy.kind} by {noisy.spread:.2f}."
    )


def _as_gradients(by_name: Mapping[str, PenaltyGradient]) -> str:
    order = sorted(
        (gradient for gradient in by_name.values() if gradient.directed), key=lambda gradient: -gradient.angle.value
    )
    estimates = ", ".join(f"{gradient.name} {gradient.angle.written}" for gradient in order)
    lost = [gradient.name for gradient in by_name.values() if not gradient.directed]
    rest = f" Lost in their noise: {', '.join(lost)}." if lost else ""
    return f"As gradients, the cosines with the true one: {estimates or 'none can be determined'}.{rest}"


def _zero(gradient: PenaltyGradient) -> str:
    reach = Z95 * gradient.length.error
    if abs(gradient.length.value) <= reach:
        return (
            f"k1 in the loss pulls nowhere: along the true gradient it is {percent(gradient.length.value)} ± "
            f"{percent(reach)} of its length, with {number(gradient.noise.value, 2)} times its noise."
        )
    length = f"{percent(gradient.length.value)} ± {percent(reach)}"
    return f"k1 in the loss is {length} of the true gradient's length along it."


def _as_penalties(runs: Sequence[CellResult]) -> list[str]:
    by_name = {cell.name: cell for cell in runs}
    free = float(by_name["none"].figures["kl"])
    held = {name: float(cell.figures["kl"]) for name, cell in by_name.items() if name != "none"}
    estimates = ", ".join(
        f"{by_name[name].title} {number(kl, 2)}" for name, kl in sorted(held.items(), key=lambda pair: pair[1])
    )
    loose = [by_name[name].title for name, kl in held.items() if kl > 0.8 * free]
    sentences = [
        f"In training without a penalty the policy went {number(free)} nats; with one coefficient for all: {estimates}."
    ]
    if loose:
        sentences.append(f"As good as no penalty (above 80% of the free distance): {', '.join(loose)}.")
    return sentences


# Figures -------------------------------------------------------------------------------------------------------------


def _numbers(measured: Sequence[Sequence[KLEstimate]]) -> list[LabFigure]:
    x = tuple(estimates[0].kl for estimates in measured)
    means, spreads = [], []
    for i, kind in enumerate(KINDS):
        estimates = [at[i] for at in measured]
        means.append(measured_series(x, [one.mean for one in estimates], kind, colour=COLOURS[kind]))
        spreads.append(Series(x, tuple(one.spread for one in estimates), kind, colour=COLOURS[kind]))
    axis = Axis("exact KL, nats per answer", log=True)
    return [
        LabFigure.over_axes(
            "bias", "Bias", means, (axis, Axis("mean estimate over the exact KL")),
            "k1 and k3 have the right mean at every distance; k2 only near the reference, abs never.",
            rules=(Rule(1.0, "exact"),),
        ),
        LabFigure.over_axes(
            "spread", "Noise", spreads,
            (axis, Axis("standard deviation of one answer's estimate, over the KL", log=True)),
            "k3 is the quietest near the reference, where k1 is mostly noise.",
        ),
    ]  # fmt: skip


def _angles(gradients: Sequence[PenaltyGradient]) -> LabFigure:
    dots = [
        (name.replace(" in the ", ", "), angle, angle.written, 0 if name.endswith("reward") else 1)
        for name, angle in ((gradient.name, gradient.angle) for gradient in gradients if gradient.directed)
    ]
    caption = (
        "Cosine of the mean gradient with that of the exact KL of answers. Blue: on the tokens' rewards; orange: in "
        "the loss. An estimator with no mean direction is left out."
    )
    axis, rules = Axis(low=-0.2, high=1.0), (Rule(0.0), Rule(1.0))
    return LabFigure.dots("angles", "Direction of the gradient", dots, axis, caption, rules=rules)


def _training(runs: Sequence[CellResult], plan: LabPlan) -> list[LabFigure]:
    window = max(3, plan.steps // 8 | 1)
    figures = []
    for where in ("reward", "loss"):
        series = []
        for cell in runs:
            kind, _, place = cell.name.partition("-")
            if place in (where, ""):
                error = [value / plan.answers**0.5 for value in cell.column("kl/std")]
                steps, values = cell.column("step"), cell.column("kl/reference")
                label = kind if place else "no penalty"
                series.append(averaged(steps, values, error, label, COLOURS[kind], window=window))
        axes = Axis("step", whole=True), Axis("KL to the reference, nats per answer")
        title = f"Training with the penalty in the {where}"
        caption = "The same coefficient for all; bands are 95% intervals."
        figures.append(LabFigure.over_axes(f"training-{where}", title, series, axes, caption))
    return figures


def _estimates(measured: Sequence[Sequence[KLEstimate]]) -> LabTable:
    rows = [
        (f"{number(estimates[0].kl)} nats", *(f"{one.mean.written} ({one.spread:.2f})" for one in estimates))
        for estimates in measured
    ]
    note = "The mean of the estimate over the exact KL, with its 95% interval, and in brackets one answer's spread."
    return LabTable("As numbers", ("exact KL", *KINDS), tuple(rows), note)


def _gradient_table(gradients: Sequence[PenaltyGradient]) -> LabTable:
    rows = [
        (
            gradient.name,
            gradient.angle.written if gradient.directed else "none",
            gradient.length.written,
            f"{number(gradient.noise.value, 2)} ± {number(Z95 * gradient.noise.error, 2)}",
        )
        for gradient in gradients
    ]
    columns = ("", "cosine", "length along the true one", "noise, of the true one's")
    return LabTable("As gradients", columns, tuple(rows))


def _runs(runs: Sequence[CellResult]) -> LabTable:
    named = ((cell, cell.title.replace("none", "no penalty")) for cell in runs)
    return LabTable.of_policies("In training: the final policies on held-out prompts", named)
