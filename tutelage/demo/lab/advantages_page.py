"""Page on the noise of the policy gradient."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

from tutelage.base.nouns import counted
from tutelage.base.number_text import number, percent
from tutelage.demo.lab.experiment import CellResult, LabFigure, LabPage, LabTable
from tutelage.demo.lab.measurements import (
    Z95,
    Floats,
    Measurement,
    bias,
    cosine,
    inner,
    jackknife,
    load_sketches,
    noise,
    products,
    relative_noise,
)
from tutelage.report.figures import Axis, Rule, Series

COLOURS = {"": 0, "trained": 2, "fresh": 4}


@dataclass(frozen=True)
class PsiResult:
    """Measurements of one Ψ. `noise` in units of the plain estimate's, `need` the completions at which noise and
    signal are equal, `bias` as a fraction of the signal's length, `angle` the cosine with the true direction."""

    name: str
    critic: str
    noise: Measurement
    need: Measurement
    bias: Measurement
    angle: Measurement


def results(sketches: Mapping[str, Floats], plain: str, true: str, answers: int) -> list[PsiResult]:
    """Result of every Ψ, from sketches of its gradients on the same batches. [K, width] each"""
    return [_result(name, rows, sketches[plain], sketches[true], answers) for name, rows in sketches.items()]


def _result(name: str, rows: Floats, plain: Floats, true: Floats, answers: int) -> PsiResult:
    title, _, critic = name.partition("/")

    def need(a: Floats, b: Floats) -> float:
        return answers * noise(products(a, a)) / max(inner(products(b, b)), 1e-12)

    def off(a: Floats, b: Floats) -> float:
        return bias(a, b) / max(inner(products(b, b)), 1e-12)

    return PsiResult(
        name=title,
        critic=critic,
        noise=jackknife(relative_noise, rows, plain),
        need=jackknife(need, rows, true),
        bias=jackknife(off, rows, true),
        angle=jackknife(cosine, rows, true),
    )


def page(done: Sequence[CellResult], command: str, *, plain: str, true: str) -> LabPage:
    """Page of the experiment on advantages, from the critic's cell and those with sketches."""
    critic, parts = done[0], done[1:]
    answers = int(parts[0].figures["answers"])
    sketches = load_sketches([part.place for part in parts])
    all_results = results(sketches, plain, true, answers)
    numbers = {
        f"{one.name}/{one.critic}".rstrip("/"): {
            "noise": one.noise.value,
            "noise_error": one.noise.error,
            "need": one.need.value,
            "bias": share(one.bias).value,
            "cosine": one.angle.value,
        }
        for one in all_results
    }
    return LabPage(
        title="How noisy is the policy gradient?",
        question=(
            "Every estimator of Ψ on the same answers of the same policy: how much of a gradient is signal, how much "
            "is noise, and what does an estimator that trusts a critic pay for being quieter?"
        ),
        command=command,
        findings=tuple(findings(all_results, critic)),
        figures=(_free(all_results), *(_lambdas(all_results, name, critic) for name in ("trained", "fresh"))),
        tables=(_table(all_results),),
        method=_method(len(next(iter(sketches.values()))), answers, critic),
        numbers={"psi": numbers, **critic.figures},
    )


def share(squared: Measurement) -> Measurement:
    """Root of a squared fraction, whose estimate may be below 0, by the delta method; the error of 0 is that of the
    square's upper bound."""
    if squared.value <= 0:
        return Measurement(0.0, sqrt(max(squared.value + Z95 * squared.error, 0.0)) / Z95)
    root = sqrt(squared.value)
    return Measurement(root, squared.error / (2 * root))


def _method(batches: int, answers: int, critic: CellResult) -> tuple[str, ...]:
    what = (
        f"{counted(batches, 'batch')} of {counted(answers, 'answer')}, four to each prompt, of the demonstration's "
        f"policy ({number(float(critic.figures['kl']))} nats from SFT); the reward is the score on the last token and "
        "a price of 0.1 per nat on every token. From one forward pass of a batch, the gradient of the mean over "
        "answers of Σ log π Ψ is taken for every Ψ, with respect to all weights."
    )
    how = (
        "Noise is the trace of the covariance of a batch's gradient; signal the squared length of its mean, from "
        "products of different batches, which have no bias. Bias is measured on the same batches against the value "
        "baseline, which is unbiased whatever the critic says. Intervals are 95%, by the jackknife over batches."
    )
    return what, how


def findings(measured: Sequence[PsiResult], critic: CellResult) -> list[str]:
    """Findings as sentences."""
    by_name = {(one.name, one.critic): one for one in measured}
    plain, value = by_name["REINFORCE", ""], by_name["value", "trained"]
    free = sorted((one for one in measured if not one.critic), key=lambda one: one.noise.value)
    quiet = free[0]
    needs = (
        f"Plain REINFORCE needs {_answers(plain)} answers in a batch before signal and noise are equally large; "
        f"{quiet.name}, the quietest without a critic, needs {_answers(quiet)}."
    )
    fitted, as_it_is = (percent(float(critic.figures[f"explained/{name}"])) for name in ("trained", "fresh"))
    explained = (
        f"A critic fitted to the returns explains {fitted} of their variance on unseen answers (the reward model as it "
        f"is: {as_it_is}); as a baseline it leaves {percent(value.noise.value)} of REINFORCE's noise."
    )
    return [needs, _steps(by_name), explained, *(_trust(measured, name) for name in ("trained", "fresh"))]


