"""Supervised fine-tuning: 8 dialogues of at most 512 tokens in a step, the loss on the responses."""

import itertools
from typing import Any

from bench.flops import Tree, training
from bench.job import Job, Measurement, Needs, Place

BATCH, LONGEST = 8, 512


def prepare(place: Place) -> None:
    """Dialogues that fit without being cut."""
    from bench.worlds import ensure_model, pairs, tokens_of, write_rows

    ensure_model(place)
    fitting = (
        ({"prompt": turns, "completion": [{"role": "assistant", "content": chosen}]}, tokens_of(place, turns, chosen))
        for turns, chosen, _ in pairs(place.world)
    )
    wanted = BATCH * (place.steps + 1)
    taken = list(itertools.islice((row for row in fitting if sum(row[1]) <= LONGEST), wanted))
    write_rows(place, [row for row, _ in taken], batch=BATCH)
    place.note(lengths=[lengths for _, lengths in taken])


def settings(place: Place) -> Any:
    """Of `tutelage sft`."""
    from bench.ours import common
    from tutelage.commands.sft.settings import SftSettings

    return SftSettings(
        **common(place),
        data=str(place.job / "ours.jsonl"),
        batch_size=BATCH,
        max_length=LONGEST,
        held_out=0.0,
        samples=0,
        rouge=0,
    )


def ours(place: Place) -> Measurement:
    """`tutelage sft`."""
    from bench.ours import durations, run_workflow
    from tutelage.commands.sft.run import sft

    rows = run_workflow(sft, settings(place))
    return Measurement(durations(rows), facts={"loss": [row["loss"] for row in rows]})


def theirs(place: Place) -> Measurement:
    """`SFTTrainer`."""
    from trl import SFTConfig, SFTTrainer

    from bench.theirs import StepClock, common, load, logged, rows

    model, tokenizer = load(place)
    clock = StepClock()
    trainer = SFTTrainer(
        model=model,
        processing_class=tokenizer,
        train_dataset=rows(place.job / "theirs.jsonl"),
        args=SFTConfig(
            **common(place),
            per_device_train_batch_size=BATCH,
            num_train_epochs=1,
            max_length=LONGEST,
            train_sampling_strategy="sequential",
        ),
        callbacks=[clock],
    )
    trainer.train()
    return Measurement(clock.durations(), facts={"loss": logged(trainer, "loss")})


def needs(place: Place) -> Needs:
    """Every token once, the head on the responses."""
    lengths = place.facts()["lengths"]
    steps = len(lengths) / BATCH
    trees = [Tree(prompt, (response,)) for prompt, response in lengths]
    return Needs(training(place.shape, trees) / steps, tokens=sum(tree.tokens for tree in trees) / steps)


JOBS = (
    Job(
        name="sft",
        about="Fine-tuning, 17.6M, 8 dialogues of at most 512 tokens, loss on the response",
        peer="TRL 1.16.0",
        settings="completion-only loss, fused head, no checkpointing",
        environment="peers",
        shape="17.6M",
        prepare=prepare,
        ours=ours,
        theirs=theirs,
        needs=needs,
        faster=7.0,
        leaner=0.30,
    ),
)
