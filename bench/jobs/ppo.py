"""PPO: 32 prompts of 32 to 64 tokens, responses of 64, 4 epochs of 4 minibatches.

`ppo` is like for like: a reward model, a critic and a reference, each a network of the policy's size. `ppo-learning`
gives the peer the same and us our default, a critic on the policy's trunk, and asks how long it takes from the end of
the first step until the mean score of the last three rollouts has risen to a level: the letters in the text, a reward
that can be learnt. Both take the same learning rate; each repetition has a seed of its own.
"""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.flops import Tree, training
from bench.job import Job, Measured, Needs, Place

PROMPTS, SHORTEST, LONGEST, RESPONSE = 32, 32, 64, 64
EPOCHS, MINIBATCHES = 4, 4
STEPS, SEEDS, RATE = 14, (0, 1, 2), 1e-3
LEVEL = 0.25
"""Of `ppo-learning`: how far the mean score has to rise above that of the first rollout."""


def prepare(place: Place) -> None:
    """Prompts, asked again in every step, and a reward model of the policy's size with random weights."""
    import torch
    from transformers import AutoModelForSequenceClassification

    from bench.worlds import ensure_model, load_tokenizer, write_prompts

    ensure_model(place)
    place.note(lengths=write_prompts(place, PROMPTS, SHORTEST, LONGEST))
    torch.manual_seed(place.seed)
    judge = AutoModelForSequenceClassification.from_pretrained(place.model, num_labels=1)
    judge.save_pretrained(place.job / "judge")
    load_tokenizer(place).save_pretrained(place.job / "judge")


def ours(place: Place) -> Measured:
    """`tutelage improve --recipe ppo --critic network`."""
    from bench.ours import improved

    judge = str(place.job / "judge")
    return improved(
        _settings(place, steps=place.steps + 1, reward=(judge,), critic="network", critic_from=judge)
    )


def ours_learning(place: Place) -> Measured:
    """`tutelage improve --recipe ppo`, with the letters for a reward and the critic where it is by default."""
    from bench.ours import improved

    def run(seed: int) -> Measured:
        there = replace(place, out=place.out / str(seed), seed=seed)
        return improved(_settings(there, reward=("bench.rewards:letters",), steps=STEPS, lr=RATE))

    return time_to_level([run(seed) for seed in SEEDS])


def time_to_level(runs: list[Measured]) -> Measured:
    """Seconds until each run has risen to the level; infinite where it never does."""
    return Measured(
        [seconds_to_level(run.facts["score/mean"], run.facts["seconds"]) for run in runs],
        facts={
            "score/mean": [run.facts["score/mean"] for run in runs],
            "step": [run.seconds for run in runs],
        },
    )


def seconds_to_level(scores: list[float], seconds: list[float]) -> float:
    """From the end of the first step to that of the first at which the last three rollouts are high enough."""
    for step in range(2, len(scores)):
        if sum(scores[step - 2 : step + 1]) / 3 >= scores[0] + LEVEL:
            return seconds[step] - seconds[0]
    return math.inf


def _settings(place: Place, *, lr: float = 3e-6, **more: Any) -> Any:
    from bench.ours import common
    from tutelage import config
    from tutelage.verbs import improve

    return improve.Settings(
        **common(place),
        **more,
        prompts=str(place.job / "prompts.jsonl"),
        recipe="ppo",
        set=(f"update.epochs={EPOCHS}", f"update.minibatches={MINIBATCHES}", "shaping.missing_end=none"),
        batch_size=PROMPTS,
        sampling=config.Sampling(temperature=0.7, max_new_tokens=RESPONSE),
        optimiser=config.Optimiser(lr=lr, schedule="constant"),
        sample_every=10_000,
    )


def theirs(place: Place) -> Measured:
    """`PPOTrainer`."""
    from transformers import AutoModelForSequenceClassification

    judge = AutoModelForSequenceClassification.from_pretrained(place.job / "judge", num_labels=1)
    return _train(place, judge, steps=place.steps + 1)


def theirs_learning(place: Place) -> Measured:
    """`PPOTrainer` with the letters for a reward: a module that counts them token by token, as that trainer wants."""
    from bench.theirs import load

    def run(seed: int) -> Measured:
        there = replace(place, out=place.out / str(seed), seed=seed)
        model, tokenizer = load(there)
        return _train(there, counting(tokenizer, model.config.vocab_size), steps=STEPS, lr=RATE)

    return time_to_level([run(seed) for seed in SEEDS])


