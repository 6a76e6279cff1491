"""The tables of `bench.raters`: a summary of each design and of the whole grid, from the studies that were measured."""

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from scipy.stats import norm
from scipy.stats import t as student

from tutelage.report.figures import draw, standalone
from tutelage.report.reliability_diagram import bins, reliability
from tutelage.stats.vote_codes import Floats

RESULTS = {
    grid: Path(__file__).parent / "results" / f"{name}.json"
    for grid, name in (("nominal", "raters"), ("ordered", "raters_ordered"))
}
STANDARDS = ("majority", "one-coin")
ENOUGH_STUDIES = 5  # below, the interval is over the items of all studies, above over the studies
DRAWS = 2_000
SURE = 0.9
NEAR = 0.03  # distance of mean probability and accuracy of a design

Study: TypeAlias = dict[str, Any]
Summary: TypeAlias = dict[str, Any]


def write_tables(here: list[Study], peer: list[Study], path: Path) -> None:
    """Write a summary of each design on each side to a .json file, and tables and the reliability diagram of the
    default's labels to an .md and an .svg file of the same name."""
    sides = {"here": _by_design(here), "crowd-kit": _by_design(peer)}
    summaries = {side: {name: summary(s) for name, s in found.items()} for side, found in sides.items()}
    path.write_text(json.dumps(summaries, indent=1) + "\n")
    text = ["# Rater models on simulated votes", ""]
    for side, found in sides.items():
        if found:
            text += [f"## The default and {'the other models here' if side == 'here' else side}", ""]
            text += [*overview(found, summaries[side]), "", *behind(summaries[side]), ""]
    text += designs_table(summaries["here"], summaries["crowd-kit"])
    path.with_suffix(".md").write_text("\n".join(text) + "\n")
    if here:
        path.with_suffix(".svg").write_text(diagram(here))


def diagram(studies: list[Study]) -> str:
    """The reliability diagram of the default's labels, all studies pooled."""
    total = np.sum([s["methods"]["default"]["bins"] for s in studies], axis=0)
    edges = np.linspace(0, 1, len(total) + 1).tolist()
    keys = ("low", "high", "n", "predicted", "observed")
    rows = [(*edges[b : b + 2], n, said / n, right / n) for b, (n, said, right) in enumerate(total.tolist()) if n]
    return standalone(draw(reliability(bins({"calibration": [dict(zip(keys, row, strict=True)) for row in rows]}))))


def _by_design(studies: list[Study]) -> dict[str, list[Study]]:
    found: dict[str, list[Study]] = {}
    for study in sorted(studies, key=lambda each: (each["design"], each["seed"])):
        found.setdefault(study["design"], []).append(study)
    return found


def summary(studies: list[Study]) -> Summary:
    """Means over the studies of a design; `ahead` is the default's accuracy less the method's, `within` half the width
    of its 95 % interval: Student's over studies, or over items where there are fewer than five studies."""
    names = [name for name in studies[0]["methods"] if all(name in s["methods"] for s in studies)]
    return {
        "studies": len(studies),
        "items": sum(s["items"] for s in studies),
        "chosen": dict(Counter(s["chosen"] for s in studies).most_common()),
        "methods": {name: _method([s["methods"][name] for s in studies]) for name in names},
    }


def _method(found: list[dict[str, Any]]) -> dict[str, float]:
    ahead = np.array([each["ahead"] for each in found])
    number = len(found)
    if number >= ENOUGH_STUDIES:
        within = student.ppf(0.975, number - 1) * ahead[:, 0].std(ddof=1) / math.sqrt(number)
    else:
        within = 1.96 * math.sqrt((ahead[:, 1] ** 2).sum()) / number
    means = {key: float(np.mean([each[key] for each in found])) for key in ("accuracy", "log_loss", "seconds")}
    figures = means | {"ahead": float(ahead[:, 0].mean()), "within": float(within)}
    return {key: round(value, 5) for key, value in figures.items()}