def _answers(one: PsiResult) -> str:
    return f"{number(one.need.value, 2)}"


def _steps(by_name: Mapping[tuple[str, str], PsiResult]) -> str:
    """From reward-to-go to the baselines, with intervals."""
    to_go = by_name["reward-to-go", ""].noise
    change = to_go.value - 1
    sure = abs(change) > Z95 * to_go.error
    what = "less" if change < 0 else "more"
    first = (
        f"Crediting tokens with what comes after them has {percent(abs(change))} {what} noise than the total return"
        if sure
        else "Crediting tokens with what comes after them makes no difference that can be told from chance"
    )
    rest = ", ".join(
        f"{name} {percent(by_name[name, ''].noise.value)}"
        for name in ("batch mean", "min. variance", "mean per token", "greedy answer", "leave one out")
    )
    return f"{first}; the baselines leave, of REINFORCE's noise: {rest}."


def _trust(measured: Sequence[PsiResult], critic: str) -> str:
    """Benefit and cost of λ with this critic."""
    gae = [one for one in measured if one.critic == critic and one.name.startswith("GAE")]
    wrong = [one for one in gae if one.bias.value > Z95 * one.bias.error]
    low = min(gae, key=lambda one: one.noise.value)
    sentence = (
        f"With the {critic} critic GAE at λ = {low.name.removeprefix('GAE ')} is the quietest: "
        f"{percent(low.noise.value, 1)} of REINFORCE's noise, at a bias of {percent(share(low.bias).value)} of the "
        "signal's length"
    )
    if not wrong:
        return f"{sentence}; no λ has a bias that can be told from 0 here."
    return f"{sentence}; its bias can be told from 0 from λ = {wrong[0].name.removeprefix('GAE ')} downwards."


# Figures -------------------------------------------------------------------------------------------------------------


def _free(measured: Sequence[PsiResult]) -> LabFigure:
    plotted = [one for one in measured if not one.critic or one.name == "value"]
    dots = [
        (
            one.name + (f", {one.critic}" if one.critic else ""),
            one.noise,
            percent(one.noise.value, 0),
            COLOURS[one.critic],
        )
        for one in plotted
    ]
    caption = (
        "The trace of the covariance of a batch's gradient, in units of REINFORCE's. All of these have the same mean "
        "(the batch mean's and the mean per token's are a little short of it)."
    )
    axis = Axis(percent=True, low=0.0)
    return LabFigure.dots("noise", "Noise of the gradient", dots, axis, caption, rules=(Rule(1.0, "REINFORCE"),))


def _lambdas(measured: Sequence[PsiResult], critic: str, cell: CellResult) -> LabFigure:
    """Noise and bias of GAE over λ."""
    gae = sorted(
        ((1.0 if one.name == "value" else float(one.name.removeprefix("GAE ")), one) for one in measured
         if one.critic == critic and (one.name == "value" or one.name.startswith("GAE"))),
        key=lambda pair: pair[0],
    )  # fmt: skip
    x = tuple(lam for lam, _ in gae)
    signal = gae[-1][1].need.value / gae[-1][1].noise.value  # of REINFORCE: noise over signal, in answers
    quiet = [sqrt(max(one.noise.value, 0.0) * signal / BATCH) for _, one in gae]
    wrong = [share(one.bias) for _, one in gae]
    series = (
        Series(x, tuple(quiet), "noise", colour=0),
        Series(
            x,
            tuple(one.value for one in wrong),
            "bias",
            colour=1,
            low=tuple(max(one.low, 0.0) for one in wrong),
            high=tuple(one.high for one in wrong),
        ),
        Series(
            x,
            tuple(sqrt(q * q + b.value**2) for q, b in zip(quiet, wrong, strict=True)),
            "both",
            colour=5,
            style="dashed",
        ),
    )
    explained = percent(float(cell.figures[f"explained/{critic}"]))
    axes = (Axis("λ", low=0.0, high=1.0), Axis("error of the gradient, as a share of its length", low=0.0))
    caption = (
        f"The noise of a batch of {counted(BATCH, 'answer')}, the bias, and the root of their squares' sum. This "
        f"critic explains {explained} of the variance of unseen returns; λ = 1 is the value baseline."
    )
    return LabFigure.over_axes(f"gae-{critic}", f"GAE with a {critic} critic", series, axes, caption)


BATCH = 1024
"""Batch size in completions of the figure of noise and bias of GAE."""


def _table(measured: Sequence[PsiResult]) -> LabTable:
    rows = tuple(
        (
            f"{one.name}{' / ' + one.critic if one.critic else ''}",
            f"{one.noise.value:.3f} ± {Z95 * one.noise.error:.3f}",
            number(one.need.value),
            f"{share(one.bias).value:.2f} ± {Z95 * share(one.bias).error:.2f}",
            f"{one.angle.value:.3f} ± {Z95 * one.angle.error:.3f}",
        )
        for one in measured
    )
    columns = ("Ψ / critic", "noise, of REINFORCE's", "answers until signal = noise", "bias, of the signal", "cosine")
    return LabTable("Every Ψ", columns, rows)
