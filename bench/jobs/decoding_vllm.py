"""Decoding against vLLM's CPU build: few prompts with many samples, many prompts with few, and many that begin alike,
in float32 and bf16."""

import json
import os
import time
from functools import partial

from bench.job import Job, Measurement, Place
from bench.jobs import grpo
from bench.jobs.decoding import needs, ours
from bench.jobs.grpo import LARGE, Size

WIDE = Size(prompts=32, samples=4)
ALIKE = Size(prompts=32, samples=4, common=240)
ROOM = 16_384
"""Tokens that vLLM may read at once: all prompts of a rollout together."""
BLOCK = 32
"""Tokens of a block of vLLM's cache where prompts begin alike: whole blocks are shared. It has 128 by itself."""


def prepare(place: Place, size: Size) -> None:
    """Prompts, and their tokens for the peer, whose older version of transformers cannot read the tokenizer."""
    from bench.worlds import load_tokenizer
    from tutelage.data.chat_tokens import encode
    from tutelage.data.formats import load_prompts

    grpo.prepare(place, size)
    tokenizer = load_tokenizer(place)
    records = load_prompts(place.job / "prompts.jsonl").records
    read = [encode(record.messages, None, tokenizer)[0] for record in records]
    (place.job / "tokens.json").write_text(json.dumps({"prompts": read, "end": tokenizer.eos_token_id}))


def theirs(place: Place, size: Size) -> Measurement:
    """`LLM.generate`, with log-probabilities of the sampled tokens, which ours come with too. Prompts are read anew in
    every step."""
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "2"}
    from vllm import LLM, SamplingParams

    told = json.loads((place.job / "tokens.json").read_text())
    model = LLM(
        place.model,
        skip_tokenizer_init=True,
        dtype={"float32": "float32", "bf16": "bfloat16"}[place.dtype],
        max_model_len=place.shape.context,
        max_num_batched_tokens=ROOM,
        max_num_seqs=size.prompts * size.samples,
        block_size=BLOCK if size.common else None,
        enable_chunked_prefill=False,  # it cannot cut the prompt of a seeded request
        seed=place.seed,
        disable_log_stats=True,
    )
    seconds, sampled = [], []
    for step in range(place.steps + 1):
        model.reset_prefix_cache()
        sampling = SamplingParams(
            n=size.samples,
            temperature=1.0,
            max_tokens=size.response,
            stop_token_ids=[told["end"]],
            logprobs=0,
            detokenize=False,
            seed=step,
        )
        started = time.perf_counter()
        answers = model.generate([{"prompt_token_ids": ids} for ids in told["prompts"]], sampling, use_tqdm=False)
        seconds.append(time.perf_counter() - started)
        sampled.append(sum(len(sample.token_ids) for answer in answers for sample in answer.outputs))
    return Measurement(seconds[1:], facts={"tokens": sampled})


def job(name: str, size: Size, steps: int, precision: str, faster: float | None = None) -> Job:
    """The job on 134M weights."""
    return Job(
        name=f"vllm-{name}-{precision}",
        about=f"Decoding, 134M, {size}, {precision}",
        peer="vLLM 0.32.0",
        settings="its CPU build (vllm-cpu), compiled, prompts shared by its prefix cache, Intel's OpenMP",
        environment="peers-vllm",
        shape="134M",
        prepare=partial(prepare, size=size),
        ours=partial(ours, size=size),
        theirs=partial(theirs, size=size),
        needs=partial(needs, size=size),
        faster=faster,
        steps=steps,
        precision=precision,
    )


JOBS = (
    job("few", LARGE, 4, "float32", 2.2),
    job("few", LARGE, 4, "bf16", 1.8),
    job("many", WIDE, 2, "float32", 1.45),
    job("many", WIDE, 2, "bf16", 2.5),
    job("alike", ALIKE, 2, "float32"),
    job("alike", ALIKE, 2, "bf16"),
)
