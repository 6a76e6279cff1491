"""Files and settings for commands on tiny folders."""

import json
from dataclasses import replace
from pathlib import Path

from tutelage.base import config
from tutelage.commands.table import find
from tutelage.people import add_rater, open_store, open_study, submit
from tutelage.people.answers import Answer
from tutelage.people.assignment import next_assignment

distill = find("distill")
improve = find("improve")
reward = find("reward")
sft = find("sft")

TOPICS = ["the sun", "rain", "a star", "light", "plants", "the sky", "gravity", "water", "clouds", "air"]


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def read_jsonl(path):
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def files(folder):
    """Demonstrations, preferences and prompts in a folder: {"sft": path, "pairs": path, "prompts": path}."""
    folder.mkdir(parents=True, exist_ok=True)
    asked = [f"What is {topic}{mark}" for topic in TOPICS for mark in "?!"]
    return {
        "sft": write_jsonl(
            folder / "sft.jsonl", [{"prompt": q, "completion": f"It is {q[8:-1]} and it is far away."} for q in asked]
        ),
        "pairs": write_jsonl(
            folder / "pairs.jsonl",
            [{"prompt": q, "chosen": "A hot star.", "rejected": f"No idea {i}."} for i, q in enumerate(asked)],
        ),
        "prompts": write_jsonl(folder / "prompts.jsonl", [{"prompt": q} for q in asked[:8]]),
    }


def model(path):
    return config.Model(str(path), device="cpu")


def sft_settings(base, given, out, **changes):
    return sft.settings(
        **{
            "model": model(base),
            "data": given["sft"],
            "out": out,
            "quiet": True,
            "batch_size": 9,
            "max_length": 64,
            "held_out": 0.1,
            "evaluate_every": 2,
            "samples": 1,
            "rouge": 1,
            "sampling": config.Sampling(temperature=0.0, max_new_tokens=8),
            "optimiser": config.Optimiser(lr=1e-3, warmup=1),
        }
        | changes
    )


def reward_settings(base, given, out, **changes):
    return reward.settings(
        **{
            "model": model(base),
            "data": given["pairs"],
            "out": out,
            "quiet": True,
            "batch_size": 9,
            "max_length": 64,
            "held_out": 0.1,
            "evaluate_every": 2,
            "optimiser": config.Optimiser(lr=1e-3),
        }
        | changes
    )


def distill_settings(base, teacher, out, **changes):
    return distill.settings(
        **{
            "model": model(base),
            "teacher": str(teacher),
            "out": out,
            "quiet": True,
            "steps": 2,
            "batch_size": 5,
            "sampling": config.Sampling(temperature=1.0, max_new_tokens=8),
            "optimiser": config.Optimiser(lr=1e-3, warmup=1),
            "sample_every": 1,
        }
        | changes
    )


def improve_settings(base, given, out, **changes):
    return improve.settings(
        **{
            "model": model(base),
            "prompts": given["prompts"],
            "reward": ("given_rewards:vowels",),
            "out": out,
            "quiet": True,
            "steps": 2,
            "batch_size": 4,
            "sampling": config.Sampling(temperature=0.9, max_new_tokens=8),
            "optimiser": config.Optimiser(lr=1e-3, warmup=1),
            "sample_every": 1,
        }
        | changes
    )


def rate(folder):
    """Two raters answer all questions of a study."""
    store = open_store(Path(folder) / "study.sqlite")
    study = open_study(store)
    for name in ("Anna", "Bert"):
        rater = add_rater(store, study.id, name).id
        while (question := next_assignment(store, rater)) is not None:
            single, strength = len(question.texts) == 1, min(2, study.presentation.scale)
            answer = Answer("good") if single else Answer("left", strength)
            submit(store, question.id, replace(answer, key=f"{name}/{question.id}"))
    store.close()
