"""Direct preference optimisation: 8 pairs in a step, whose answers share their prompt.

The reference is asked about every pair once, whichever way: TRL's default asks it in every step, and so its step
includes it; we ask it about the whole file before the first step, and our steps are counted with their share of that
time. TRL's `precompute_ref_log_probs` is its way of doing the same; its steps, with their share, are measured too.
"""

from typing import Any

from bench.clock import timed
from bench.flops import Tree, forward, training
from bench.job import Job, Measurement, Needs, Place

BATCH, LONGEST = 8, 512


def prepare(place: Place, batch: int = BATCH) -> None:
    """Pairs that fit without being cut."""
    from bench.worlds import ensure_model, pairs, tokens_of, write_rows

    ensure_model(place)
    rows, lengths = [], []
    for turns, *answers in pairs(place.world):
        sizes = [tokens_of(place, turns, answer) for answer in answers]
        if max(map(sum, sizes)) > LONGEST:
            continue
        spoken = [[{"role": "assistant", "content": answer}] for answer in answers]
        rows.append({"prompt": turns, "chosen": spoken[0], "rejected": spoken[1]})
        lengths.append((sizes[0][0], sizes[0][1], sizes[1][1]))
        if len(rows) == batch * (place.steps + 1):
            break
    write_rows(place, rows, batch=batch)
    place.note(lengths=lengths)


def settings(place: Place) -> Any:
    """Of `tutelage dpo`."""
    from bench.ours import common
    from tutelage.commands.dpo.settings import DpoSettings

    return DpoSettings(
        **common(place), data=str(place.job / "ours.jsonl"), batch_size=BATCH, max_length=LONGEST, held_out=0.0
    )


def ours(place: Place) -> Measurement:
    """`tutelage dpo`."""
    from bench.ours import durations, run_workflow
    from tutelage.commands.dpo import run as preference_files
    from tutelage.commands.dpo.run import dpo

    with timed(preference_files, "refer") as spent:
        rows = run_workflow(dpo, settings(place))
    share = sum(spent) / len(rows)
    steps = durations(rows)
    return Measurement([s + share for s in steps], {"step": steps, "reference": [share] * len(steps)})


def theirs(place: Place, *, precompute: bool = False) -> Measurement:
    """`DPOTrainer`."""
    from trl import DPOConfig, DPOTrainer

    from bench.theirs import StepClock, common, load, rows

    model, tokenizer = load(place)
    clock = StepClock()
    with timed(DPOTrainer, "_precompute_ref_logps") as spent:
        trainer = DPOTrainer(
            model=model,
            processing_class=tokenizer,
            train_dataset=rows(place.job / "theirs.jsonl"),
            args=DPOConfig(
                **common(place),
                per_device_train_batch_size=BATCH,
                num_train_epochs=1,
                max_length=LONGEST,
                precompute_ref_log_probs=precompute,
                train_sampling_strategy="sequential",
            ),
            callbacks=[clock],
        )
        trainer.train()
    share = sum(spent) / len(clock.ended)
    steps = clock.durations()
    return Measurement([s + share for s in steps], {"step": steps, "reference": [share] * len(steps)})


def theirs_precomputed(place: Place) -> Measurement:
    """`DPOTrainer` with the reference asked before the first step."""
    return theirs(place, precompute=True)


def needs(place: Place) -> Needs:
    """The prompt once for both answers, forward and backward, and forward once more for the reference."""
    lengths = place.facts()["lengths"]
    steps = len(lengths) / BATCH
    trees = [Tree(prompt, tuple(responses)) for prompt, *responses in lengths]
    operations = training(place.shape, trees) + forward(place.shape, trees)
    return Needs(operations / steps, tokens=sum(tree.tokens for tree in trees) / steps)


JOBS = (
    Job(
        name="dpo",
        about="DPO, 17.6M, 8 pairs of at most 512 tokens a side, with the reference",
        peer="TRL 1.16.0",
        settings="defaults: the reference in every step, fused head; no checkpointing",
        environment="peers",
        shape="17.6M",
        prepare=prepare,
        ours=ours,
        theirs=theirs,
        needs=needs,
        faster=8.0,
        leaner=0.35,
    ),
    Job(
        name="dpo-precomputed",
        about="The same, the peer asking its reference before the first step as we do",
        peer="TRL 1.16.0",
        settings="precompute_ref_log_probs, fused head; no checkpointing",
        environment="peers",
        shape="17.6M",
        prepare=prepare,
        ours=ours,
        theirs=theirs_precomputed,
        needs=needs,
    ),
)
