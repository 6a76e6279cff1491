"""How long PPO takes to learn: the peer as in `ppo`, ours with its default, a critic on the policy's trunk.

Time from the end of the first step until the mean score of the last three rollouts has reached `LEVEL`. Both sides
begin as a model that was taught the texts for two minutes, since one with random weights ends no answer by itself, and
learn to be brief. Both take the same learning rate; each repetition has a seed of its own.
"""

import itertools
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.job import Measurement, Needs, Place
from bench.jobs import ppo

STEPS, SEEDS, RATE = 8, (0, 1, 2), 1e-4
LEVEL = 1.4
"""Answers of about 28 characters: the prompts alone would get 1.51, the model begins at 1.1 with about 100."""
DIALOGUES = 1_600


def prepare(place: Place) -> None:
    """The prompts of `ppo`, and the model that both sides begin as."""
    from bench.worlds import ensure_model

    ensure_model(place)
    folder = Path(_taught(place).model)
    if not folder.is_dir():
        _teach(place, folder)
    ppo.prepare(place)


def _taught(place: Place) -> Place:
    """The same place with the model that was taught."""
    return replace(place, shape=replace(place.shape, name=f"{place.shape.name}-taught"))


def _teach(place: Place, folder: Path) -> None:
    """Train the model of random weights on the last question and the chosen answer of the first dialogues."""
    from bench.ours import common, run_workflow
    from bench.worlds import pairs, write
    from tutelage.base import config
    from tutelage.commands.sft.run import sft
    from tutelage.commands.sft.settings import SftSettings

    rows = (
        {"prompt": turns[-1:], "completion": [{"role": "assistant", "content": chosen}]}
        for turns, chosen, _ in itertools.islice(pairs(place.world), DIALOGUES)
    )
    demonstrations = place.job / "demonstrations.jsonl"
    write(demonstrations, rows)
    unfinished = folder.with_name(f".{folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    settings = SftSettings(
        **common(replace(place, out=unfinished)),
        data=str(demonstrations),
        batch_size=16,
        max_length=160,
        epochs=2.0,
        optimiser=config.Optimiser(lr=1e-3),
        held_out=0.0,
        samples=0,
        rouge=0,
    )
    run_workflow(sft, settings)
    (Path(settings.out) / "model").rename(folder)
    shutil.rmtree(unfinished)


def ours(place: Place) -> Measurement:
    """`tutelage improve --recipe ppo`, with the critic where it is by default."""
    from bench.ours import improved

    def run(seed: int) -> Measurement:
        there = replace(_taught(place), out=place.out / str(seed), seed=seed)
        return improved(ppo.settings(there, reward=("bench.rewards:brevity",), steps=STEPS, lr=RATE))

    return time_to_level([run(seed) for seed in SEEDS])


def theirs(place: Place) -> Measurement:
    """`PPOTrainer`."""
    from bench.theirs import load

    def run(seed: int) -> Measurement:
        there = replace(_taught(place), out=place.out / str(seed), seed=seed)
        model, tokenizer = load(there)
        judge = measuring(tokenizer, model.config.vocab_size)
        return ppo.trained(there, judge, there.model, steps=STEPS, lr=RATE)

    return time_to_level([run(seed) for seed in SEEDS])


def time_to_level(runs: list[Measurement]) -> Measurement:
    """Seconds until each run has risen to the level; infinite where it never does."""
    return Measurement(
        [seconds_to_level(run.facts["score/mean"], run.facts["seconds"]) for run in runs],
        facts={"score/mean": [run.facts["score/mean"] for run in runs], "step": [run.seconds for run in runs]},
    )


def seconds_to_level(scores: list[float], seconds: list[float]) -> float:
    """From the end of the first step to that of the first at which the last three rollouts are high enough."""
    for step in range(2, len(scores)):
        if sum(scores[step - 2 : step + 1]) / 3 >= LEVEL:
            return seconds[step] - seconds[0]
    return math.inf


def measuring(tokenizer: Any, vocabulary: int) -> Any:
    """A reward model whose score at every token is `brevity` of the text so far, as that trainer wants it."""
    import torch
    from torch import nn
    from transformers.modeling_outputs import BaseModelOutput

    from bench.rewards import brevity

    known = len(tokenizer)
    texts = [tokenizer.decode([i], skip_special_tokens=True) if i < known else "" for i in range(vocabulary)]
    frame = tokenizer.apply_chat_template(
        [{"role": "user", "content": ""}], add_generation_prompt=True, tokenize=False
    )  # which our side does not count
    (empty,), (framed,) = brevity([""], [""]), brevity([frame], [""])

    class Count(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.each = torch.tensor(brevity(texts, [""] * vocabulary)) - empty

        def forward(self, input_ids: Any, attention_mask: Any, **_: Any) -> Any:
            so_far = 2 * empty - framed + (self.each[input_ids] * attention_mask).cumsum(1)
            return BaseModelOutput(hidden_states=(so_far[..., None],))

    class Judge(nn.Module):
        base_model_prefix = "count"

        def __init__(self) -> None:
            super().__init__()
            self.count = Count()
            self.score = nn.Identity()

    return Judge()


def needs(place: Place) -> Needs:
    """A time to a level has no operations that it needs."""
    return Needs()


(_like_for_like,) = ppo.JOBS
JOBS = (
    replace(
        _like_for_like,
        name="ppo-learning",
        about="The same with our critic on the policy's trunk: time until the mean score has risen to a level",
        prepare=prepare,
        ours=ours,
        theirs=theirs,
        needs=needs,
        faster=3.0,
        leaner=0.50,
        rounds=1,  # a round has three seeds
    ),
)
