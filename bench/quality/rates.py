"""Learning rates of LoRA, method by method, beside all weights at the rate that is each command's default for them."""

from collections.abc import Callable, Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np

import tutelage as tt
from bench.quality.chosen import short_pairs
from bench.quality.experiment import Experiment, Figures, Line, Part, Place, of
from bench.quality.prompts import questions, write_prompts
from bench.quality.texts import listed
from tutelage.base import config
from tutelage.commands.dpo.settings import DpoSettings
from tutelage.commands.improve.settings import ImproveSettings
from tutelage.commands.reward.settings import RewardSettings
from tutelage.commands.sft.settings import SftSettings
from tutelage.data.record_files import to_row, write_jsonl
from tutelage.data.records import Demonstration
from tutelage.report.figures import Axis, Chart, Series, draw, standalone
from tutelage.train.run.json_lines import read_lines

SWEPT = (3e-5, 1e-4, 3e-4, 1e-3)
SETTINGS: Mapping[str, Any] = {
    "prompt": 64,
    "answer": 32,
    "pairs": 150,
    "held_out": 0.36,
    "batch": 8,
    "longest": 50,
    "train": 60,
    "steps": 12,
    "prompts_per_step": 4,
    "samples": 6,
    "response": 16,
    "rank": 16,
}
"""A dozen steps of each method."""
DEFAULT: Mapping[str, config.Rates] = {
    "sft": SftSettings.RATES,
    "reward": RewardSettings.RATES,
    "dpo": DpoSettings.RATES,
    "grpo": ImproveSettings.RATES,
    "rloo": ImproveSettings.RATES,
    "ppo": ImproveSettings.RATES,
}
"""The rates that the command of a method has by default."""
MEASURE: Mapping[str, str] = {
    "sft": "held-out loss, nats per token",
    "reward": "held-out loss",
    "dpo": "held-out loss",
    "grpo": "score",
    "rloo": "score",
    "ppo": "score",
}
"""What is looked at: a loss, of which less is better, or the mean score of the last four rollouts."""
LAST = 4


def parts(seed: int) -> list[Part]:
    """For each method, all weights at their default rate and adapters at each rate of the sweep."""
    found = []
    for method, usual in DEFAULT.items():
        for rank, rate in ((0, usual.all), *((SETTINGS["rank"], rate) for rate in SWEPT)):
            own = {**SETTINGS, "method": method, "rank": rank, "lr": rate}
            found.append(Part(f"{method} {'lora' if rank else 'full'} {rate:g}", own, seed))
    return found


def run(part: Part, place: Place) -> Figures:
    """Train, and read what the run measured."""
    return RUNS[part.settings["method"]](part, place)


def _common(part: Part, place: Place) -> dict[str, Any]:
    """Settings of every command: its default optimiser but for the rate."""
    settings, out = part.settings, place.run(part)
    usual = {"sft": {"warmup": 0.03, "schedule": "cosine"}, "reward": {"warmup": 0.05}, "dpo": {"warmup": 0.1}}.get(
        settings["method"], {"eps": 1e-5}
    )
    return {
        "model": place.model,
        "out": out,
        "seed": part.seed,
        "quiet": True,
        "resume": out.exists(),
        "checkpoints": {"every": 0},
        "lora": {"rank": settings["rank"]},
        "optimiser": {"lr": settings["lr"], **usual},
    }


def _pairs(part: Part, place: Place) -> list[Any]:
    settings = part.settings
    policy = tt.load_policy(place.model)
    pairs = short_pairs(place.data, policy, settings["prompt"], settings["answer"])
    return [pair for pair in pairs if pair.chosen != pair.rejected][: settings["pairs"]]


def _learnt(part: Part, place: Place, train: Callable[..., Any], rows: Sequence[Any], name: str) -> Figures:
    """A run on rows of which a share is held out; the held-out figures of its looks: one before the first step, which a
    reward model has not, and one after the last."""
    settings, file = part.settings, place.runs / f"{name}.jsonl"
    write_jsonl(file, map(to_row, rows))
    given = {"batch_size": settings["batch"], "held_out": settings["held_out"], "evaluate_every": 1000}
    silent = {"samples": 0, "rouge": 0} if name == "demonstrations" else {}
    trained = train(data=file, **given, **silent, **_common(part, place))
    looks = [row for row in read_lines(trained.out / "metrics.jsonl") if "held_out/loss" in row]
    names = ("held_out/loss", "held_out/accuracy")
    return {name: [look[name] for look in looks] for name in names if name in looks[-1]}


def _sft(part: Part, place: Place) -> Figures:
    rows = [Demonstration(pair.messages, pair.chosen) for pair in _pairs(part, place)]
    return _learnt(part, place, tt.sft, rows, "demonstrations")


def _reward(part: Part, place: Place) -> Figures:
    return _learnt(part, place, tt.reward, _pairs(part, place), "pairs")


def _dpo(part: Part, place: Place) -> Figures:
    return _learnt(part, place, tt.dpo, _pairs(part, place), "pairs")


