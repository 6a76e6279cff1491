"""How a rollout of episodes grows with their turns, and what it loses to tools that sleep:
`python -m bench.episodes_growth [sleep]`.

Random weights of 6.8M play episodes of about 24 sampled and 30 read tokens a turn: with contexts that are kept between
turns, and turn by turn, where each turn reads its whole context again. Writes results/MACHINE/episodes_growth.json, its
drawings, and the table of all results: seconds of the processor, with one thread. With `sleep`: 64 episodes of four
turns, with tools that take up to two seconds, against the time of the same tokens without a tool and the longest chain
of sleeps; prints the ratios.
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from bench.growth_curves import AGAIN, EPISODES, KEPT
from bench.people_growth import write_points
from bench.shapes import SHAPES

VALUES = {"turns": (2, 4, 8, 16)}
PROMPTS, SAMPLES, TOKENS, ENDING = 8, 4, 128, 24
"""Prompts and episodes of each, most tokens of a turn, and how many tokens of the vocabulary there are to one that ends
a turn."""
SLEEPS, CONTEXT = 2.0, 4_096
"""Most seconds of a tool that sleeps, and tokens of the model's context: those of the longest episodes."""


@cache
def policy() -> Any:
    """A policy with random weights, one in ENDING of whose tokens ends a turn."""
    from bench.job import Place
    from bench.worlds import ensure_model
    from tutelage.base import config
    from tutelage.models.backbone import load_backbone
    from tutelage.models.policy import Policy

    folder, shape = Path(tempfile.mkdtemp()), replace(SHAPES["6.8M"], context=CONTEXT)
    (folder / "world.json").write_text(json.dumps({"data": ""}))
    place = Place(world=folder, job=folder, out=folder, shape=shape, steps=1)
    ensure_model(place)
    made = Policy(load_backbone(config.Model(place.model, device="cpu", engine="cpu")))
    made.end_ids = (*made.end_ids, *range(100, shape.vocabulary, ENDING))
    return made


def rollout_seconds(
    turns: int,
    samples: int = SAMPLES,
    *,
    longest: float = 0.0,
    deterministic: bool,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, float]:
    """Seconds of a rollout of episodes, and those of its longest chain of sleeps, each of up to `longest` seconds."""
    from tutelage.base import config
    from tutelage.data.records import Message, Prompt, user
    from tutelage.rollout.environment import Environment
    from tutelage.rollout.generator import encode_prompts, prompt_tokens
    from tutelage.rollout.local import LocalGenerator
    from tutelage.rollout.player import Player

    chains = [0.0]

    async def play(row: Any, episode: Any) -> float:
        draws, chain = random.Random(str(episode.random.random())), 0.0
        await episode.chat()
        for turn in range(1, turns):
            pause = longest * draws.random()
            chain += pause
            await asyncio.sleep(pause)
            await episode.chat(Message("user", f"That was answer {turn}. And then?"))
        chains.append(chain)
        return 0.0

    prompts = [
        Prompt(str(n), user(f"Question {n}: what is there to say about the number {n}?")) for n in range(PROMPTS)
    ]
    environment = Environment(play, turns=turns, deterministic=deterministic)
    player = Player(LocalGenerator(policy()), environment, {p.id: p for p in prompts}, policy())
    encoded = prompt_tokens(encode_prompts(prompts, policy().tokenizer))
    started = clock()
    player.generate(encoded, samples, config.Sampling(temperature=1.0, max_new_tokens=TOKENS), seed=1)
    return clock() - started, max(chains)


def turns_point(turns: int) -> dict[str, float]:
    """Seconds of each measure for episodes of so many turns."""
    rollout_seconds(2, 1, deterministic=False)
    schedules = {KEPT: False, AGAIN: True}
    seconds = partial(rollout_seconds, turns, clock=time.process_time)
    return {name: seconds(deterministic=how)[0] for name, how in schedules.items()}


def main() -> None:
    """Measure the growth, or the loss to tools that sleep."""
    import torch

    parser = argparse.ArgumentParser(prog="python -m bench.episodes_growth", description=__doc__)
    parser.add_argument("what", nargs="?", choices=["sleep"])
    what = parser.parse_args().what
    torch.set_num_threads(1)
    if what is None:
        write_points(EPISODES, VALUES, {"turns": turns_point})
        return
    rollout_seconds(2, 1, deterministic=False)
    tokens, _ = rollout_seconds(4, 8, deterministic=False)
    for name, how in {KEPT: False, AGAIN: True}.items():
        seconds, chain = rollout_seconds(4, 8, longest=SLEEPS, deterministic=how)
        needed = tokens + chain
        print(f"{name}: {seconds:.1f} s of {tokens:.1f} s tokens + {chain:.1f} s sleeps: {seconds / needed:.2f}")


if __name__ == "__main__":
    main()
