"""Plans beside what the bench measured: `python -m bench.plan` reads the results and prints a table.

    python -m bench grpo-6.8M --only ours && python -m bench.plan

A plan takes the rates that were measured with the job, as `tutelage plan` measures those of its machine, and must come
within 25 % of the median step and within 10 % of the peak memory. Jobs with texts of several lengths need the bench's
own folder, which holds their lengths.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from bench.jobs import grpo, ppo
from bench.jobs.dpo import BATCH
from bench.shapes import SHAPES, Shape
from tutelage.commands.plan.run import COPIES
from tutelage.engines.device_rates import CPU_SHARE, RUNTIME
from tutelage.engines.plans.estimate import CostEstimate, estimate
from tutelage.engines.plans.hardware import Cluster, Device
from tutelage.engines.plans.rank_memory import PlanSetting
from tutelage.engines.plans.workload import BatchShape, SamplingLoad, Transformer, Workload
from tutelage.models.outline import outline_of

HERE = Path(__file__).parent
TIME, MEMORY = 0.25, 0.10
"""How far a plan may be from the median step and from the peak memory."""
Lengths = Sequence[Sequence[int]]
"""Tokens of each row's prompt and of its responses."""


@dataclass(frozen=True)
class Comparison:
    """A plan beside the measurement of a job on a machine."""

    job: str
    machine: str
    planned: CostEstimate
    seconds: float
    peak: float

    @property
    def time_ratio(self) -> float:
        """Planned over measured seconds of a step."""
        return self.planned.seconds / self.seconds

    @property
    def memory_ratio(self) -> float:
        """Planned over measured bytes at the peak."""
        return self.planned.memory.peak / self.peak


def numbers(shape: Shape) -> Transformer:
    """A model of the bench in numbers."""
    settings = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        intermediate_size=shape.feed_forward,
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        return outline_of(AutoModelForCausalLM.from_config(settings))


def _grpo(shape: str, size: grpo.Size) -> Workload:
    batch = BatchShape(size.prompts, size.samples, size.prompt, size.response)
    sampling = SamplingLoad(size.response, copies=COPIES)
    return Workload(numbers(SHAPES[shape]), batch, sampling=sampling, reference=1.0, has_reference=True, keeps=True)


def _decoding(shape: str, size: grpo.Size) -> Workload:
    batch = BatchShape(size.prompts, size.samples, size.prompt, size.response)
    return Workload(numbers(SHAPES[shape]), batch, trains=False, sampling=SamplingLoad(size.response, copies=COPIES))


def _ppo() -> Workload:
    model = numbers(SHAPES["6.8M"])
    return Workload(
        model,
        BatchShape(ppo.PROMPTS, 1, (ppo.SHORTEST + ppo.LONGEST) / 2, ppo.RESPONSE),
        epochs=ppo.EPOCHS,
        updates=ppo.EPOCHS * ppo.MINIBATCHES,
        sampling=SamplingLoad(ppo.RESPONSE, copies=COPIES),
        reference=1.0,
        has_reference=True,
        critic=model,
        rewards=(model,),
    )


def _of_texts(lengths: Lengths, **more: Any) -> Workload:
    prompt = fmean(row[0] for row in lengths)
    response = fmean(tokens for row in lengths for tokens in row[1:])
    return Workload(numbers(SHAPES["17.6M"]), BatchShape(BATCH, len(lengths[0]) - 1, prompt, response), **more)


FIXED: dict[str, Callable[[], Workload]] = {
    "grpo-6.8M": lambda: _grpo("6.8M", grpo.SMALL),
    "grpo-134M": lambda: _grpo("134M", grpo.LARGE),
    "ppo": _ppo,
    "decoding-6.8M": lambda: _decoding("6.8M", grpo.SMALL),
    "decoding-134M": lambda: _decoding("134M", grpo.LARGE),
}
"""Jobs whose lengths are set."""
TEXTS: dict[str, dict[str, Any]] = {"sft": {}, "dpo": {"reference": 1.0}, "reward": {"is_scalar": True}}
"""Jobs whose lengths are those of texts."""


def compare(job: str, result: dict[str, Any], lengths: Lengths = (), share: float = CPU_SHARE) -> Comparison:
    """The plan of a job on the machine of its result, whose products reach `share` of the measured rate."""
    machine, ours = result["machine"], result["ours"]
    rate = median(ours["rates"]) if ours.get("rates") else machine["flops"]
    device = Device(
        machine["name"],
        memory=24e9,
        bf16=rate,
        float32=rate,
        bandwidth=machine["bandwidth"],
        link=1e10,
        runtime=RUNTIME,
        matrix_share=share,
        memory_share=1.0,
        is_gpu=False,
    )
    work = FIXED[job]() if job in FIXED else _of_texts(lengths, **TEXTS[job])
    work = replace(work, selects=True)
    planned = estimate(work, Cluster(device), PlanSetting())
    return Comparison(job, machine["name"], planned, median(ours["seconds"]), ours["peak_mb"] * 2**20)


def comparisons() -> Iterator[Comparison]:
    """All jobs of all machines that have a plan."""
    for file in sorted((HERE / "results").glob("*/*.json")):
        result = json.loads(file.read_text())
        facts = next(HERE.parent.glob(f".bench/world*/jobs/{file.stem}/facts.json"), None)
        if file.stem in FIXED:
            yield compare(file.stem, result)
        elif file.stem in TEXTS and facts is not None:
            yield compare(file.stem, result, json.loads(facts.read_text())["lengths"])


def main() -> None:
    """Print the table."""
    print("| machine | job | step | planned | ratio | peak | planned | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for one in comparisons():
        peak = one.planned.memory.peak
        print(
            f"| {one.machine} | {one.job} | {one.seconds:.2f} s | {one.planned.seconds:.2f} s | {one.time_ratio:.2f} | "
            f"{one.peak / 2**30:.2f} GiB | {peak / 2**30:.2f} GiB | {one.memory_ratio:.2f} |"
        )


if __name__ == "__main__":
    main()
