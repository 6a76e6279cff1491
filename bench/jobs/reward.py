"""A reward model: 8 pairs in a step, Bradley–Terry on the score at the last token."""

from typing import Any

from bench.flops import Tree, training
from bench.job import Job, Measurement, Needs, Place
from bench.jobs.dpo import BATCH, LONGEST, prepare


def settings(place: Place) -> Any:
    """Of `tutelage reward`."""
    from bench.ours import common
    from tutelage.workflows.settings.reward import RewardSettings

    return RewardSettings(
        **common(place),
        data=str(place.job / "ours.jsonl"),
        batch_size=BATCH,
        max_length=LONGEST,
        held_out=0.0,
        epochs=1.0,
    )


def ours(place: Place) -> Measurement:
    """`tutelage reward`."""
    from bench.ours import durations, run_workflow
    from tutelage.workflows.reward import reward

    return Measurement(durations(run_workflow(reward, settings(place))))


def theirs(place: Place) -> Measurement:
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
            per_device_train_batch_size=BATCH,
            num_train_epochs=1,
            max_length=LONGEST,
            train_sampling_strategy="sequential",
        ),
        callbacks=[clock],
    )
    trainer.train()
    return Measurement(clock.durations())


def needs(place: Place) -> Needs:
    """The prompt once for both answers, and no head to speak of."""
    lengths = place.facts()["lengths"]
    steps = len(lengths) / BATCH
    trees = [Tree(prompt, tuple(responses)) for prompt, *responses in lengths]
    operations = training(place.shape, trees, head=False)
    return Needs(operations / steps, tokens=sum(tree.tokens for tree in trees) / steps)


JOBS = (
    Job(
        name="reward",
        about="Reward model, 17.6M, 8 pairs of at most 512 tokens a side",
        peer="TRL 1.16.0",
        settings="defaults; no checkpointing",
        environment="peers",
        shape="17.6M",
        prepare=prepare,
        ours=ours,
        theirs=theirs,
        needs=needs,
        faster=2.0,
        leaner=0.60,
    ),
)
