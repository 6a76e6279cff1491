"""A reward model on hh-rlhf's helpful pairs, beside TRL's RewardTrainer at equal steps and a baseline of length alone.

Published accuracies on HH-RLHF are 70 to 72 % for models of a billion parameters and more, trained on tens of thousands
of pairs (Bai et al. 2022, arXiv 2204.05862). Length alone explains much of the preferences (Singhal et al. 2023, arXiv
2310.03716).
"""

from collections.abc import Iterable, Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np

import tutelage as tt
from bench.quality.chosen import short_pairs
from bench.quality.experiment import Experiment, Figures, Line, Part, Place, of
from bench.quality.peers import peer
from bench.quality.texts import listed, share, signed
from tutelage.base import config
from tutelage.data.pairing import split_by_prompt
from tutelage.data.record_files import to_row, write_jsonl
from tutelage.data.records import Preference
from tutelage.models.heads import new_reward_model
from tutelage.report.figures import Axis, Chart, Rule, Series, draw, standalone
from tutelage.report.figures.plots import smoothed
from tutelage.stats.intervals import Interval, ratio_interval
from tutelage.train.run.json_lines import read_lines
from tutelage.train.supervised.batches import Order, encode_preferences
from tutelage.train.supervised.reward_model import pair_scores

SETTINGS: Mapping[str, Any] = {
    "prompt": 96,
    "answer": 64,
    "train": 192,
    "test": 200,
    "batch": 8,
    "lr": 3e-5,
    "schedule": "linear",
}
"""All weights are trained, from the same head, over the same pairs in the same order."""
SIDES = ("ours", "trl")
BUDGET = 2048


def parts(seed: int) -> list[Part]:
    """Each side."""
    return [Part(side, SETTINGS, seed) for side in SIDES]


def run(part: Part, place: Place) -> Figures:
    """Train one side, and score the pairs aside."""
    settings = part.settings
    train, test = _pairs(place, settings, part.seed)
    found = (_ours if part.name == "ours" else _theirs)(part, place, train, test)
    lengths = [len(one.chosen) - len(one.rejected) for one in test]
    return found | {"pairs": len(train), "length": lengths, "prompts": _numbers(test)}


def _pairs(place: Place, settings: Mapping[str, Any], seed: int) -> tuple[list[Preference], list[Preference]]:
    """Pairs to learn, and others to test: no prompt is in both."""
    pairs = short_pairs(place.data, tt.load_policy(place.model), settings["prompt"], settings["answer"])
    different = [pair for pair in pairs if pair.chosen != pair.rejected]
    train, test = split_by_prompt(different, 0.5, seed)
    return list(train[: settings["train"]]), list(test[: settings["test"]])


def _numbers(pairs: Sequence[Preference]) -> list[int]:
    """A number for each pair, the same for pairs of the same prompt."""
    prompts = [str(pair.messages) for pair in pairs]
    return [prompts.index(prompt) for prompt in prompts]


def _ours(part: Part, place: Place, train: Sequence[Preference], test: Sequence[Preference]) -> dict[str, Any]:
    settings, out = part.settings, place.run(part)
    file = place.runs / f"train-{part.seed}.jsonl"
    write_jsonl(file, map(to_row, train))
    trained = tt.reward(
        model=place.model,
        data=file,
        out=out,
        seed=part.seed,
        resume=out.exists(),
        batch_size=settings["batch"],
        held_out=0.0,
        optimiser={"lr": settings["lr"], "warmup": 0.0, "schedule": settings["schedule"]},
    )
    model = trained.load()
    encoded, _ = encode_preferences(test, model.tokenizer, model.context or 2048)
    chosen, rejected = pair_scores(model, encoded, BUDGET)
    loss = [row["loss"] for row in read_lines(out / "metrics.jsonl") if "loss" in row]
    return {"loss": _rounded(loss), "differences": _rounded((chosen - rejected).tolist())}


def _theirs(part: Part, place: Place, train: Sequence[Preference], test: Sequence[Preference]) -> dict[str, Any]:
    settings, out = part.settings, place.run(part)
    order = Order(train, settings["batch"], part.seed)
    read = [pair for step in range(order.steps_per_epoch) for pair in order(step)]
    out.mkdir(parents=True, exist_ok=True)
    for name, pairs in (("train", read), ("test", test)):
        write_jsonl(out / f"{name}.jsonl", map(_conversations, pairs))
    start = out / "start"
    if not (start / "config.json").is_file():
        new_reward_model(config.Model(path=place.model), config.Lora(), seed=part.seed).save(start)
    files = {name: str(out / f"{name}.jsonl") for name in ("train", "test")}
    given = {"batch": settings["batch"], "lr": settings["lr"], "schedule": settings["schedule"]}
    found = peer(place, "reward", out, model=str(start), seed=part.seed, **files, **given)
    return {name: _rounded(values) for name, values in found.items()}


