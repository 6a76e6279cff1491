"""The section of the sentiment experiment: score against KL, TRL's GRPO beside ours, √KL, best-of-n."""

import math
from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np
from scipy.special import stdtrit

from bench.quality.best_of_n import expected_best, tied_kl
from bench.quality.experiment import Line, of
from bench.quality.texts import plain, signed
from tutelage.report.figures import Axis, Chart, Series, draw, standalone
from tutelage.report.figures.plots import fit, smoothed
from tutelage.rollout.inference.best_of_n import best_of_n_kl
from tutelage.stats.intervals import Interval, ratio_interval

TITLES = {
    "base": "SmolLM2 as it was",
    "grpo": "GRPO, β 0.04",
    "trl": "GRPO of TRL 1.16, β 0.04",
    "rloo": "RLOO, β 0.05",
    "grpo, β 0.2": "GRPO, β 0.2",
    "grpo, β 0": "GRPO, β 0",
    "dpo": "DPO, β 0.1",
    "ppo": "PPO, β 0.05",
}
DRAWN = {
    "SmolLM2 as it was": ("base",),
    "GRPO, β 0.2, 0.04 and 0": ("grpo, β 0.2", "grpo", "grpo, β 0"),
    "GRPO of TRL 1.16, β 0.04": ("trl",),
    "RLOO, β 0.05": ("rloo",),
    "DPO, β 0.1": ("dpo",),
    "PPO, β 0.05": ("ppo",),
}
"""What has a colour in the figures, and the methods that share it."""
SIZES = (2, 4, 8, 16)
"""The n of best-of-n."""
TITLE = "## Sentiment: score against KL"
CLAIM = (
    "Rewarding a kind tone raises the score quickly, at the cost of a divergence controlled by the weight β of the KL "
    "(Ziegler et al. 2019, arXiv 1909.08593); the score grows linearly in √KL (Bai et al. 2022, arXiv 2204.05862); "
    "best-of-n gets the most for its KL, log n − (n − 1)/n if no scores are equal (Stiennon et al. "
    "2020, arXiv 2009.01325; Beirami et al. 2024, arXiv 2401.01879)."
)


def enough(lines: Sequence[Line]) -> bool:
    """Whether there is the model as it was, and a method beside it."""
    return bool(of(lines, "base")) and any(line.part in TITLES and line.part != "base" for line in lines)


def measured(lines: Sequence[Line]) -> dict[str, tuple[Interval, Interval]]:
    """Score and KL in nats of each method on the held-out prompts, with intervals over the prompts of all seeds."""
    found = {}
    for name in TITLES:
        if own := of(lines, name):
            prompts = np.concatenate([_prompts(line) for line in own])
            ones = np.ones(len(prompts))
            found[name] = tuple(
                ratio_interval(np.concatenate([line.figures[key] for line in own]), ones, prompts)
                for key in ("scores", "drift")
            )
    return found  # type: ignore[return-value]


def _prompts(line: Line) -> Any:
    """The prompt of each answer; those of another seed are others. Int[N]"""
    return np.arange(len(line.figures["scores"])) // line.settings["answers"] + 100_000 * line.seed


def best(lines: Sequence[Line]) -> list[tuple[int, Interval, float]]:
    """n, its expected score, and its exact KL in nats, ties included."""
    tables = [row for line in of(lines, "best-of-n") for row in line.figures["table"]]
    found = []
    for n in SIZES if tables else ():
        scores = np.array([expected_best(row, n) for row in tables])
        kl = float(np.mean([tied_kl(row, n) for row in tables]))
        found.append((n, ratio_interval(scores, np.ones(len(scores)), np.arange(len(scores))), kl))
    return found


def residuals(lines: Sequence[Line]) -> list[Any]:
    """Score of our GRPO's rollouts less that of TRL's, step by step, of each seed that has both. Each Float[steps]"""
    pairs = [(a, b) for a in of(lines, "grpo") for b in of(lines, "trl") if a.seed == b.seed]
    return [np.subtract(*([score for _, score in one.figures["curve"]] for one in pair)) for pair in pairs]


def residual(lines: Sequence[Line]) -> Interval | None:
    """Mean of `residuals`, with Student's interval over the seeds where there are several.

    The steps of a run are not independent: what two runs draw in one step moves their policies apart in all later ones.
    """
    means = [float(np.mean(one)) for one in residuals(lines)]
    if not means:
        return None
    mean, count = float(np.mean(means)), len(means)
    if count < 2:
        return Interval(mean, None, None)
    reach = float(stdtrit(count - 1, 0.975)) * float(np.std(means, ddof=1)) / math.sqrt(count)
    return Interval(mean, mean - reach, mean + reach)


def ends(lines: Sequence[Line]) -> dict[str, tuple[float, float]]:
    """√KL and score of each method on the held-out prompts, where its training ended."""
    return {
        name: (math.sqrt(max(kl.value or 0.0, 0.0)), score.value or 0.0)
        for name, (score, kl) in measured(lines).items()
    }


def linear(lines: Sequence[Line]) -> tuple[float, float, float] | None:
    """Intercept, slope and correlation of the score over √KL through the ends of all methods."""
    return fit(*zip(*ends(lines).values(), strict=True))


