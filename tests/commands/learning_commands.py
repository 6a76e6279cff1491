"""Settings of the commands that learn from preferences and from their own answers, on tiny folders."""

from tiny_commands import TOPICS, model, write_jsonl

from tutelage.base import config
from tutelage.commands.table import find

dpo = find("dpo")
rejection = find("rejection")

ASKED = config.Sampling(temperature=1.0, max_new_tokens=10)
RATE = config.Optimiser(lr=3e-3, schedule="constant")


def preferences(path, count=24, **more):
    """Pairs in which letters are preferred to digits."""
    rows = [
        {
            "prompt": f"What is {TOPICS[i % 10]} {i}?",
            "chosen": f"It is {TOPICS[(i + 3) % 10]}.",
            "rejected": f"{i} 77 {i}",
            **more,
        }
        for i in range(count)
    ]
    return write_jsonl(path, rows)


def singles(path, count=24):
    """The same as single answers with a label."""
    rows = [
        {"prompt": f"What is {TOPICS[i % 10]} {i}?", "completion": text, "label": good}
        for i in range(count)
        for text, good in ((f"It is {TOPICS[(i + 3) % 10]}.", True), (f"{i} 77 {i}", False))
    ]
    return write_jsonl(path, rows)


def questions(path, count=12):
    return write_jsonl(path, [{"prompt": f"What is {TOPICS[i % 10]} {i}?"} for i in range(count)])


def dpo_settings(base, out, **changes):
    usual = {
        "model": model(base),
        "out": out,
        "quiet": True,
        "batch_size": 6,
        "max_length": 64,
        "held_out": 0.25,
        "evaluate_every": 2,
        "optimiser": RATE,
    }
    return dpo.settings(**usual | changes)


def online_settings(base, prompts, out, **changes):
    usual = {"prompts": prompts, "reward": ("given_rewards:length",), "rounds": 2, "samples": 3, "sampling": ASKED}
    if "judge" in changes:
        usual |= {"held_out": 0.05, "evaluate_every": 50}  # nothing is held out for a judge
    return dpo_settings(base, out, **usual | changes)


def rejection_settings(base, prompts, out, **changes):
    usual = {
        "model": model(base),
        "prompts": prompts,
        "reward": ("given_rewards:length",),
        "out": out,
        "quiet": True,
        "rounds": 2,
        "samples": 4,
        "sampling": ASKED,
        "batch_size": 4,
        "held_out": 0.25,
        "evaluate_every": 2,
        "optimiser": RATE,
    }
    return rejection.settings(**usual | changes)
