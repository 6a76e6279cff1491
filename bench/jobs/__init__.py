"""Every job, by name. A file each says what both sides do; some are measured in bf16 too."""

from dataclasses import replace

from bench.job import Job
from bench.jobs import decoding, decoding_vllm, dpo, growth, grpo, ppo, ppo_learning, reward, sft, tools


def in_bf16(job: Job) -> Job:
    """The job with both sides in bf16, over float32 weights where it trains, and without aims."""
    own = {"name": f"{job.name}-bf16", "about": f"{job.about}, bf16", "precision": "bf16"}
    return replace(job, **own, faster=None, leaner=None)


_PARTS = (sft, dpo, reward, grpo, tools, ppo, ppo_learning, decoding, decoding_vllm, growth)
_FLOAT32 = {job.name: job for part in _PARTS for job in part.JOBS}
_BF16 = ("sft", "dpo", "reward", "grpo-6.8M", "grpo-134M", "grpo-134M-lora", "ppo")
JOBS: dict[str, Job] = _FLOAT32 | {job.name: job for job in (in_bf16(_FLOAT32[name]) for name in _BF16)}
