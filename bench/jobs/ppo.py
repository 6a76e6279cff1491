"""PPO: 32 prompts of 32 to 64 tokens, responses of 64, 4 epochs of 4 minibatches.

Like for like: a reward model, a critic and a reference, each a network of the policy's size.
"""

import json
from pathlib import Path
from typing import Any

from bench.flops import Tree, training
from bench.job import Job, Measurement, Needs, Place

PROMPTS, SHORTEST, LONGEST, RESPONSE = 32, 32, 64, 64
EPOCHS, MINIBATCHES = 4, 4


def prepare(place: Place) -> None:
    """Prompts, asked again in every step, and a reward model of the policy's size with random weights."""
    import torch
    from transformers import AutoModelForSequenceClassification

    from bench.worlds import ensure_model, load_tokenizer, write_prompts

    ensure_model(place)
    lengths = write_prompts(place, PROMPTS, SHORTEST, LONGEST)
    torch.manual_seed(place.seed)
    judge = AutoModelForSequenceClassification.from_pretrained(place.model, num_labels=1)
    judge.save_pretrained(place.job / "judge")
    load_tokenizer(place).save_pretrained(place.job / "judge")
    place.note(lengths=lengths)  # at the end, since it says that all is there


def ours(place: Place) -> Measurement:
    """`tutelage improve --recipe ppo --critic network`."""
    from bench.ours import improved

    return improved(with_networks(place))


def with_networks(place: Place) -> Any:
    """Settings with a reward model and a critic network of the policy's size."""
    judge = str(place.job / "judge")
    return settings(place, steps=place.steps + 1, reward=(judge,), critic="network", critic_from=judge)


def settings(place: Place, *, lr: float = 3e-6, **more: Any) -> Any:
    """Of `tutelage improve`."""
    from bench.ours import common
    from tutelage.base import config
    from tutelage.commands.improve.settings import ImproveSettings

    return ImproveSettings(
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


def theirs(place: Place) -> Measurement:
    """`PPOTrainer`."""
    from transformers import AutoModelForSequenceClassification

    judge = AutoModelForSequenceClassification.from_pretrained(place.job / "judge", num_labels=1)
    return trained(place, judge, place.job / "judge", steps=place.steps + 1)


def trained(place: Place, judge: Any, critic: str | Path, *, steps: int, lr: float = 3e-6) -> Measurement:
    """`PPOTrainer` with `judge` for its reward model, and a critic that begins as the model in a folder."""
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification
    from trl.experimental.ppo import PPOConfig, PPOTrainer

    from bench.theirs import StepClock, common, load, logged

    model, tokenizer = load(place)
    reference, _ = load(place)
    value = AutoModelForSequenceClassification.from_pretrained(critic, num_labels=1)
    prompts = [json.loads(line)["prompt"] for line in Path(place.job / "prompts.jsonl").read_text().splitlines()]
    ids = tokenizer.apply_chat_template(prompts, add_generation_prompt=True, return_dict=True)["input_ids"]
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
        value_model=value,
        train_dataset=Dataset.from_dict({"input_ids": ids}),
        eval_dataset=Dataset.from_dict({"input_ids": ids}),
        callbacks=[clock],
    )
    trainer.train()
    return Measurement(
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


ABOUT = (
    f"{PROMPTS} prompts of {SHORTEST}–{LONGEST}, responses of {RESPONSE}, {EPOCHS} epochs × {MINIBATCHES} minibatches"
)
JOBS = (
    Job(
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
    ),
)
