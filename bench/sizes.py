"""Planned steps on GPUs: `python -m bench.sizes` prints the rows of the table "Sizes" of docs/scale.md.

A step of GRPO with 8 completions of every prompt, 256 tokens of a prompt, 400 of a completion, a limit of 512, in bf16.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from transformers import LlamaConfig, PretrainedConfig

import tutelage as tt
from bench.gpu.random_models import settings_of
from tutelage.commands.plan.run import PlanResult
from tutelage.engines.plans.estimate import setting_flags
from tutelage.engines.plans.hardware import GIB

SAMPLES, PROMPT, COMPLETION, LIMIT = 8, 256, 400, 512


def _llama(vocabulary: int, hidden: int, layers: int, heads: int, kv_heads: int, feed_forward: int) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=feed_forward,
        tie_word_embeddings=hidden < 1000,
    )


MODELS: dict[str, PretrainedConfig] = {
    "135M": _llama(49_152, 576, 30, 9, 3, 1_536),  # SmolLM2
    "0.6B": settings_of("Qwen3-0.6B", tiny=False),
    "4B": settings_of("Qwen3-4B", tiny=False),
    "8B": _llama(128_256, 4_096, 32, 32, 8, 14_336),  # Llama 3.1
    "70B": _llama(128_256, 8_192, 80, 64, 8, 28_672),
    "405B": _llama(128_256, 16_384, 126, 128, 8, 53_248),
}


@dataclass(frozen=True)
class Size:
    """A row: a model on some GPUs."""

    gpu: str
    model: str
    completions: int = 512
    gpus: int = 1
    servers: int = 0
    rank: int = 0
    """Rank of an adapter; 0 trains every weight."""

    @property
    def where(self) -> str:
        """The GPUs, as the table names them."""
        name = {"4090": "RTX 4090"}.get(self.gpu, self.gpu.upper())
        return f"{self.gpus:,} {name}" + (f", {self.servers} of them serving" if self.servers else "")

    def plan(self, engine: str = "auto") -> PlanResult:
        """The plan of a step."""
        with tempfile.TemporaryDirectory() as folder:
            MODELS[self.model].save_pretrained(folder)
            settings = tt.ImproveSettings(
                model=tt.Model(folder, dtype="bf16", engine=engine),
                prompts="none.jsonl",
                reward=("own:reward",),
                recipe="grpo",
                batch_size=self.completions // SAMPLES,
                set=(f"samples={SAMPLES}",),
                sampling=tt.Sampling(max_new_tokens=LIMIT),
                lora=tt.Lora(rank=self.rank),
                steps=1,
                out=Path("none"),
            )
            where = tt.PlanSettings(
                gpu=self.gpu, gpus=self.gpus, servers=self.servers, prompt_tokens=PROMPT, response_tokens=COMPLETION
            )
            return tt.plan(settings, where)


SIZES = (
    Size("4090", "135M"),
    Size("4090", "0.6B"),
    Size("l40s", "4B", rank=16),
    Size("h100", "8B", rank=16),
    Size("h100", "8B", gpus=8),
    Size("h100", "8B", gpus=8, servers=4),
    Size("h100", "70B", 2_048, gpus=64, servers=24),
    Size("h100", "70B", 8_192, gpus=256, servers=96),
    Size("h100", "70B", 32_768, gpus=1_024, servers=384),
    Size("h100", "405B", 8_192, gpus=1_024, servers=384),
)


def row(size: Size) -> str:
    """The row of a size, as Markdown."""
    choice = size.plan().plan.choice
    assert choice is not None, f"{size} does not fit"
    adapter = f"--lora.rank {size.rank} " if size.rank else ""
    servers = " --rollouts URL" if size.servers else ""
    flags = f"{adapter}{setting_flags(choice.setting)}{servers}".strip()
    hours = size.gpus * choice.seconds / 3600 / size.completions * 1000
    cells = (
        size.where,
        f"{size.model}{', adapter' if size.rank else ''}",
        f"`{flags}`" if flags else "none",
        f"{size.completions:,}",
        f"{choice.memory.peak / GIB:.0f} GiB",
        f"{choice.seconds:.3g}" if choice.seconds < 10 else f"{choice.seconds:.0f}",
        f"{hours:.2g}".removeprefix("0"),
    )
    return f"| {' | '.join(cells)} |"


def table() -> Iterator[str]:
    """The rows of all sizes."""
    yield from map(row, SIZES)


if __name__ == "__main__":
    print("\n".join(table()))