def counting(tokenizer: Any, vocabulary: int) -> Any:
    """A reward model whose score at every token is `bench.rewards.letters` of the text so far."""
    import torch
    from torch import nn
    from transformers.modeling_outputs import BaseModelOutput

    from bench.rewards import letters

    known = len(tokenizer)
    texts = [tokenizer.decode([i]) if i < known else "" for i in range(vocabulary)]

    class Count(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.each = torch.tensor(letters(texts, [""] * vocabulary))

        def forward(self, input_ids: Any, attention_mask: Any, **_: Any) -> Any:
            so_far = (self.each[input_ids] * attention_mask).cumsum(1)
            return BaseModelOutput(hidden_states=(so_far[..., None],))

    class Judge(nn.Module):
        base_model_prefix = "count"

        def __init__(self) -> None:
            super().__init__()
            self.count = Count()
            self.score = nn.Identity()

    return Judge()


def _train(place: Place, judge: Any, *, steps: int, lr: float = 3e-6) -> Measured:
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification
    from trl.experimental.ppo import PPOConfig, PPOTrainer

    from bench.theirs import StepClock, common, load, logged

    model, tokenizer = load(place)
    reference, _ = load(place)
    critic = AutoModelForSequenceClassification.from_pretrained(place.job / "judge", num_labels=1)
    asked = [
        json.loads(line)["prompt"] for line in Path(place.job / "prompts.jsonl").read_text().splitlines()
    ]
    ids = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_dict=True)["input_ids"]
    clock = StepClock()
    trainer = PPOTrainer(
        args=PPOConfig(
            **common(place),
            per_device_train_batch_size=PROMPTS,
            num_mini_batches=MINIBATCHES,
            num_ppo_epochs=EPOCHS,
            total_episodes=steps * PROMPTS,
            response_length=RESPONSE,
            temperature=0.7,
            stop_token="eos",
            kl_coef=0.05,
            num_sample_generations=0,
            learning_rate=lr,
            lr_scheduler_type="constant",
        ),
        processing_class=tokenizer,
        model=model,
        ref_model=reference,
        reward_model=judge,
        value_model=critic,
        train_dataset=Dataset.from_dict({"input_ids": ids}),
        eval_dataset=Dataset.from_dict({"input_ids": ids}),
        callbacks=[clock],
    )
    trainer.train()
    return Measured(
        clock.durations(),
        facts={
            "score/mean": logged(trainer, "objective/scores"),
            "kl/reference": logged(trainer, "objective/kl"),
            "seconds": [ended - clock.started for ended in clock.ended],
        },
    )


def needs(place: Place) -> Needs:
    """In the update every row once an epoch, forward and backward, through the policy and through the critic."""
    trees = [Tree(prompt, (RESPONSE,)) for prompt in place.facts()["lengths"]]
    once = training(place.shape, trees) + training(place.shape, trees, head=False)
    return Needs(EPOCHS * once, "update", tokens=float(PROMPTS * RESPONSE))


def needs_nothing(place: Place) -> Needs:
    """A time to a level has no operations that it needs."""
    return Needs()


ABOUT = (
    f"{PROMPTS} prompts of {SHORTEST}–{LONGEST}, responses of {RESPONSE}, "
    f"{EPOCHS} epochs × {MINIBATCHES} minibatches"
)
LIKE_FOR_LIKE = Job(
    name="ppo",
    about=f"PPO, 6.8M, {ABOUT}, a critic of its own on both sides",
    peer="TRL 1.12.0",
    settings="defaults; one micro-batch, no checkpointing",
    environment="peers-ppo",
    shape="6.8M",
    prepare=prepare,
    ours=ours,
    theirs=theirs,
    needs=needs,
    faster=1.3,
    leaner=0.60,
)
JOBS = (
    LIKE_FOR_LIKE,
    replace(
        LIKE_FOR_LIKE,
        name="ppo-learning",
        about="The same with our critic on the policy's trunk: time until the mean score has risen to a level",
        ours=ours_learning,
        theirs=theirs_learning,
        needs=needs_nothing,
        faster=3.0,
        leaner=0.50,
        rounds=1,  # a round has three seeds
    ),
)
