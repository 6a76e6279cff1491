"""Reverse-text, prime-rl's smoke task: words written backwards, learnt by SFT first and by GRPO from there."""

import re
from collections.abc import Mapping, Sequence
from random import Random
from textwrap import fill
from typing import Any

import numpy as np

import tutelage as tt
from bench.quality.experiment import Experiment, Figures, Line, Part, Place
from bench.quality.prompts import write_prompts
from bench.quality.scores import reversed_text
from bench.quality.texts import plain, share
from tutelage.base import config
from tutelage.data.record_files import to_row, write_jsonl
from tutelage.data.records import Demonstration, Message, Prompt
from tutelage.data.worlds import ChildrensQuestions
from tutelage.models.policy import Policy
from tutelage.report.figures import Axis, Chart, Rule, Series, draw, standalone
from tutelage.report.figures.plots import smoothed
from tutelage.rollout.inference.completion_records import sample_completions
from tutelage.stats.intervals import ratio_interval
from tutelage.train.run.json_lines import read_lines

SETTINGS: Mapping[str, Any] = {
    "letters": [3, 6],
    "held_out": 60,
    "answers": 2,
    "response": 10,
    "sft": {"rows": 192, "batch": 8, "lr": 5e-5},
    "grpo": {"steps": 30, "prompts_per_step": 4, "samples": 8, "lr": 1e-5, "beta": 0.0},
}
STAGES = ("SmolLM2 as it was", "after SFT", "after GRPO")


def parts(seed: int) -> list[Part]:
    """SFT, GRPO from it, and the measurements."""
    return [Part("reverse", SETTINGS, seed)]


def run(part: Part, place: Place) -> Figures:
    """Train both stages, and measure the held-out words before, between and after."""
    settings = part.settings
    words = _words(*settings["letters"])
    held_out, learnt = words[: settings["held_out"]], words[settings["held_out"] :]
    shown = learnt[: settings["sft"]["rows"]]
    file, out = place.runs / "demonstrations.jsonl", place.run(part)
    write_jsonl(file, (to_row(Demonstration(_asked(w), w[::-1])) for w in shown))
    sft = tt.sft(
        model=place.model,
        data=file,
        batch_size=settings["sft"]["batch"],
        held_out=0.0,
        samples=0,
        rouge=0,
        optimiser={"lr": settings["sft"]["lr"], "warmup": 0.1},
        **_kept(part, out / "sft"),
    )
    rl = settings["grpo"]
    penalty = f"penalty.coef={rl['beta']}" if rl["beta"] else "penalty=none"
    grpo = tt.improve(
        model=str(sft.model),
        prompts=write_prompts(place, "prompts", [Prompt(w, _asked(w)) for w in learnt]),
        reward=("bench.quality.scores:reversed_text",),
        recipe="grpo",
        set=(f"samples={rl['samples']}", penalty, "update.minibatches=1"),
        steps=rl["steps"],
        batch_size=rl["prompts_per_step"],
        sampling={"temperature": 1.0, "max_new_tokens": settings["response"]},
        optimiser={"lr": rl["lr"], "eps": config.POLICY_EPS, "schedule": "constant"},
        **_kept(part, out / "grpo"),
    )
    models = (place.model, sft.model, grpo.model)
    measured = [_measured(part, tt.load_policy(model), held_out) for model in models]
    rows = [row for row in read_lines(grpo.out / "metrics.jsonl") if "score/mean" in row]
    return {
        "words": [len(shown), len(learnt)],
        "scores": dict(zip(STAGES, measured, strict=True)),
        "curve": [round(row["score/mean"], 4) for row in rows],
    }


def _kept(part: Part, out: Any) -> dict[str, Any]:
    return {"out": out, "seed": part.seed, "quiet": True, "resume": out.exists(), "checkpoints": {"every": 0}}