def overview(studies: dict[str, list[Study]], summaries: dict[str, Summary]) -> list[str]:
    """One line for each method over all designs, which count alike; the difference's interval is a bootstrap over
    designs, those of one method against the default on the same votes."""
    studies_made, items = (sum(s[key] for s in summaries.values()) for key in ("studies", "items"))
    titles = ["", "designs", "accuracy", "the default's lead, 95 %", "ahead", "behind", "log-loss", "calibration error"]
    titles += ["labels of .9 and more: said, true", "distance", f"within {NEAR}: designs, if calibrated", "seconds"]
    lines = [f"{len(summaries)} designs, {studies_made} studies, {items:,} items. Each design counts alike.", ""]
    lines += ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    for name in dict.fromkeys(name for s in summaries.values() for name in s["methods"]):
        of = [design for design, s in summaries.items() if name in s["methods"]]
        each = [summaries[design]["methods"][name] for design in of]
        accuracy, loss, seconds = (np.array([m[key] for m in each]) for key in ("accuracy", "log_loss", "seconds"))
        lead, low, high = bootstrap(np.array([m["ahead"] for m in each]))
        ece, said, true = calibration_error([_bins(studies[design], name) for design in of])
        gap, error = np.array([distance(studies[design], name) for design in of]).T
        near = f"{(gap <= NEAR).sum()}, {(2 * norm.cdf(NEAR / error) - 1).sum():.0f}"
        beyond = [sum(sign * m["ahead"] > m["within"] for m in each) for sign in (1, -1)]
        lines.append(
            f"| {name} | {len(of)} | {accuracy.mean():.4f} | "
            + ("| | " if name == "default" else f"{lead:+.4f} ({low:+.4f} to {high:+.4f}) | {beyond[0]} | {beyond[1]} ")
            + f"| {loss.mean():.3f} | {ece:.3f} | {said:.3f}, {true:.3f} | {gap.mean():.3f} | {near} "
            + f"| {np.median(seconds):.2f} |"
        )
    return lines


def bootstrap(values: Floats) -> tuple[float, float, float]:
    """The mean and its 95 % interval over resampled designs."""
    drawn = np.random.default_rng(0).choice(values, size=(DRAWS, len(values))).mean(axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(values.mean()), float(low), float(high)


def _bins(studies: list[Study], name: str) -> Floats:
    """[bins, 3] shares of all labels of a design."""
    total = np.sum([s["methods"][name]["bins"] for s in studies], axis=0)
    return np.asarray(total / total[:, 0].sum())


def distance(studies: list[Study], name: str) -> tuple[float, float]:
    """The distance of the labels' mean probability in a design from their accuracy, and its standard error if the
    probabilities are true, √(Σ p(1 - p)) over the labels, p the mean of a label's bin."""
    count, said, right = np.sum([s["methods"][name]["bins"] for s in studies], axis=0).T
    variance = (said * (1 - said / np.maximum(count, 1))).sum()
    return abs(said.sum() - right.sum()) / count.sum(), math.sqrt(max(variance, 0.25)) / count.sum()


def calibration_error(designs: list[Floats]) -> tuple[float, float, float]:
    """The expected calibration error of the labels' probabilities; and of labels of at least `SURE`, the mean
    probability and how many are right."""
    pooled = np.mean(designs, axis=0)
    sure = pooled[round(SURE * len(pooled)) :].sum(axis=0)
    return float(np.abs(pooled[:, 1] - pooled[:, 2]).sum()), sure[1] / sure[0], sure[2] / sure[0]


def behind(summaries: dict[str, Summary]) -> list[str]:
    """Where the default's accuracy lies behind a method's by more than the interval."""
    found = sorted(
        (method["ahead"], f"- {design}: {method['ahead']:+.4f} ± {method['within']:.4f} against {name}")
        for design, each in summaries.items()
        for name, method in each["methods"].items()
        if method["ahead"] < -method["within"]
    )
    return ["The default is behind by more than its interval in:", "", *(line for _, line in found or [(0, "- none")])]


def designs_table(here: dict[str, Summary], peer: dict[str, Summary]) -> list[str]:
    """Accuracy / log-loss of each way on each design."""
    columns = [("here", name) for name in ("default", *STANDARDS, "Dawid-Skene")]
    columns += [("crowd-kit", name) for name in ("default", "crowd-kit DS", "MACE", "GLAD")]
    titles = [name if side == "here" or name != "default" else "default, same votes" for side, name in columns]
    lines = ["## Each design: accuracy / log-loss", ""]
    lines += ["| design | studies | chosen | " + " | ".join(titles) + " |", "|---" * (len(titles) + 3) + "|"]
    sides = {"here": here, "crowd-kit": peer}
    for design in sorted(here | peer):
        methods = {side: found.get(design, {}).get("methods", {}) for side, found in sides.items()}
        cells = [
            f"{methods[side][name]['accuracy']:.3f} / {methods[side][name]['log_loss']:.2f}"
            if name in methods[side]
            else ""
            for side, name in columns
        ]
        one = here.get(design) or peer[design]
        lines.append(f"| {design} | {one['studies']} | {next(iter(one['chosen']))} | " + " | ".join(cells) + " |")
    return lines
