"""GRPO: 8 samples to each prompt of 280 tokens, responses of 64, β .04, one optimiser step on each rollout."""

from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from bench.flops import Decoding, Tree, forward, training
from bench.job import Job, Measurement, Needs, Place

Turns: TypeAlias = list[dict[str, str]]


@dataclass(frozen=True)
class Size:
    """Of a rollout."""

    prompts: int
    prompt: int = 280
    samples: int = 8
    response: int = 64
    common: int = 0  # tokens that all prompts begin with

    def __str__(self) -> str:
        alike = f" ({self.common} of them the same)" if self.common else ""
        return f"{self.prompts} prompts of {self.prompt}{alike} × {self.samples} samples of {self.response}"


def prepare(place: Place, size: Size) -> None:
    """Prompts, all of one length, asked again in every step."""
    from bench.worlds import ensure_model, write_prompts

    ensure_model(place)
    place.note(lengths=write_prompts(place, size.prompts, size.prompt, size.prompt, size.common))


def settings(place: Place, size: Size, rank: int = 0) -> Any:
    """Of `tutelage improve --recipe grpo`, with an adapter where its rank is given."""
    from bench.ours import common
    from tutelage.base import config
    from tutelage.commands.improve.settings import ImproveSettings

    return ImproveSettings(
        **common(place),
        prompts=str(place.job / "prompts.jsonl"),
        reward=("bench.rewards:letters",),
        recipe="grpo",
        set=(f"samples={size.samples}", "update.minibatches=1", "penalty.coef=0.04", "shaping.missing_end=none"),
        steps=place.steps + 1,
        batch_size=size.prompts,
        sampling=config.Sampling(temperature=1.0, max_new_tokens=size.response),
        sample_every=10_000,
        lora=config.Lora(rank=rank),
    )


def ours(place: Place, size: Size, rank: int = 0) -> Measurement:
    """`tutelage improve --recipe grpo`."""
    from bench.machine import product_rate
    from bench.ours import improved

    rate = partial(product_rate, place.device, place.dtype) if place.rated else None
    return improved(settings(place, size, rank), rate)


def theirs(place: Place, size: Size, rank: int = 0) -> Measurement:
    """`GRPOTrainer`, with the same adapter."""
    from peft import LoraConfig
    from trl import GRPOConfig, GRPOTrainer

    from bench.rewards import letters
    from bench.theirs import StepClock, common, load, logged, rows

    def score(prompts: list[Turns], completions: list[Turns], **_: object) -> list[float]:
        return letters([p[-1]["content"] for p in prompts], [c[0]["content"] for c in completions])

    model, tokenizer = load(place)
    clock = StepClock()
    adapter = LoraConfig(r=rank, lora_alpha=32, target_modules="all-linear") if rank else None
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=score,
        train_dataset=rows(place.job / "prompts.jsonl"),
        args=GRPOConfig(
            **common(place),
            per_device_train_batch_size=size.samples,
            gradient_accumulation_steps=size.prompts,
            num_generations=size.samples,
            max_completion_length=size.response,
            max_steps=place.steps + 1,
            beta=0.04,
            loss_type="grpo",
            temperature=1.0,
            learning_rate=3e-6,
        ),
        callbacks=[clock],
        peft_config=adapter,
    )
    trainer.train()
    return Measurement(clock.durations(), facts={"length": logged(trainer, "completions/mean_length")})


def decoding_needs(place: Place, size: Size) -> Decoding:
    """What the rollout of a step needs."""
    sizes = (size.prompts, size.samples, size.prompt, size.response)
    return Decoding(place.shape, *sizes, bytes_each=2 if place.dtype == "bf16" else 4, common=size.common)


def needs(place: Place, size: Size, rank: int = 0) -> Needs:
    """In the update every prompt once for its samples, forward and backward; in decoding, once for its group."""
    trees = [Tree(size.prompt, (size.response,) * size.samples)] * size.prompts
    decoding = decoding_needs(place, size)
    sampled = size.prompts * size.samples * size.response
    return Needs(
        update=training(place.shape, trees, frozen=rank > 0),
        judging=forward(place.shape, trees),
        kept=forward(place.shape, trees, head=False) / sum(tree.tokens for tree in trees),
        updating="update",
        decoding=decoding,
        sampling="sampling",
        tokens=float(sampled),
    )


def job(shape: str, size: Size, steps: int, *, rank: int = 0, faster: float = 5.0, leaner: float = 0.40) -> Job:
    """The job with a model of this shape, and an adapter where its rank is given."""
    return Job(
        name=f"grpo-{shape}" + ("-lora" if rank else ""),
        about=f"GRPO, {shape}, {size}, β .04" + (f", LoRA of rank {rank}" if rank else ""),
        peer="TRL 1.16.0",
        settings="generate of transformers, fused head, micro-batches of one group, loss_type grpo, no checkpointing",
        environment="peers",
        shape=shape,
        prepare=partial(prepare, size=size),
        ours=partial(ours, size=size, rank=rank),
        theirs=partial(theirs, size=size, rank=rank),
        needs=partial(needs, size=size, rank=rank),
        faster=faster,
        leaner=leaner,
        steps=steps,
    )


SMALL, LARGE, RANK = Size(prompts=4), Size(prompts=2), 16
JOBS = (
    job("6.8M", SMALL, steps=4),
    job("134M", LARGE, steps=3),
    job("134M", LARGE, steps=2, rank=RANK, faster=6.0, leaner=0.35),
)
