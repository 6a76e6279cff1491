"""DPO lowers the log-probability of the chosen answers too, beside IPO, SimPO and ORPO.

The losses see the difference between a chosen and a rejected answer alone, so that both may become less likely as long
as the rejected one does so faster: reported by Rafailov et al. 2024 (arXiv 2404.12358), Pal et al. 2024 (arXiv
2402.13228) and others. ORPO adds the likelihood of the chosen answer, which should keep it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np

import tutelage as tt
from bench.quality.experiment import Experiment, Place, Result
from tutelage.data.pairing import split_by_prompt
from tutelage.data.records import Preference
from tutelage.data.rows import to_row, write_jsonl
from tutelage.figures import Axis, Chart, Rule, Series, draw, standalone
from tutelage.models.policy import Policy
from tutelage.stats.intervals import Interval, ratio_interval
from tutelage.train.run.lines import read_lines
from tutelage.train.supervised.batches import encode_preferences
from tutelage.train.supervised.preference_training import answer_logps

LOSSES = ("dpo", "ipo", "simpo", "orpo")
PROMPT, ANSWER = 96, 64
"""Tokens of the longest prompt and answer that are taken: short ones, so that a run takes minutes on two cores."""
PAIRS = 400
HELD_OUT = 0.2
SETTINGS: Mapping[str, Any] = {
    "batch_size": 8,
    "epochs": 1.0,
    "held_out": HELD_OUT,
    "evaluate_every": 10,
    "max_length": 256,
    "lora": {"rank": 16},
    "optimiser": {"lr": 2e-4, "warmup": 0.1},
}
"""The same for every loss; beta and other settings of a loss are its defaults."""
BUDGET = 2048
"""Tokens of a forward pass."""


TITLE = "## DPO lowers the log-probability of the chosen answers too"
CLAIM = (
    "The losses over pairs see the difference between the two answers, so both may become less likely, as long as the "
    "rejected one does so faster (Rafailov et al. 2024, arXiv 2404.12358; Pal et al. 2024, arXiv 2402.13228)."
)
FIGURE = (
    "![Change of log π of held-out chosen and rejected answers over the steps, by loss](results/chosen.svg)"
)


@dataclass(frozen=True)
class Change:
    """Mean change of a log-probability over the held-out pairs, nats per answer."""

    chosen: Interval
    rejected: Interval
    share: Interval
    """Of the chosen answers, those that became less likely."""
    ahead: Interval
    """Of the pairs, those whose chosen answer gained on the rejected one."""


def run(place: Place) -> Result:
    """Train by every loss with every seed, and compare the held-out answers before and after."""
    place.runs.mkdir(parents=True, exist_ok=True)
    base = tt.load_policy(place.model)
    records = tt.load_preferences(place.data).records
    pairs = _short(records, base)
    file = place.runs / "pairs.jsonl"
    write_jsonl(file, map(to_row, pairs))
    found = []
    for seed in range(place.seeds):
        _, aside = split_by_prompt(pairs, HELD_OUT, seed)
        before = _logps(base, aside)
        for loss in LOSSES:
            out = place.runs / f"{loss}-{seed}"
            trained = tt.dpo(
                model=place.model, data=file, loss=loss, seed=seed, out=out, resume=out.exists(), **SETTINGS
            )
            after = _logps(trained.load(), aside)
            change = (after - before).round(3).tolist()
            found.append({"loss": loss, "seed": seed, "curve": _curve(out), "change": change})
    kept = {"model": place.model, "pairs": len(pairs), "seeds": place.seeds, "settings": dict(SETTINGS)}
    return kept | {"runs": found}


def _short(records: Sequence[Preference], policy: Policy) -> list[Preference]:
    """The first `PAIRS` pairs of a short prompt and short answers."""
    encoded, _ = encode_preferences(records, policy.tokenizer, policy.context or 2048)
    fitting = [
        one.source
        for one in encoded
        if len(one.chosen.prompt) <= PROMPT
        and max(len(one.chosen.response), len(one.rejected.response)) <= ANSWER
    ]
    return fitting[:PAIRS]


def _logps(policy: Policy, pairs: Sequence[Preference]) -> Any:
    """log π of the chosen and of the rejected answer of each pair, nats. Float[N, 2]"""
    encoded, _ = encode_preferences(pairs, policy.tokenizer, policy.context or 2048)
    rows = [row for one in encoded for row in (one.chosen, one.rejected)]
    return answer_logps(policy, rows, BUDGET).reshape(-1, 2).double().numpy()


def _curve(out: Any) -> list[list[float]]:
    """Step, and by how many nats the held-out chosen and rejected answers have become likelier."""
    rows = (row for row in read_lines(out / "metrics.jsonl") if "held_out/kl/chosen" in row)
    return [
        [row["step"], round(-row["held_out/kl/chosen"], 3), round(-row["held_out/kl/rejected"], 3)]
        for row in rows
    ]


def changes(result: Result) -> dict[str, Change]:
    """The changes by loss, over the held-out pairs of all seeds; a pair of one seed is resampled as a whole."""
    found = {}
    for loss in LOSSES:
        own = np.concatenate([one["change"] for one in result["runs"] if one["loss"] == loss])
        chosen, rejected = own.T
        columns = (chosen, rejected, (chosen < 0).astype(float), (chosen > rejected).astype(float))
        which, ones = np.arange(len(own)), np.ones(len(own))
        found[loss] = Change(*(ratio_interval(column, ones, which) for column in columns))
    return found


def section(result: Result) -> str:
    """What was claimed and what was seen."""
    lines = [
        "| loss | log π(chosen) | log π(rejected) | chosen less likely | chosen gained |",
        "|---|---|---|---|---|",
    ]
    seen = changes(result)
    for loss, change in seen.items():
        cells = [_nats(change.chosen), _nats(change.rejected), _share(change.share), _share(change.ahead)]
        lines.append(f"| {loss} | {' | '.join(cells)} |")
    held = len(result["runs"][0]["change"])
    settings = result["settings"]
    made = (
        f"{result['model']} on {result['pairs'] - held} pairs of hh-rlhf (helpful-base, test file; prompts of at most "
        f"{PROMPT} tokens, answers of at most {ANSWER}), LoRA of rank {settings['lora']['rank']}, batches of "
        f"{settings['batch_size']}, one epoch at a rate of {settings['optimiser']['lr']:g} for every loss, with the "
        f"defaults of each loss; seeds: {result['seeds']}. Change of the log-probabilities of {held} held-out pairs "
        "from the model as it was, in nats per answer; the share of chosen answers that became less likely, and of "
        "pairs whose chosen answer gained on the rejected one. Intervals are over the pairs."
    )
    parts = [TITLE, fill(f"{CLAIM} {_verdict(seen)}", 120), fill(made, 120), "\n".join(lines), FIGURE]
    return "\n\n".join(parts)


def _verdict(seen: Mapping[str, Change]) -> str:
    """Which losses lowered the chosen answers, by intervals that exclude 0."""
    lower = [
        loss for loss, change in seen.items() if change.chosen.high is not None and change.chosen.high < 0
    ]
    higher = [
        loss for loss, change in seen.items() if change.chosen.low is not None and change.chosen.low > 0
    ]
    parts = [f"Here {_listed(lower) if lower else 'no loss'} lowered the chosen answers"]
    if higher:
        parts.append(f"{_listed(higher)} raised them")
    rest = [loss for loss in seen if loss not in (*lower, *higher)]
    if rest:
        parts.append(f"for {_listed(rest)} the interval holds 0")
    return "; ".join(parts) + "."


def _listed(names: Sequence[str]) -> str:
    upper = [{"simpo": "SimPO"}.get(name, name.upper()) for name in names]
    return f"{', '.join(upper[:-1])} and {upper[-1]}" if len(upper) > 1 else upper[0]


def _nats(interval: Interval) -> str:
    return f"{interval.value:+.2f} ({interval.low:+.2f} to {interval.high:+.2f})"


def _share(interval: Interval) -> str:
    return f"{interval.value:.0%} ({interval.low:.0%} to {interval.high:.0%})"


def figure(result: Result) -> str:
    """The curves of all losses: chosen answers as lines, rejected ones dashed; means over the seeds."""
    series = []
    for colour, loss in enumerate(LOSSES):
        curves = np.mean([one["curve"] for one in result["runs"] if one["loss"] == loss], axis=0)
        steps, chosen, rejected = (tuple(float(x) for x in column) for column in curves.T)
        series.append(Series(steps, chosen, _listed([loss]), colour=colour))
        series.append(Series(steps, rejected, colour=colour, style="dashed"))
    title = "Held-out answers: chosen (lines) and rejected (dashed)"
    axes = Axis("step", low=0, whole=True), Axis("change of log π, nats per answer")
    return standalone(draw(Chart(title, tuple(series), *axes, rules=(Rule(0.0),), width=560)))


EXPERIMENT = Experiment("chosen", "does DPO lower the chosen answers too?", run, section, figure)
