"""Whether DPO lowers the log-probability of the chosen answers too, beside IPO, SimPO and ORPO.

The losses see the difference between a chosen and a rejected answer alone, so that both may become less likely as long
as the rejected one does so faster: reported by Rafailov et al. 2024 (arXiv 2404.12358), Pal et al. 2024 (arXiv
2402.13228) and others. ORPO adds the likelihood of the chosen answer, which should keep it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np

import tutelage as tt
from bench.quality.experiment import Experiment, Figures, Line, Part, Place, of
from bench.quality.texts import listed, share, signed
from tutelage.data.pairing import split_by_prompt
from tutelage.data.record_files import to_row, write_jsonl
from tutelage.data.records import Preference
from tutelage.models.policy import Policy
from tutelage.report.figures import Axis, Chart, Rule, Series, draw, standalone
from tutelage.stats.intervals import Interval, ratio_interval
from tutelage.train.run.json_lines import read_lines
from tutelage.train.supervised.batches import encode_preferences
from tutelage.train.supervised.preference_job import completion_logps

LOSSES = ("dpo", "orpo", "ipo", "simpo")
SETTINGS: Mapping[str, Any] = {
    "prompt": 64,  # tokens of the longest prompt and answer that are taken: short ones, since it runs on a processor
    "answer": 32,
    "pairs": 120,
    "train": {
        "batch_size": 8,
        "epochs": 1.0,
        "held_out": 0.2,
        "evaluate_every": 4,
        "max_length": 256,
        "lora": {"rank": 16},
        "optimiser": {"lr": 3e-4, "warmup": 0.1},
    },
}
"""The same for every loss; beta and other settings of a loss are its defaults."""
BUDGET = 2048
"""Tokens of a forward pass."""

TITLE = "## Does DPO lower the log-probability of the chosen completions too?"
CLAIM = (
    "Losses over pairs depend only on the difference between the two completions, so both may become less likely, as "
    "long as the rejected one does so faster (Rafailov et al. 2024, arXiv 2404.12358; Pal et al. 2024, arXiv "
    "2402.13228)."
)
FIGURE = "![Change of log π of held-out chosen and rejected completions over the steps, by loss](results/chosen.svg)"


@dataclass(frozen=True)
class Change:
    """Mean change of a log-probability over the held-out pairs, nats per completion."""

    chosen: Interval
    rejected: Interval
    share: Interval
    """Of the chosen answers, those that became less likely."""
    ahead: Interval
    """Of the pairs, those whose chosen answer gained on the rejected one."""


def parts(seed: int) -> list[Part]:
    """A run of each loss."""
    return [Part(loss, SETTINGS, seed) for loss in LOSSES]


def run(part: Part, place: Place) -> Figures:
    """Train by a loss, and compare the held-out answers before and after."""
    settings = part.settings
    base = tt.load_policy(place.model)
    pairs = short_pairs(place.data, base, settings["prompt"], settings["answer"])[: settings["pairs"]]
    file = place.runs / "pairs.jsonl"
    write_jsonl(file, map(to_row, pairs))
    _, aside = split_by_prompt(pairs, settings["train"]["held_out"], part.seed)
    before, out = _logps(base, aside), place.run(part)
    trained = tt.dpo(
        model=place.model, data=file, loss=part.name, seed=part.seed, out=out, resume=out.exists(), **settings["train"]
    )
    change = (_logps(trained.load(), aside) - before).round(3).tolist()
    return {"pairs": len(pairs), "curve": _curve(out), "change": change}


def short_pairs(data: str, policy: Policy, prompt: int, answer: int) -> list[Preference]:
    """The pairs of a file whose prompt and answers have at most so many tokens, in order."""
    encoded, _ = encode_preferences(tt.load_preferences(data).records, policy.tokenizer, policy.context or 2048)
    return [
        one.source
        for one in encoded
        if len(one.chosen.prompt) <= prompt and max(len(one.chosen.response), len(one.rejected.response)) <= answer
    ]


def _logps(policy: Policy, pairs: Sequence[Preference]) -> Any:
    """log π of the chosen and of the rejected answer of each pair, nats. Float[N, 2]"""
    encoded, _ = encode_preferences(pairs, policy.tokenizer, policy.context or 2048)
    rows = [row for one in encoded for row in (one.chosen, one.rejected)]
    return completion_logps(policy, rows, BUDGET).reshape(-1, 2).double().numpy()


def _curve(out: Path) -> list[list[float]]:
    """Step, and by how many nats the held-out chosen and rejected answers have become likelier."""
    rows = (row for row in read_lines(out / "metrics.jsonl") if "held_out/kl/chosen" in row)
    return [[row["step"], round(-row["held_out/kl/chosen"], 3), round(-row["held_out/kl/rejected"], 3)] for row in rows]


def changes(lines: Sequence[Line]) -> dict[str, Change]:
    """The changes by loss, over the held-out pairs of all seeds; a pair of one seed is resampled as a whole."""
    found = {}
    for loss in dict.fromkeys(line.part for line in lines):
        own = np.concatenate([line.figures["change"] for line in of(lines, loss)])
        chosen, rejected = own.T
        columns = (chosen, rejected, (chosen < 0).astype(float), (chosen > rejected).astype(float))
        which, ones = np.arange(len(own)), np.ones(len(own))
        found[loss] = Change(*(ratio_interval(column, ones, which) for column in columns))
    return found


def section(lines: Sequence[Line]) -> str:
    """What was claimed and what was seen."""
    rows = ["| loss | log π(chosen) | log π(rejected) | chosen less likely | chosen gained |", "|---|---|---|---|---|"]
    seen = changes(lines)
    for loss, change in seen.items():
        cells = [signed(change.chosen), signed(change.rejected), share(change.share), share(change.ahead)]
        rows.append(f"| {listed([loss])} | {' | '.join(cells)} |")
    first = lines[0]
    held, settings = len(first.figures["change"]), first.settings["train"]
    made = (
        f"{first.figures['pairs'] - held} pairs of hh-rlhf (prompts of at most {first.settings['prompt']} tokens, "
        f"completions of at most {first.settings['answer']}), LoRA of rank {settings['lora']['rank']}, batches of "
        f"{settings['batch_size']}, one epoch ({_steps(first)} steps) at a rate of "
        f"{settings['optimiser']['lr']:g} for every loss, with the defaults of each loss; seeds: "
        f"{len({line.seed for line in lines})}. Change of the log-probabilities of {held} held-out pairs of each seed "
        "from the original model, in nats per completion; the share of chosen completions that became less likely, and "
        "of pairs whose chosen completion gained on the rejected one. Intervals are over the pairs."
    )
    return "\n\n".join([TITLE, fill(f"{CLAIM} {_verdict(seen)}", 120), fill(made, 120), "\n".join(rows), FIGURE])


def _steps(line: Line) -> int:
    return int(line.figures["curve"][-1][0])


def _verdict(seen: Mapping[str, Change]) -> str:
    """Which losses lowered the chosen answers, by intervals that exclude 0."""
    lower = [loss for loss, change in seen.items() if change.chosen.high is not None and change.chosen.high < 0]
    higher = [loss for loss, change in seen.items() if change.chosen.low is not None and change.chosen.low > 0]
    sentences = [f"Here {listed(lower) if lower else 'no loss'} lowered the chosen completions"]
    if higher:
        sentences.append(f"{listed(higher)} raised them")
    rest = [loss for loss in seen if loss not in (*lower, *higher)]
    if rest:
        sentences.append(f"for {listed(rest)} the interval contains 0")
    return "; ".join(sentences) + "."


def figures(lines: Sequence[Line]) -> dict[str, str]:
    """The curves of all losses: chosen answers as lines, rejected ones dashed; means over the seeds."""
    series = []
    for colour, loss in enumerate(dict.fromkeys(line.part for line in lines)):
        curves = np.mean([line.figures["curve"] for line in of(lines, loss)], axis=0)
        steps, chosen, rejected = (tuple(float(x) for x in column) for column in curves.T)
        series.append(Series(steps, chosen, listed([loss]), colour=colour))
        series.append(Series(steps, rejected, colour=colour, style="dashed"))
    title = "Held-out completions: chosen (lines) and rejected (dashed)"
    axes = Axis("step", low=0, whole=True), Axis("change of log π, nats per completion")
    return {"chosen": standalone(draw(Chart(title, tuple(series), *axes, rules=(Rule(0.0),), width=560)))}


EXPERIMENT = Experiment("chosen", "does DPO lower the chosen answers too?", parts, run, section, figures)