def section(lines: Sequence[Line]) -> str:
    """What was claimed and what was seen."""
    seen, straight, first = measured(lines), linear(lines), lines[0].settings
    rows = ["| | score | KL, nats per completion | KL of each seed | CPU seconds |", "|---|---|---|---|---|"]
    for name, (score, kl) in seen.items():
        seconds = np.mean([line.processor_seconds for line in of(lines, name)])
        each = ", ".join(f"{np.mean(line.figures['drift']):.2f}" for line in of(lines, name))
        divergence, each = (plain(kl), each) if name != "base" else ("0", "")
        rows.append(f"| {TITLES[name]} | {plain(score)} | {divergence} | {each} | {seconds:.0f} |")
    for n, score, kl in best(lines):
        rows.append(f"| best of {n} | {plain(score)} | {kl:.2f} (at most {best_of_n_kl(n):.2f}) | | |")
    made = (
        f"The reward is the compound score of the VADER lexicon, from −1 to 1; {first['train']} first turns of hh-rlhf "
        f"of at most {first['longest']} tokens. {first['steps']} steps of {first['prompts_per_step']} prompts × "
        f"{first['samples']} completions of {first['response']} tokens at temperature 1, one update a step (PPO: two), "
        f"all weights, a rate of {first['lr']:g} that falls to 0 for every method, untuned. DPO is given "
        "the same number of samples from the base model, the best of each prompt against the worst, once. Measured on "
        f"{first['held_out']} other prompts × {first['answers']} completions; {_seeds(lines)}. "
        "Intervals are over prompts and exclude the variation between training runs: runs of one method that "
        "differ by their seed alone diverge by different amounts. The KL is the mean of log π − log π₀ over own "
        "completions; that of best-of-n accounts for equal scores, which are frequent with this lexicon."
    )
    told = CLAIM
    if straight is not None:
        told += (
            f" Here the final scores are near score = {straight[0]:.2f} + {straight[1]:.2f} √KL "
            f"(R² {straight[2] ** 2:.2f})."
        )
    if (rest := residual(lines)) is not None:
        each = ", ".join(f"{np.mean(one):+.3f}" for one in residuals(lines))
        told += f" Score of our GRPO minus TRL's on the same prompts, mean over the steps: {signed(rest, 3)}"
        told += f", with Student's interval over the seeds; by seed: {each}." if rest.low is not None else "."
    drawn = [
        "![Score against KL on held-out prompts](results/sentiment.svg)",
        "![Score over the steps, our GRPO and TRL's](results/sentiment-steps.svg)",
        "![Final score over the root of the KL](results/sentiment-root.svg)",
    ]
    return "\n\n".join([TITLE, fill(told, 120), fill(made, 120), "\n".join(rows), *drawn])


def _seeds(lines: Sequence[Line]) -> str:
    """The number of seeds, and that of the methods that have more than others."""
    counts = {name: len({line.seed for line in of(lines, name)}) for name in TITLES if of(lines, name)}
    least = min(counts.values())
    more = [f"{count} for {TITLES[name]}" for name, count in counts.items() if count > least]
    return f"seeds: {least}" + (f" ({'; '.join(more)})" if more else "")


def figures(lines: Sequence[Line]) -> dict[str, str]:
    """Score against KL; the steps of our GRPO and TRL's; score over √KL."""
    return {"sentiment": _frontier(lines), "sentiment-steps": _steps(lines), "sentiment-root": _root(lines)}


def _frontier(lines: Sequence[Line]) -> str:
    known = measured(lines)
    series = []
    for colour, (title, names) in enumerate(DRAWN.items()):
        points = [known[name] for name in names if name in known]
        if points:
            series.append(
                Series(
                    tuple(kl.value or 0.0 for _, kl in points),
                    tuple(score.value or 0.0 for score, _ in points),
                    title,
                    mark="points",
                    colour=colour,
                    low=tuple(score.low or 0.0 for score, _ in points),
                    high=tuple(score.high or 0.0 for score, _ in points),
                )
            )
    if found := best(lines):
        kls, scores = tuple(kl for _, _, kl in found), tuple(score.value or 0.0 for _, score, _ in found)
        series.append(Series(kls, scores, "best of n", style="dashed"))
    axes = Axis("KL from SmolLM2, nats per completion", low=0), Axis("score on held-out prompts")
    return standalone(draw(Chart("Score against KL", tuple(series), *axes, width=640, height=340)))


def _steps(lines: Sequence[Line]) -> str:
    series = []
    for colour, name in enumerate(name for name in ("grpo", "trl") if of(lines, name)):
        scores = np.mean([[score for _, score in line.figures["curve"]] for line in of(lines, name)], axis=0)
        steps = tuple(float(step) for step in range(1, len(scores) + 1))
        series.append(Series(steps, tuple(scores.tolist()), colour=colour, style="faint"))
        series.append(Series(steps, smoothed(scores.tolist(), 5), TITLES[name], colour=colour))
    axes = Axis("step", low=0, whole=True), Axis("mean score of the rollout")
    return standalone(draw(Chart("GRPO, ours and TRL's", tuple(series), *axes, width=560)))


def _root(lines: Sequence[Line]) -> str:
    found = ends(lines)
    series = []
    for colour, (title, names) in enumerate(DRAWN.items()):
        if points := [found[name] for name in names if name in found]:
            series.append(Series(*map(tuple, zip(*points, strict=True)), title, mark="points", colour=colour))
    if line := linear(lines):
        reach = (0.0, max(root for root, _ in found.values()))
        series.append(Series(reach, tuple(line[0] + line[1] * root for root in reach), "straight line"))
    if tables := best(lines):
        roots = tuple(math.sqrt(kl) for _, _, kl in tables)
        series.append(Series(roots, tuple(s.value or 0.0 for _, s, _ in tables), "best of n", style="dashed"))
    axes = Axis("√KL, √nats", low=0), Axis("score on held-out prompts")
    return standalone(draw(Chart("Score over √KL", tuple(series), *axes, width=640, height=340)))