def _conversations(pair: Preference) -> dict[str, Any]:
    turns = [{"role": turn.role, "content": turn.content} for turn in pair.messages]
    sides = {"chosen": pair.chosen, "rejected": pair.rejected}
    return {side: [*turns, {"role": "assistant", "content": text}] for side, text in sides.items()}


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 5) for value in values]


def accuracies(lines: Sequence[Line]) -> dict[str, Interval]:
    """Accuracy of each side and of length alone, and the difference of the sides on the same pairs."""
    found = {}
    right = {side: _right(of(lines, side), "differences") for side in SIDES if of(lines, side)}
    first = of(lines, next(iter(right)))
    which, ones = _clusters(first), np.ones(len(_clusters(first)))
    for side, values in right.items():
        found[side] = ratio_interval(values, ones, which)
    found["length"] = ratio_interval(_right(first, "length"), ones, which)
    if len(right) == 2 and len({len(values) for values in right.values()}) == 1:
        found["difference"] = ratio_interval(right["ours"] - right["trl"], ones, which)
    return found


def _right(lines: Sequence[Line], name: str) -> Any:
    """1 where the chosen answer has more, .5 where both have the same. Float[N] over all seeds"""
    values = np.concatenate([line.figures[name] for line in lines])
    return (np.sign(values) + 1) / 2


def _clusters(lines: Sequence[Line]) -> Any:
    """A number for each prompt of each seed. Int[N]"""
    return np.concatenate([np.array(line.figures["prompts"]) + 100_000 * line.seed for line in lines])


TITLE = "## A reward model of hh-rlhf's helpful pairs"
CLAIM = (
    "Models of a billion parameters and more reach 70 to 72 % of HH-RLHF's pairs after tens of thousands of them (Bai "
    "et al. 2022, arXiv 2204.05862); length alone explains much of such preferences (Singhal et al. 2023, arXiv "
    "2310.03716)."
)


def section(lines: Sequence[Line]) -> str:
    """What was claimed and what was seen."""
    seen, first = accuracies(lines), lines[0]
    rows = ["| | accuracy | CPU seconds |", "|---|---|---|"]
    for side in SIDES:
        if own := of(lines, side):
            seconds = np.mean([line.processor_seconds for line in own])
            rows.append(f"| {listed([side])} | {share(seen[side])} | {seconds:.0f} |")
    rows.append(f"| the longer completion, in characters | {share(seen['length'])} | |")
    settings = first.settings
    made = (
        f"{first.figures['pairs']} pairs (prompts of at most {settings['prompt']} tokens, completions of at most "
        f"{settings['answer']}), all weights, {len(first.figures['loss'])} steps of {settings['batch']} at a rate of "
        f"{settings['lr']:g} that falls to 0, the same initial weights and order on both sides; tested on "
        f"{len(first.figures['differences'])} pairs of other prompts; seeds: {len({line.seed for line in lines})}. "
        "Intervals are over prompts; CPU seconds include loading, training and scoring of the test pairs."
    )
    sentence = f"{CLAIM} The few pairs used here are far from that."
    if "difference" in seen:
        sentence += f" Tutelage minus TRL, on the same pairs: {signed(seen['difference'], 3)}."
    figure = "![Loss over the steps, ours and TRL's](results/helpful.svg)"
    return "\n\n".join([TITLE, fill(sentence, 120), fill(made, 120), "\n".join(rows), figure])


def figures(lines: Sequence[Line]) -> dict[str, str]:
    """The losses over the steps, as running averages; means over the seeds."""
    series = []
    for colour, side in enumerate(side for side in SIDES if of(lines, side)):
        loss = np.mean([line.figures["loss"] for line in of(lines, side)], axis=0)
        steps = tuple(float(step) for step in range(1, len(loss) + 1))
        series.append(Series(steps, smoothed(loss.tolist(), 7), listed([side]), colour=colour))
    axes = Axis("step", low=0, whole=True), Axis("loss, mean of 7 steps")
    chart = Chart("Loss of the reward model", tuple(series), *axes, rules=(Rule(0.693, "log 2"),), width=560)
    return {"helpful": standalone(draw(chart))}


EXPERIMENT = Experiment("helpful", "a reward model of real preferences", parts, run, section, figures)