def _improve(part: Part, place: Place) -> Figures:
    settings = part.settings
    prompts = questions(place, tt.load_policy(place.model), settings["longest"])[: settings["train"]]
    once = () if settings["method"] == "ppo" else ("update.minibatches=1",)
    trained = tt.improve(
        prompts=write_prompts(place, "prompts", prompts),
        reward=("bench.quality.scores:sentiment",),
        recipe=settings["method"],
        set=(f"samples={settings['samples']}", "shaping.missing_end=none", *once),
        steps=settings["steps"],
        batch_size=settings["prompts_per_step"],
        sampling={"temperature": 1.0, "max_new_tokens": settings["response"]},
        **_common(part, place),
    )
    rows = [row for row in read_lines(trained.out / "metrics.jsonl") if "score/mean" in row]
    return {"score": [row["score/mean"] for row in rows], "kl": [row["kl/reference"] for row in rows]}


RUNS: Mapping[str, Callable[[Part, Place], Figures]] = {
    "sft": _sft,
    "reward": _reward,
    "dpo": _dpo,
    "grpo": _improve,
    "rloo": _improve,
    "ppo": _improve,
}


def outcome(line: Line) -> tuple[float, float]:
    """The measure before and after: a loss, or the mean score of the first and of the last rollouts. Before it has
    learnt, a reward model knows nothing of a pair: ln 2."""
    if "score" in line.figures:
        scores = line.figures["score"]
        return float(np.mean(scores[:LAST])), float(np.mean(scores[-LAST:]))
    *before, after = line.figures["held_out/loss"]
    return float(before[0] if before else np.log(2)), float(after)


def section(lines: Sequence[Line]) -> str:
    """What was claimed and what was seen."""
    rows = ["| method | weights | rate | measure | before | after | |", "|---|---|---|---|---|---|---|"]
    for part in parts(0):
        own = of(lines, part.name)
        if own:
            before, after = np.mean([outcome(line) for line in own], axis=0)
            method, rank, rate = (part.settings[key] for key in ("method", "rank", "lr"))
            kind = f"LoRA, rank {rank}" if rank else "all"
            told = f"{rate:g}, default" if rate == DEFAULT[method].of(config.Lora(rank=rank)) else f"{rate:g}"
            cells = [listed([method]), kind, told, MEASURE[method], f"{before:.3f}", f"{after:.3f}"]
            rows.append(f"| {' | '.join([*cells, _beside(own)])} |")
    made = (
        f"{SETTINGS['steps']} steps of each. SFT, reward model and DPO: {SETTINGS['pairs']} short pairs of hh-rlhf, "
        f"{SETTINGS['held_out']:.0%} of them held out, batches of {SETTINGS['batch']}. GRPO, RLOO and PPO: the "
        f"sentiment task, {SETTINGS['prompts_per_step']} prompts × {SETTINGS['samples']} completions of "
        f"{SETTINGS['response']} tokens a step; the score is the mean of the first and of the last {LAST} rollouts. "
        f"Everything else is the default of the command; seeds: {len({line.seed for line in lines})}."
    )
    figure = "![Gain over the learning rate, by method](results/rates.svg)"
    return "\n\n".join([TITLE, fill(CLAIM, 120), fill(made, 120), "\n".join(rows), fill(CHOICE, 120), figure])


TITLE = "## Learning rates of LoRA"
CLAIM = "Adapters need about ten times the learning rate of all weights (Schulman et al. 2025, LoRA Without Regret)."
CHOICE = (
    "The defaults with LoRA follow: for SFT, rejection sampling and reward models the rate that matches the result of "
    "all weights at their default; for DPO the largest before the held-out accuracy begins to fall; for reinforcement "
    "learning and distillation the largest that stays as near to the model as training all weights does, since a "
    "longer run goes further. In reinforcement learning the differences between scores of so few rollouts are noise."
)


def _beside(lines: Sequence[Line]) -> str:
    """What stands beside the measure: the KL at the end, or the held-out accuracy."""
    figures = [line.figures for line in lines]
    if "kl" in figures[0]:
        return f"KL {np.mean([np.mean(one['kl'][-LAST:]) for one in figures]):.2f} nats"
    if "held_out/accuracy" in figures[0]:
        return f"accuracy {np.mean([one['held_out/accuracy'][-1] for one in figures]):.0%}"
    return ""


def figures(lines: Sequence[Line]) -> dict[str, str]:
    """What was gained over the rate, method by method, as a share of the most that any rate gained."""
    series = []
    for colour, method in enumerate(DEFAULT):
        gains: dict[float, list[float]] = {}
        for line in lines:
            if line.settings["method"] == method and line.settings["rank"]:
                before, after = outcome(line)
                gain = after - before if "score" in line.figures else before - after
                gains.setdefault(line.settings["lr"], []).append(gain)
        if gains:
            rates = tuple(sorted(gains))
            means = [float(np.mean(gains[rate])) for rate in rates]
            most = max(map(abs, means)) or 1.0
            series.append(Series(rates, tuple(mean / most for mean in means), listed([method]), colour=colour))
    axes = Axis("learning rate of LoRA", log=True), Axis("gain, as a share of the largest")
    return {"rates": standalone(draw(Chart("Gain over the learning rate", tuple(series), *axes, width=560)))}


EXPERIMENT = Experiment("rates", "learning rates of LoRA by method", parts, run, section, figures)
