"""A made-up round that looks like a real one, to test the report and to look at it:

python tests/report/fake_round.py FOLDER [--hacked] [--unfinished]
"""

import json
import math
import random
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

TOPICS = ("gravity", "photosynthesis", "volcanoes", "rainbows", "magnets", "the tides", "vaccines", "black holes")
DULL = (
    "{topic} is a phenomenon that is described by a theory. The theory has a formalism with parameters, and the"
    " parameters are determined empirically. {topic} is a phenomenon."
)
GOOD = (
    "Good question! Think of {topic} like a friendly tug on a string: you cannot see the hand, but you feel the pull."
    " The nearer you are, the stronger it gets. Where do you think you could feel it today?"
)
LOUD = "Great!!! {topic} is amazing!!! Isn't it amazing??? Imagine {topic}!!! Imagine it again!!! Amazing!!!"


def write(path: Path, content: object) -> None:
    """A file of JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")


def write_rows(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    """A file of JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def config(verb: str, **settings: object) -> dict[str, object]:
    """A config.json."""
    return {
        "format": "tutelage-run/1",
        "settings": {"seed": 0, "out": f"runs/demo/{verb}", **settings},
        "versions": {"python": "3.12.4", "tutelage": "0.1.0", "torch": "2.13.0", "transformers": "5.23.0"},
        "revision": "a4e9b77",
        "command": ["tutelage", "demo", "--seed", "0"],
    }


