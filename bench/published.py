"""Plans beside figures that others published: `python -m bench.published` prints the table of docs/scale.md.

The plans take the devices' data sheets and the shares that `planning.hardware` states; nothing is fitted to a row.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from tutelage.engines.plans.estimate import estimate
from tutelage.engines.plans.hardware import GPUS, Cluster
from tutelage.engines.plans.rank_memory import PlanSetting
from tutelage.engines.plans.workload import BatchShape, SamplingLoad, Transformer, Workload
from tutelage.models.outline import outline_of

TITAN = "torchtitan docs/performance.md, commit 04133643"
IBM = "PyTorch blog, Maximizing training throughput using PyTorch FSDP, 2024"
NEMO = "NeMo RL v0.4 docs/about/performance-summary.md, commit 06beed91"


@dataclass(frozen=True)
class Published:
    """A published figure, and the plan's."""

    what: str
    where: str
    unit: str
    published: float
    planned: float
    source: str

    @property
    def ratio(self) -> float:
        """Planned over published."""
        return self.planned / self.published


def llama(vocabulary: int, hidden: int, layers: int, heads: int, shared: int, feed_forward: int) -> Transformer:
    """A Llama with separate embeddings, in numbers."""
    settings = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=shared,
        intermediate_size=feed_forward,
        tie_word_embeddings=False,
    )
    with torch.device("meta"):
        return outline_of(AutoModelForCausalLM.from_config(settings))


LLAMA = {
    "Llama 2 7B": (32_000, 4096, 32, 32, 32, 11_008),
    "Llama 2 13B": (32_000, 5120, 40, 40, 40, 13_824),
    "Llama 2 70B": (32_000, 8192, 80, 64, 8, 28_672),
    "Llama 3 8B": (128_256, 4096, 32, 32, 8, 14_336),
    "Llama 3 70B": (128_256, 8192, 80, 64, 8, 28_672),
}


def pretraining(
    model: str, gpus: int, rows: int, length: int, checkpointing: bool, per_second: float, source: str
) -> Published:
    """Tokens per second and GPU of pretraining with `--shard full`, `rows` windows for each A100."""
    work = Workload(llama(*LLAMA[model]), BatchShape(rows * gpus, 1, 0, length), half=True)
    cluster = Cluster(GPUS["a100-80"], gpus, network=25e9)
    cost = estimate(work, cluster, PlanSetting("full", checkpointing, rows * length))
    kept = "activations recomputed" if checkpointing else "activations kept"
    return Published(
        f"{model}, {rows} × {length:,} tokens, {kept}",
        f"{gpus} A100-80",
        "tokens/s/GPU",
        per_second,
        rows * length / cost.seconds,
        source,
    )


def grpo_of_nemo() -> Published:
    """Llama 3.1 8B, 2,048 responses of 1,060 tokens with their prompts, four updates, 16 H100, colocated vLLM."""
    batch = BatchShape(64, 32, 160, 900, shared=False)
    work = Workload(
        llama(*LLAMA["Llama 3 8B"]),
        batch,
        half=True,
        updates=4,
        sampling=SamplingLoad(4096 - 160),
        scorings=1.0,
        reference=1.0,
        has_reference=True,
    )
    cluster = Cluster(GPUS["h100"], 16)
    cost = estimate(work, cluster, PlanSetting("full", True, 16_384), cluster)
    return Published(
        "GRPO, Llama 3.1 8B, 2,048 responses, 1,060 tokens a row", "16 H100", "s/step", 97.7, cost.seconds, NEMO
    )


def zero(ranks: int, gigabytes: float) -> Published:
    """Weights, gradients and moments of 7.5 G weights."""
    states = 16 * 7.5e9 / ranks / 1e9
    return Published(
        "model states of 7.5 G weights", f"{ranks} ranks", "GB", gigabytes, states, "ZeRO, arXiv 1910.02054, figure 1"
    )


CASES: tuple[Callable[[], Published], ...] = (
    lambda: zero(1, 120.0),
    lambda: zero(64, 1.9),
    lambda: pretraining("Llama 2 7B", 128, 2, 4096, False, 3700, IBM),
    lambda: pretraining("Llama 2 13B", 64, 2, 4096, False, 2162, TITAN),
    lambda: pretraining("Llama 2 70B", 64, 2, 4096, True, 353, TITAN),
    lambda: pretraining("Llama 3 70B", 64, 1, 8192, True, 331, TITAN),
    grpo_of_nemo,
)


def table() -> Iterator[str]:
    """The rows of the table, as Markdown."""
    yield "| what | where | published | planned | ratio | source |"
    yield "|---|---|---|---|---|---|"
    for case in CASES:
        row = case()
        yield (
            f"| {row.what} | {row.where} | {row.published:,.4g} {row.unit} | {row.planned:,.4g} | {row.ratio:.2f} | "
            f"{row.source} |"
        )


if __name__ == "__main__":
    print("\n".join(table()))
