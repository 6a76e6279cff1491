"""The same curves: SFT and GRPO, Tutelage and TRL, on the same model, the same data, in the same order.

GRPO's answers are those that our run sampled, handed to TRL, so that both sides learn from the same tokens. Residuals
are looked at by their mean over the steps: it catches a shift to one side that a tolerance for single steps would
forgive.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import torch

import tutelage as tt
from bench.quality.chosen import short_pairs
from bench.quality.experiment import Experiment, Figures, Line, Part, Place, of
from bench.quality.peers import peer, peer_grpo
from bench.quality.prompts import questions, write_prompts
from bench.quality.scores import RECORD
from tutelage.core.rows import collate
from tutelage.data.chat_tokens import pad_token_id
from tutelage.data.record_files import to_row, write_jsonl
from tutelage.data.records import Demonstration
from tutelage.models.policy import Policy
from tutelage.report.figures import Axis, Chart, Rule, Series, draw, standalone
from tutelage.stats.intervals import Interval, normal_quantile
from tutelage.train.run.json_lines import read_lines
from tutelage.train.supervised.batches import Order, encode_demonstrations

SFT: Mapping[str, Any] = {"prompt": 64, "answer": 32, "batch": 4, "steps": 24, "lr": 2e-5}
GRPO: Mapping[str, Any] = {
    "longest": 50,
    "train": 40,
    "steps": 10,
    "prompts_per_step": 2,
    "samples": 6,
    "response": 16,
    "lr": 2e-5,
    "eps": 1e-5,
    "beta": 0.04,
}
TOLERANCE = 1e-3
"""What a mean residual may be of the mean size of the metric: rounding of float32 over the steps."""


def parts(seed: int) -> list[Part]:
    """Both trainers, each on both sides; and the norm of one gradient."""
    return [Part("sft", SFT, seed), Part("grpo", GRPO, seed), Part("norm", SFT, seed)]


def run(part: Part, place: Place) -> Figures:
    """The metrics of both sides, step by step."""
    return {"sft": _sft, "grpo": _grpo, "norm": _norm}[part.name](part, place)


def _norm(part: Part, place: Place) -> Figures:
    """The norm of the gradient of the first batch of SFT: in double precision, by our engine, by torch's function."""
    settings = part.settings
    policy = tt.load_policy(place.model, trainable=True)
    rows, _ = encode_demonstrations(_demonstrations(part, place, policy), policy.tokenizer, 512)
    batch = collate(Order(rows, settings["batch"], part.seed)(0), pad_token_id(policy.tokenizer), policy.device)
    policy.backward(-(policy.scores(batch).logp * batch.mask).sum() / batch.mask.sum())
    gradients = [one.grad for one in policy.parameters() if one.grad is not None]
    return {
        "double": float(torch.stack([one.double().square().sum() for one in gradients]).sum().sqrt()),
        "ours": float(policy.total_norm(gradients)),
        "torch": float(torch.nn.utils.get_total_norm(gradients)),
    }


def _demonstrations(part: Part, place: Place, policy: Policy) -> list[Demonstration]:
    """The chosen answers of short pairs."""
    settings = part.settings
    pairs = short_pairs(place.data, policy, settings["prompt"], settings["answer"])
    wanted = settings["batch"] * settings["steps"]
    return [Demonstration(pair.messages, pair.chosen) for pair in pairs[:wanted]]


def _sft(part: Part, place: Place) -> Figures:
    settings, out = part.settings, place.run(part)
    policy = tt.load_policy(place.model)
    records = _demonstrations(part, place, policy)
    file = place.runs / "demonstrations.jsonl"
    write_jsonl(file, map(to_row, records))
    trained = tt.sft(
        model=place.model,
        data=file,
        seed=part.seed,
        out=out,
        quiet=True,
        resume=out.exists(),
        batch_size=settings["batch"],
        held_out=0.0,
        samples=0,
        rouge=0,
        optimiser={"lr": settings["lr"], "warmup": 0.0, "schedule": "linear"},
    )
    ours = [row for row in read_lines(trained.out / "metrics.jsonl") if "loss" in row]
    encoded, _ = encode_demonstrations(records, policy.tokenizer, 512)
    order = Order(encoded, settings["batch"], part.seed)
    rows = [
        {"input_ids": [*row.prompt, *row.response], "completion_mask": [0] * len(row.prompt) + [1] * len(row.response)}
        for step in range(order.steps_per_epoch)
        for row in order(step)
    ]
    folder = place.runs / f"{part.folder}-trl"
    write_jsonl(_made(folder) / "rows.jsonl", rows)
    given = {"batch": settings["batch"], "lr": settings["lr"], "train": str(folder / "rows.jsonl")}
    theirs = peer(place, "sft", folder, model=place.model, seed=part.seed, **given)
    return {
        "loss": _sides([row["loss"] for row in ours], theirs["loss"]),
        "gradient norm": _sides([row["grad_norm"] for row in ours], theirs["norm"]),
    }


