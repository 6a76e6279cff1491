"""Decoding alone: 8 samples to each prompt of 280 tokens, 64 tokens each, with their log-probabilities."""

import time
from functools import partial

from bench.job import Job, Measurement, Needs, Place
from bench.jobs.grpo import LARGE, SMALL, Size, decoding_needs, prepare


def ours(place: Place, size: Size) -> Measurement:
    """`tutelage.engines.sampling.sample`."""
    from bench.worlds import load_tokenizer
    from tutelage.base import config
    from tutelage.data.chat_tokens import encode
    from tutelage.data.formats import load_prompts
    from tutelage.engines.interface import PromptTokens
    from tutelage.models.backbone import load_backbone
    from tutelage.models.policy import Policy

    policy = Policy(load_backbone(config.Model(place.model, dtype=place.dtype, device=place.device)))  # type: ignore[arg-type]
    records = load_prompts(place.job / "prompts.jsonl").records
    tokens = tuple(tuple(encode(record.messages, None, load_tokenizer(place))[0]) for record in records)
    prompts = PromptTokens(tokens, tuple(record.id for record in records))
    sampling = config.Sampling(temperature=1.0, max_new_tokens=size.response)
    seconds, sampled = [], []
    for step in range(place.steps + 1):
        started = time.perf_counter()
        rollout = policy.generate(prompts, size.samples, sampling, seed=step)
        sampled.append(int(rollout.mask.sum()))
        seconds.append(time.perf_counter() - started)
    return Measurement(seconds[1:], facts={"tokens": sampled})


def theirs(place: Place, size: Size) -> Measurement:
    """`model.generate`."""
    import torch

    from bench.theirs import load, rows

    model, tokenizer = load(place)
    model.to(device=place.device, dtype=torch.bfloat16 if place.dtype == "bf16" else torch.float32).eval()
    asked = [row["prompt"] for row in rows(place.job / "prompts.jsonl")]
    inputs = tokenizer.apply_chat_template(
        asked, add_generation_prompt=True, padding=True, return_tensors="pt", return_dict=True
    ).to(place.device)
    torch.manual_seed(place.seed)
    seconds, sampled = [], []
    for _ in range(place.steps + 1):
        started = time.perf_counter()
        out = model.generate(
            **inputs,
            num_return_sequences=size.samples,
            max_new_tokens=size.response,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
        )
        answers = out[:, inputs["input_ids"].shape[1] :]
        sampled.append(int((answers != tokenizer.pad_token_id).sum()))
        seconds.append(time.perf_counter() - started)
    return Measurement(seconds[1:], facts={"tokens": sampled})


def needs(place: Place, size: Size) -> Needs:
    """The prompts read once, then a step for each token."""
    sampled = size.prompts * size.samples * size.response
    return Needs(decoding=decoding_needs(place, size), tokens=float(sampled))


def job(shape: str, size: Size, steps: int, faster: float) -> Job:
    """The job with a model of this shape."""
    return Job(
        name=f"decoding-{shape}",
        about=f"Decoding, {shape}, {size}",
        peer="transformers 5.23.0",
        settings="generate, dynamic cache, without log-probabilities (ours come with them)",
        environment="peers",
        shape=shape,
        prepare=partial(prepare, size=size),
        ours=partial(ours, size=size),
        theirs=partial(theirs, size=size),
        needs=partial(needs, size=size),
        faster=faster,
        steps=steps,
    )


JOBS = (job("6.8M", SMALL, steps=5, faster=4.0), job("134M", LARGE, steps=4, faster=2.5))