def _words(shortest: int, longest: int) -> list[str]:
    """The words of the embedded questions, shuffled; none reads the same backwards."""
    questions = ChildrensQuestions(0)
    prompts = [*questions.prompts("train"), *questions.prompts("held_out")]
    text = " ".join(prompt.messages[-1].content for prompt in prompts).lower()
    found = {word for word in re.findall(r"[a-z]+", text) if shortest <= len(word) <= longest}
    words = sorted(word for word in found if word != word[::-1])
    Random(0).shuffle(words)
    return words


def _asked(word: str) -> tuple[Message, ...]:
    return (Message("user", f"Reverse the text character by character:\n{word}"),)


def _measured(part: Part, policy: Policy, words: Sequence[str]) -> list[float]:
    """The ratio of each answer to the held-out words."""
    sampling = config.Sampling(temperature=1.0, max_new_tokens=part.settings["response"])
    prompts = [Prompt(word, _asked(word)) for word in words]
    answered = sample_completions(policy, prompts, part.settings["answers"], sampling, seed=1000 + part.seed)
    asked = [prompt.messages[-1].content for prompt in answered.prompts]
    return [round(value, 4) for value in reversed_text(asked, list(answered.texts))]


TITLE = "## Reverse-text"
CLAIM = (
    "Prime-rl's smoke task: after SFT on the form, a model learns by GRPO to write a text backwards; there "
    "Qwen3-0.6B goes from .05 to .6 and more in 20 steps of 128 completions."
)


def section(lines: Sequence[Line]) -> str:
    """What was claimed and what was seen."""
    rows = ["| | ratio on held-out words | written backwards without an error |", "|---|---|---|"]
    first = lines[0].settings
    for stage in STAGES:
        scores = np.concatenate([line.figures["scores"][stage] for line in lines])
        count = len(lines[0].figures["scores"][stage])
        which = np.concatenate([np.arange(count) // first["answers"] + 100_000 * line.seed for line in lines])
        ones = np.ones(len(scores))
        cells = [
            plain(ratio_interval(scores, ones, which)),
            share(ratio_interval((scores == 1.0).astype(float), ones, which)),
        ]
        rows.append(f"| {stage} | {' | '.join(cells)} |")
    shown, learnt = lines[0].figures["words"]
    rl, low, high = first["grpo"], *first["letters"]
    made = (
        f"Words of {low} to {high} letters from the embedded questions. SFT on {shown} of them, batches of "
        f"{first['sft']['batch']}, once, at {first['sft']['lr']:g}; GRPO on {learnt}, {rl['steps']} steps of "
        f"{rl['prompts_per_step']} × {rl['samples']} completions at {rl['lr']:g}, β {rl['beta']:g}; all weights. The "
        f"reward is the ratio of the longest common blocks. Measured on {first['held_out']} other words × "
        f"{first['answers']} completions at temperature 1; seeds: {len({line.seed for line in lines})}. Intervals are "
        "over words."
    )
    figure = "![Mean reward of the rollouts over the steps](results/reverse.svg)"
    return "\n\n".join([TITLE, fill(CLAIM, 120), fill(made, 120), "\n".join(rows), figure])


def figures(lines: Sequence[Line]) -> dict[str, str]:
    """The reward over the steps of GRPO, and what SFT had reached."""
    curves = np.mean([line.figures["curve"] for line in lines], axis=0)
    start = np.mean([line.figures["scores"][STAGES[1]] for line in lines])
    steps = tuple(float(step) for step in range(1, len(curves) + 1))
    series = (
        Series(steps, tuple(curves.tolist()), style="faint"),
        Series(steps, smoothed(curves.tolist(), 7), "GRPO, mean of 7 steps"),
    )
    axes = Axis("step", low=0, whole=True), Axis("mean reward of the rollout")
    rules = (Rule(float(start), "SFT"),)
    return {"reverse": standalone(draw(Chart("Reverse-text by GRPO", series, *axes, rules=rules, width=560)))}


EXPERIMENT = Experiment("reverse", "reverse-text by GRPO from SFT", parts, run, section, figures)
