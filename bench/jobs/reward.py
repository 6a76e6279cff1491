"""A reward model: 8 pairs in a step, Bradley–Terry on the score at the last token."""

from functools import partial
from typing import Any

from bench.flops import Tree, training
from bench.job import Job, Measurement, Needs, Place
from bench.jobs.dpo import BATCH, LONGEST, prepare


def settings(place: Place, batch: int = BATCH) -> Any:
    """Of `tutelage reward`."""
    from bench.ours import common
    from tutelage.commands.reward.settings import RewardSettings

    return RewardSettings(
        **common(place),
        data=str(place.job / "ours.jsonl"),
        batch_size=batch,
        max_length=LONGEST,
        held_out=0.0,
        epochs=1.0,
    )


def ours(place: Place, batch: int) -> Measurement:
    """`tutelage reward`."""
    from bench.ours import durations, run_workflow
    from tutelage.commands.reward.run import reward

    return Measurement(durations(run_workflow(reward, settings(place, batch))))


def theirs(place: Place, batch: int) -> Measurement:
    """`RewardTrainer`."""
    import torch
    from transformers import AutoModelForSequenceClassification
    from trl import RewardConfig, RewardTrainer

    from bench.theirs import StepClock, common, load, rows

    _, tokenizer = load(place)
    model = AutoModelForSequenceClassification.from_pretrained(place.model, num_labels=1, dtype=torch.float32)
    clock = StepClock()
    trainer = RewardTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=rows(place.job / "theirs.jsonl"),
        args=RewardConfig(
            **common(place),
            per_device_train_batch_size=batch,
            num_train_epochs=1,
            max_length=LONGEST,
            train_sampling_strategy="sequential",
        ),
        callbacks=[clock],
    )
    trainer.train()
    return Measurement(clock.durations())


def needs(place: Place, batch: int) -> Needs:
    """The prompt once for both answers, and no head to speak of."""
    lengths = place.facts()["lengths"]
    steps = len(lengths) / batch
    trees = [Tree(prompt, tuple(responses)) for prompt, *responses in lengths]
    operations = training(place.shape, trees, head=False)
    return Needs(operations / steps, tokens=sum(tree.tokens for tree in trees) / steps)


def job(batch: int) -> Job:
    """The job with so many pairs in a step."""
    return Job(
        name="reward",
        about=f"Reward model, 17.6M, {batch} pairs of at most {LONGEST} tokens a side",
        peer="TRL 1.16.0",
        settings="defaults; no checkpointing",
        environment="peers",
        shape="17.6M",
        prepare=partial(prepare, batch=batch),
        ours=partial(ours, batch=batch),
        theirs=partial(theirs, batch=batch),
        needs=partial(needs, batch=batch),
        faster=2.0,
        leaner=0.60,
    )


JOBS = (job(BATCH),)
