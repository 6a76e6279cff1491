"""Plans beside measured steps on a GPU: `python -m bench.gpu.plans` prints the table of docs/scale.md.

The device has the rates that were measured on the card: of copies, and of large products in both precisions.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from bench.gpu.random_models import settings_of
from tutelage.engines.plans.estimate import CostEstimate, estimate
from tutelage.engines.plans.hardware import GIB, GPUS, Cluster, Device
from tutelage.engines.plans.rank_memory import PlanSetting
from tutelage.engines.plans.workload import BatchShape, SamplingLoad, Workload
from tutelage.models.outline import outline_of

RESULTS = Path(__file__).parents[1] / "results" / "gpu"
SAMPLING = SamplingLoad(256, weights=2.0, copies=2.0)
LIMIT = 256
"""Tokens of a completion."""


@dataclass(frozen=True)
class Row:
    """A measured part beside its plan."""

    card: str
    what: str
    seconds: float
    peak_gib: float
    plan: CostEstimate

    def __str__(self) -> str:
        planned, peak = self.plan.seconds, self.plan.memory.peak / GIB
        return (
            f"| {self.card} | {self.what} | {self.seconds:.3g} s | {planned:.3g} s | {planned / self.seconds:.2f} | "
            f"{self.peak_gib:.1f} GiB | {peak:.1f} GiB | {peak / self.peak_gib:.2f} |"
        )


def _work(model: str, batch: BatchShape, **more: Any) -> Workload:
    with torch.device("meta"):
        outline = outline_of(AutoModelForCausalLM.from_config(settings_of(model, tiny=False)))
    return Workload(outline, batch, half=True, fused=True, casts_layers=True, **more)


def _cases(figures: dict[str, dict[str, float]]) -> Iterator[tuple[str, float, float, Workload, PlanSetting]]:
    """What was measured, in seconds and GiB, with its workload."""
    if step := figures.get("sft"):
        work = _work("Qwen3-0.6B", BatchShape(1, 1, 1, 8_191))
        yield "SFT, 0.6B, 8,192 tokens", step["step_seconds"], step["peak_gib"], work, PlanSetting(tokens=8_192)
    if step := figures.get("lora"):
        work = _work("Qwen3-4B", BatchShape(1, 1, 1, 16_383), lora=16)
        setting = PlanSetting(checkpointing=True, tokens=16_384)
        yield "LoRA, 4B, 16,384 tokens", step["step_seconds"], step["peak_gib"], work, setting
    if step := figures.get("grpo"):
        work = _work("Qwen3-0.6B", BatchShape(8, 8, 512, LIMIT), sampling=SAMPLING, scorings=1.0)
        yield "GRPO, 0.6B, 8 × 8", step["step_seconds"], step["peak_gib"], work, PlanSetting(tokens=16_384)
    for name, batch in (("shared", BatchShape(8, 8, 512, LIMIT)), ("distinct", BatchShape(64, 1, 512, LIMIT))):
        if step := figures.get("decoding-Qwen3-0.6B"):
            seconds = step[f"{name}_prefill_seconds"] + LIMIT * step[f"{name}_step_ms"] / 1e3
            work = _work("Qwen3-0.6B", batch, trains=False, sampling=SAMPLING)
            yield f"64 rows, 0.6B, {name} prompts", seconds, step[f"{name}_peak_gib"], work, PlanSetting()


def rows(file: Path) -> Iterator[Row]:
    """The rows of the results of one card."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    figures = {
        line["part"]: line["figures"] for line in lines if line["subject"] in ("gpu", "card") and "figures" in line
    }
    card = figures["card"]
    device = Device(
        name=lines[0]["card"],
        memory=card["memory_gib"] * GIB,
        bf16=card["bf16_tflop_s"] * 1e12,
        float32=card["float32_tflop_s"] * 1e12,
        bandwidth=card["copy_tb_s"] * 1e12,
        link=GPUS["h100"].link,
        matrix_share=0.9,
        memory_share=1.0,
        gpu_engine=True,
        source="measured",
    )
    for what, seconds, peak, work, setting in _cases(figures):
        yield Row(device.name, what, seconds, peak, estimate(work, Cluster(device), setting))


def main() -> None:
    """Print the table."""
    print("| card | what | measured | planned | ratio | peak | planned | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for file in sorted(RESULTS.glob("*.jsonl")):
        for row in rows(file):
            print(row)


if __name__ == "__main__":
    main()
