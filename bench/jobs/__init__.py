"""Every job, by name. A file each says what both sides do."""

from bench.job import Job
from bench.jobs import decoding, decoding_vllm, dpo, growth, grpo, ppo, ppo_learning, reward, sft

JOBS: dict[str, Job] = {
    job.name: job
    for part in (sft, dpo, reward, grpo, ppo, ppo_learning, decoding, decoding_vllm, growth)
    for job in part.JOBS
}