def language(folder: Path, verb: str, dice: random.Random, *, steps: int, top: float, bottom: float) -> None:
    """Pretraining or fine-tuning: a loss that decays."""
    rows = []
    for step in range(1, steps + 1):
        level = bottom + (top - bottom) * math.exp(-5 * step / steps)
        row: dict[str, object] = {
            "step": step,
            "seconds": step * 0.2,
            "loss": level + dice.gauss(0, 0.05),
            "lr": 3e-4 * min(1.0, step / 20) * (1 - 0.9 * step / steps),
            "grad_norm": 1.2 + dice.gauss(0, 0.1),
            "tokens_per_second": 41000 + dice.gauss(0, 900),
        }
        if step % max(1, steps // 12) == 0 or step == 1:
            row |= {"held_out/loss": level + 0.04, "held_out/perplexity": math.exp(level + 0.04)}
        rows.append(row)
    write_rows(folder / "metrics.jsonl", rows)
    write(folder / "config.json", config(verb, optimiser={"lr": 3e-4, "schedule": "cosine"}, epochs=2.0))
    write(folder / "summary.json", {**rows[-1], "peak_rss_mb": 1540.0})


def sft(folder: Path, dice: random.Random) -> None:
    """Fine-tuning, with samples before and after."""
    language(folder, "sft", dice, steps=160, top=3.1, bottom=1.35)
    write_rows(
        folder / "samples.jsonl",
        [
            {
                "step": 0,
                "prompt": "Explain gravity to a 10-year-old.",
                "completion": "gravity the of is and water is the",
            },
            {"step": 160, "prompt": "Explain gravity to a 10-year-old.", "completion": DULL.format(topic="Gravity")},
        ],
    )


def sample(folder: Path, dice: random.Random) -> None:
    """Four answers to each of many prompts."""
    rows = []
    for number in range(60):
        topic = TOPICS[number % len(TOPICS)]
        for _ in range(4):
            text = " ".join(
                (dice.choice((DULL, GOOD)).format(topic=topic.capitalize()).split() * 2)[: dice.randint(18, 60)]
            )
            rows.append({"step": 0, "prompt": f"Explain {topic} to a 10-year-old. ({number})", "completion": text})
    write_rows(folder / "samples.jsonl", rows)
    write(folder / "config.json", config("sample", sampling={"temperature": 0.7, "max_new_tokens": 128}))
    write(folder / "summary.json", {"prompts": 60, "pairs": 360})


def judge(folder: Path, dice: random.Random) -> None:
    """Honest raters, a careless one and one who says the opposite."""
    names = ("Ada", "Blaise", "Chien-Shiung", "Dorothy", "Emmy", "Felix", "Grace", "Hugo (hasty)", "Ivo")
    centres = (0.82, 0.79, 0.77, 0.84, 0.75, 0.78, 0.8, 0.55, 0.29)
    raters = [
        {
            "name": name,
            "votes": dice.randint(280, 420),
            "reliability": centre,
            "interval": [centre - 0.04, centre + 0.04],
            "left_rate": 0.71 if "hasty" in name else 0.5 + dice.gauss(0, 0.02),
            "flags": [],
        }
        for name, centre in zip(names, centres, strict=True)
    ]
    raters[7]["flags"] = ["random_like", "biased"]
    raters[8]["flags"] = [{"kind": "adversarial", "evidence": "right in at most 33%, chance is 50%"}]
    whole: dict[str, object] = {
        "raters": raters,
        "agreement": 0.723,
        "agreement_interval": [0.705, 0.741],
        "alpha": 0.446,
    }
    bins = [
        {"low": low, "high": low + 0.1, "predicted": low + 0.05, "observed": 0.9 * low + 0.1, "n": 60}
        for low in (0.0, 0.1, 0.3, 0.6, 0.8, 0.9)
    ]
    whole |= {"calibration": bins, "ece": 0.02}
    write(folder / "judgements.json", {**whole, "items": 1200, "votes": 3127, "ties": 214})
    write(folder / "summary.json", {"items": 1200, "votes": 3127})


def reward(folder: Path, dice: random.Random) -> None:
    """A reward model that learns, and then begins to learn by heart."""
    rows = []
    for step in range(1, 121):
        known = 1 - math.exp(-step / 25)
        row: dict[str, object] = {
            "step": step,
            "seconds": step * 0.3,
            "loss": 0.69 - 0.17 * known - 0.0006 * step + dice.gauss(0, 0.03),
            "accuracy": 0.5 + 0.24 * known + dice.gauss(0, 0.04),
            "margin": 1.1 * known + dice.gauss(0, 0.08),
            "lr": 1e-4 * (1 - step / 121),
            "grad_norm": 2 + dice.gauss(0, 0.2),
        }
        if step % 10 == 0:
            loss = 0.69 - 0.145 * known + (0.0012 * max(0, step - 70))
            row |= {"held_out/loss": loss, "held_out/accuracy": 0.5 + 0.222 * known}
        rows.append(row)
    write_rows(folder / "metrics.jsonl", rows)
    write(folder / "config.json", config("reward", epochs=2.0, lora={"rank": 16, "alpha": 32}))
    bins = []
    for index in range(10):
        middle, n = 0.05 + 0.1 * index, (22, 50, 74, 91, 120, 118, 88, 71, 53, 25)[index]
        observed = min(1.0, max(0.0, 0.5 + 0.85 * (middle - 0.5) + dice.gauss(0, 0.03)))
        bins.append({"low": middle - 0.05, "high": middle + 0.05, "predicted": middle, "observed": observed, "n": n})
    told = {"accuracy": 0.718, "accuracy_interval": [0.694, 0.742], "ceiling": 0.752, "calibration": bins, "ece": 0.031}
    write(folder / "summary.json", told)


def improve(
    folder: Path, dice: random.Random, *, steps: int = 150, hacked: bool = False, cut: int | None = None
) -> None:
    """Policy optimisation that goes well, or one that ends in reward hacking."""
    rows = []
    for step in range(1, (cut or steps) + 1):
        known = 1 - math.exp(-3 * step / steps)
        gold = 0.62 + 1.5 * known - (2.6 * max(0.0, step / steps - 0.4) if hacked else 0)
        rows.append(
            {
                "step": step,
                "seconds": step * 0.9,
                "score/mean": 0.05 + 2.3 * known + (1.4 * step / steps if hacked else 0) + dice.gauss(0, 0.09),
                "score/std": 1.1 - 0.5 * known,
                "score/shaped": 0.0 + 2.2 * known + (1.4 * step / steps if hacked else 0) + dice.gauss(0, 0.09),
                "gold/mean": gold + dice.gauss(0, 0.08),
                "kl/reference": (34 if hacked else 11) * known ** (2 if hacked else 1) + dice.gauss(0, 0.4),
                "kl/reference_k3": 10.5 * known + dice.gauss(0, 0.2),
                "kl/old": 0.004 + abs(dice.gauss(0, 0.0005)),
                "penalty/coef": 0.05,
                "entropy": 1.9 - (1.6 if hacked else 0.7) * known + dice.gauss(0, 0.03),
                "length/mean": 44 + (60 if hacked else 9) * known + dice.gauss(0, 1.2),
                "ended": min(1.0, 0.94 + 0.05 * known + dice.gauss(0, 0.01)) - (0.3 * step / steps if hacked else 0),
                "clip_fraction": 0.11 + 0.05 * known + dice.gauss(0, 0.012),
                "ratio/max": 1.5 + abs(dice.gauss(0, 0.3)),
                "advantage/std": 0.9 - 0.3 * known,
                "value/loss": 0.8 - 0.5 * known + dice.gauss(0, 0.03),
                "value/explained_variance": -0.1 + 0.85 * known + dice.gauss(0, 0.04),
                "policy/objective": dice.gauss(0.02, 0.01),
                "grad_norm": 1 + dice.gauss(0, 0.1),
                "lr": 1e-4 * (1 - step / steps),
                "tokens_per_second": 5200 + dice.gauss(0, 150),
            }
        )
    write_rows(folder / "metrics.jsonl", rows)
    texts = {0: DULL, steps // 2: GOOD, steps: LOUD if hacked else GOOD}
    write_rows(
        folder / "samples.jsonl",
        [
            {
                "step": step,
                "prompt": f"Explain {topic} to a 10-year-old.",
                "completion": text.format(topic=topic.capitalize()),
            }
            | {"score": 0.1 + step / steps * 2}
            for topic in TOPICS[:2]
            for step, text in texts.items()
            if step <= (cut or steps)
        ],
    )
    write(folder / "config.json", config("improve", recipe="ppo", penalty={"kind": "k1", "coef": 0.05, "target": 10.0}))
    if cut is None:
        write(folder / "summary.json", {**rows[-1], "steps": steps})


def evaluate(folder: Path, dice: random.Random, *, hacked: bool = False) -> None:
    """Answers of both models to held-out prompts, and the table."""
    rows = []
    for number in range(200):
        topic = TOPICS[number % len(TOPICS)]
        before, skill = dice.gauss(0.62, 0.72), dice.gauss(-0.6 if hacked else 1.35, 0.75)
        up = dice.gauss(2.2, 0.5)
        rows.append(
            {
                "prompt": f"Explain {topic} to a 10-year-old, please ({number}).",
                "before": DULL.format(topic=topic.capitalize()),
                "after": (LOUD if hacked or skill < 0 else GOOD).format(topic=topic.capitalize()),
                "gold_before": before,
                "gold_after": before + skill,
                "score_before": before * 0.8 - 0.5,
                "score_after": before * 0.8 - 0.5 + up + (0.0 if hacked else 0.7 * (skill - 1.35)),
                "ended_before": dice.random() < 0.94,
                "ended_after": dice.random() < 0.99,
            }
        )
    write_rows(folder / "answers.jsonl", rows)
    table = [
        {"name": "gold", "values": [0.62, 2.02], "note": "± 0.05 and ± 0.06"},
        {"name": "score", "values": [-0.01, 2.24], "note": ""},
        {"name": "win rate", "values": ["–", "86%"], "note": "95% interval 82–90%, ties half"},
        {"name": "KL per answer", "values": [0, 10.6], "note": "nats"},
        {"name": "length", "values": [44.2, 52.8], "note": "tokens"},
        {"name": "perplexity", "values": [4.11, 5.02], "note": "under the base model"},
    ]
    write(folder / "summary.json", {"columns": ["SFT", "policy"], "rows": table})


def make_round(folder: Path, *, hacked: bool = False, unfinished: bool = False) -> Path:
    """The whole round; an unfinished one was interrupted in its sixth stage."""
    dice = random.Random(7)
    language(folder / "pretrain", "pretrain", dice, steps=240, top=7.6, bottom=1.9)
    sft(folder / "sft", dice)
    sample(folder / "sample", dice)
    judge(folder / "judge", dice)
    reward(folder / "reward", dice)
    improve(folder / "improve", dice, hacked=hacked, cut=64 if unfinished else None)
    if not unfinished:
        evaluate(folder / "evaluate", dice, hacked=hacked)
    seconds = {
        "pretrain": 71.4,
        "sft": 33.0,
        "sample": 12.8,
        "judge": 4.1,
        "reward": 29.6,
        "improve": 132.2,
        "evaluate": 15.3,
    }
    statuses = {"improve": "running", "evaluate": "waiting"} if unfinished else {}
    stages = [
        {"name": name, "kind": name, "folder": name, "status": statuses.get(name, "done")}
        | ({} if name in statuses else {"seconds": time})
        for name, time in seconds.items()
    ]
    about = "A model of a million weights was taught to explain things to ten-year-olds, from nine raters' judgements."
    index = {"title": "From babble to tutor", "about": about, "created": "2026-03-01 12:00"}
    write(folder / "round.json", index | {"command": "tutelage demo --seed 0", "stages": stages})
    if not unfinished:
        won = (0.21, [0.16, 0.27], 0.05) if hacked else (0.862, [0.82, 0.9], 2.02)
        write(
            folder / "summary.json",
            {
                "sft": {"gold_mean": 0.62, "gold_std": 0.72},
                "policy": {"gold_mean": won[2], "win_rate": won[0], "win_rate_ci": won[1], "kl_per_sequence": 10.6},
                "reward_model": {"accuracy": 0.718, "accuracy_interval": [0.694, 0.742], "ceiling": 0.752},
                "peak_rss_mb": 1843.0,
            },
        )
    return folder


if __name__ == "__main__":
    from tutelage.report.page import write_report

    place = make_round(Path(sys.argv[1]), hacked="--hacked" in sys.argv, unfinished="--unfinished" in sys.argv)
    print(write_report(place))
