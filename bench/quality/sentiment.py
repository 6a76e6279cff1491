"""Answers of a kind tone: the sentiment task of Ziegler et al. 2019 (arXiv 1909.08593), score against KL.

The reward is the VADER lexicon's compound score. GRPO (several β), RLOO and PPO write as many answers as DPO is given
of the model as it was; TRL's GRPO has the settings of ours. All are measured on held-out prompts, beside best-of-n.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import tutelage as tt
from bench.quality.experiment import Experiment, Figures, Part, Place
from bench.quality.peers import peer_grpo
from bench.quality.prompts import in_order, questions, write_prompts
from bench.quality.scores import sentiment
from bench.quality.sentiment_page import enough, figures, section
from tutelage.base import config
from tutelage.data.record_files import write_jsonl
from tutelage.data.records import Prompt
from tutelage.models.policy import Policy, response_logp
from tutelage.rollout.inference.completion_records import sample_completions
from tutelage.train.run.json_lines import read_lines

Point: TypeAlias = Sequence[float | None]
"""KL from the model as it was, where it is known, and mean score of a rollout."""
REWARD = "bench.quality.scores:sentiment"
SETTINGS: Mapping[str, Any] = {
    "longest": 55,
    "train": 80,
    "held_out": 48,
    "answers": 2,
    "steps": 20,
    "prompts_per_step": 4,
    "samples": 6,
    "response": 20,
    "lr": 2e-5,
    "eps": 1e-5,
}
"""All weights, temperature 1, a linear schedule without warm-up; the same number of answers for every method."""
METHODS: Mapping[str, Mapping[str, Any]] = {
    "base": {},
    "grpo": {"recipe": "grpo", "beta": 0.04},
    "trl": {"beta": 0.04},
    "best-of-n": {"n": 16},
    "rloo": {"recipe": "rloo", "beta": 0.05},
    "grpo, β 0.2": {"recipe": "grpo", "beta": 0.2},
    "grpo, β 0": {"recipe": "grpo", "beta": 0.0},
    "dpo": {"loss": "dpo", "batch": 8, "beta": 0.1},
    "ppo": {"recipe": "ppo", "beta": 0.05, "changes": ["update.epochs=2"]},
}


def parts(seed: int) -> list[Part]:
    """A run of each method."""
    return [Part(name, {**SETTINGS, **own}, seed) for name, own in METHODS.items()]


def run(part: Part, place: Place) -> Figures:
    """Train by a method, and measure its answers to the held-out prompts."""
    base = tt.load_policy(place.model)
    asked = questions(place, base, part.settings["longest"])
    train, aside = np.split(np.array(asked, dtype=object), [part.settings["train"]])
    held_out = list(aside[: part.settings["held_out"]])
    if part.name == "best-of-n":
        return _best_of_n(part, base, held_out)
    if part.name == "base":
        return _measured(part, base, base, held_out)
    train_run = _theirs if part.name == "trl" else _offline if "loss" in part.settings else _ours
    folder, curve = train_run(part, place, list(train))
    return {"curve": curve} | _measured(part, tt.load_policy(folder), base, held_out)


def _ours(part: Part, place: Place, prompts: Sequence[Prompt]) -> tuple[Path, list[Point]]:
    settings, out = part.settings, place.run(part)
    penalty = f"penalty.coef={settings['beta']}" if settings["beta"] else "penalty=none"
    trained = tt.improve(
        model=place.model,
        prompts=write_prompts(place, "prompts", prompts),
        reward=(REWARD,),
        recipe=settings["recipe"],
        set=(
            f"samples={settings['samples']}",
            penalty,
            "update.minibatches=1",
            "shaping.missing_end=none",
            *settings.get("changes", ()),
        ),
        steps=settings["steps"],
        batch_size=settings["prompts_per_step"],
        sampling=_sampling(settings),
        optimiser=_optimiser(settings),
        **_kept(part, out),
    )
    rows = [row for row in read_lines(out / "metrics.jsonl") if "score/mean" in row]
    return trained.model, [[row.get("kl/reference"), row["score/mean"]] for row in rows]


def _offline(part: Part, place: Place, prompts: Sequence[Prompt]) -> tuple[Path, list[Point]]:
    """DPO on answers of the model as it was: the best against the worst of each prompt."""
    settings, out = part.settings, place.run(part)
    base, file = tt.load_policy(place.model), place.runs / f"pairs-{part.seed}.jsonl"
    answered = sample_completions(
        base, prompts, settings["samples"], config.Sampling(**_sampling(settings)), seed=part.seed
    )
    rows = []
    for number, prompt in enumerate(prompts):
        start = number * settings["samples"]
        texts = answered.texts[start : start + settings["samples"]]
        ranked = sorted(zip(sentiment([], list(texts)), texts, strict=True))
        (low, rejected), (high, chosen) = ranked[0], ranked[-1]
        if low < high:
            rows.append({"prompt": prompt.messages[-1].content, "chosen": chosen, "rejected": rejected})
    write_jsonl(file, rows)
    trained = tt.dpo(
        model=place.model,
        data=file,
        loss=settings["loss"],
        set=(f"beta={settings['beta']}",),
        batch_size=settings["batch"],
        held_out=0.0,
        optimiser=_optimiser(settings),
        **_kept(part, out),
    )
    return trained.model, []


def _theirs(part: Part, place: Place, prompts: Sequence[Prompt]) -> tuple[Path, list[Point]]:
    settings, out = part.settings, place.run(part)
    batch, steps = settings["prompts_per_step"], settings["steps"]
    read = in_order(prompts, batch, part.seed, steps)
    out.mkdir(parents=True, exist_ok=True)
    rows = [{"prompt": [{"role": turn.role, "content": turn.content} for turn in one.messages]} for one in read]
    write_jsonl(out / "prompts.jsonl", rows)
    found = peer_grpo(place, part, out, out / "prompts.jsonl")
    return out / "model", [[None, round(score, 4)] for score in found["score"]]


def _kept(part: Part, out: Path) -> dict[str, Any]:
    return {
        "out": out,
        "seed": part.seed,
        "quiet": True,
        "resume": out.exists(),
        "checkpoints": {"every": 10, "keep": 1},
    }


def _sampling(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"temperature": 1.0, "max_new_tokens": settings["response"]}


def _optimiser(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {"lr": settings["lr"], "eps": settings["eps"], "warmup": 0.0}


def _measured(part: Part, policy: Policy, base: Policy, prompts: Sequence[Prompt]) -> dict[str, Any]:
    """Score of each answer to the held-out prompts, and log π − log π₀ of it, whose mean is the KL in nats."""
    sampling = config.Sampling(**_sampling(part.settings))
    answered = sample_completions(policy, prompts, part.settings["answers"], sampling, seed=1000 + part.seed)
    rollout = answered.rollout
    drift = ((rollout.logp - response_logp(base, rollout)) * rollout.mask).sum(1)
    scores = sentiment([], list(answered.texts))
    return {"scores": np.round(scores, 4).tolist(), "drift": np.round(drift.tolist(), 3).tolist()}


def _best_of_n(part: Part, base: Policy, prompts: Sequence[Prompt]) -> dict[str, Any]:
    """The scores of n answers to each prompt."""
    n = part.settings["n"]
    sampling = config.Sampling(**_sampling(part.settings))
    answered = sample_completions(base, prompts, n, sampling, seed=2000 + part.seed)
    scores = np.array(sentiment([], list(answered.texts))).reshape(-1, n)
    return {"table": np.round(scores, 4).tolist()}


EXPERIMENT = Experiment(
    "sentiment", "score against KL, as in Ziegler et al. 2019", parts, run, section, figures, enough
)