def _grpo(part: Part, place: Place) -> Figures:
    settings, out = part.settings, place.run(part)
    prompts = questions(place, tt.load_policy(place.model), settings["longest"])[: settings["train"]]
    record = place.runs / f"{part.folder}-answers.jsonl"
    if not (out / "summary.json").is_file():  # a run that goes on would score some answers twice
        shutil.rmtree(out, ignore_errors=True)
        record.unlink(missing_ok=True)
    os.environ[RECORD] = str(record)
    trained = tt.improve(
        model=place.model,
        prompts=write_prompts(place, "prompts", prompts),
        reward=("bench.quality.scores:recorded_sentiment",),
        recipe="grpo",
        set=(
            f"samples={settings['samples']}",
            f"penalty.coef={settings['beta']}",
            "update.minibatches=1",
            "shaping.missing_end=none",
        ),
        steps=settings["steps"],
        batch_size=settings["prompts_per_step"],
        sampling={"temperature": 1.0, "max_new_tokens": settings["response"]},
        optimiser={"lr": settings["lr"], "eps": settings["eps"], "warmup": 0.0},
        checkpoints={"every": 0},
        seed=part.seed,
        out=out,
        quiet=True,
        resume=out.exists(),
    )
    ours = [row for row in read_lines(trained.out / "metrics.jsonl") if "grad_norm" in row]
    folder = _made(place.runs / f"{part.folder}-trl")
    asked = [json.loads(text) for text in record.read_text().splitlines()]
    firsts = asked[:: settings["samples"]]
    write_jsonl(folder / "prompts.jsonl", [{"prompt": row["messages"]} for row in firsts])
    theirs = peer_grpo(place, part, folder, folder / "prompts.jsonl", answers=str(record))
    return {
        "score": _sides([row["score/mean"] for row in ours], theirs["score"]),
        "gradient norm": _sides([row["grad_norm"] for row in ours], theirs["norm"]),
    }


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _sides(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, list[float]]:
    return {"ours": [float(x) for x in ours], "trl": [float(x) for x in theirs]}


def residuals(line: Line) -> dict[str, tuple[Interval, float, float]]:
    """By metric: the mean over the steps of ours less TRL's with its interval, the largest, and the mean of ours."""
    found = {}
    for name, sides in line.figures.items():
        ours, theirs = np.array(sides["ours"]), np.array(sides["trl"])
        rest = ours - theirs
        half = normal_quantile(0.95) * float(rest.std(ddof=1)) / len(rest) ** 0.5
        mean = Interval(float(rest.mean()), float(rest.mean()) - half, float(rest.mean()) + half)
        found[name] = mean, float(np.abs(rest).max()), float(np.abs(ours).mean())
    return found


TITLE = "## The same curves as TRL's"
CLAIM = (
    "Two programs that compute the same must agree at every step, and their residuals must not be biased: their mean "
    "over the steps is tested, as in TRL's own tests of its invariants."
)


def _norms(line: Line) -> str:
    """What the norms of one gradient are, by each way to compute them."""
    exact, ours, torchs = (line.figures[name] for name in ("double", "ours", "torch"))
    return (
        "The gradient norms are biased because torch sums float32 squares in float32, over the 28 million "
        "numbers of the embedding; Tutelage sums them in double precision. On one batch of SFT the same gradient has a "
        f"norm of {exact:.6f} in double precision, {ours:.6f} by Tutelage and {torchs:.6f} by torch's function, which "
        "TRL logs and clips by."
    )


def section(lines: Sequence[Line]) -> str:
    """What was claimed and what was seen."""
    rows = ["| | steps | mean of ours | ours minus TRL's: mean over steps | largest |", "|---|---|---|---|---|"]
    inside, apart = True, []
    told = [fill(_norms(line), 120) for line in of(lines, "norm")[:1]]
    for line in (line for line in lines if line.part != "norm"):
        for name, (mean, largest, size) in residuals(line).items():
            inside &= abs(mean.value or 0.0) <= TOLERANCE * size
            if (mean.low or 0.0) > 0 or (mean.high or 0.0) < 0:
                apart.append(f"{line.part.upper()}'s {name}")
            shown = " to ".join(f"{x:+.1e}" for x in (mean.low, mean.high) if x is not None)
            cells = [f"{size:.4f}", f"{mean.value:+.1e} ({shown})", f"{largest:.1e}"]
            steps = len(line.figures[name]["ours"])
            rows.append(f"| {line.part.upper()}, {name}, seed {line.seed} | {steps} | {' | '.join(cells)} |")
    verdict = "Every mean residual is" if inside else "Not every mean residual is"
    excluded = f"those of {', '.join(dict.fromkeys(apart))} exclude 0" if apart else "all contain 0"
    made = (
        f"SFT on chosen completions, {SFT['steps']} steps of {SFT['batch']}; GRPO on the sentiment task, "
        f"{GRPO['steps']} steps of {GRPO['prompts_per_step']} prompts × {GRPO['samples']} completions of "
        f"{GRPO['response']} tokens that our side sampled and TRL replayed. All weights in float32, the same initial "
        f"weights, order, schedule and Adam. Intervals are over the steps. {verdict} below {TOLERANCE:g} of its "
        f"metric's size; of the intervals, {excluded}."
    )
    figure = "![Residuals of the gradient norm over the steps, ours and TRL's](results/parity.svg)"
    return "\n\n".join([TITLE, fill(CLAIM, 120), fill(made, 120), "\n".join(rows), *told, figure])


def figures(lines: Sequence[Line]) -> dict[str, str]:
    """Ours less TRL's, as a share of ours, over the steps."""
    series = []
    for colour, name in enumerate(("sft", "grpo")):
        for line in of(lines, name)[:1]:
            sides = line.figures["gradient norm"]
            ours, theirs = np.array(sides["ours"]), np.array(sides["trl"])
            steps = tuple(float(step) for step in range(1, len(ours) + 1))
            series.append(Series(steps, tuple(((ours - theirs) / ours).tolist()), name.upper(), colour=colour))
    axes = Axis("step", low=0, whole=True), Axis("gradient norm, (ours − TRL's) / ours")
    return {
        "parity": standalone(
            draw(Chart("Residuals of the gradient norm", tuple(series), *axes, rules=(Rule(0.0),), width=560))
        )
    }


def _enough(lines: Sequence[Line]) -> bool:
    return bool(of(lines, "sft") or of(lines, "grpo"))


EXPERIMENT = Experiment("parity", "the same curves as TRL's", parts, run, section, figures, _enough)
