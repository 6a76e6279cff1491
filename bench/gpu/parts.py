"""Parts of the measurement on a GPU, in the order of their worth, and the subjects that each compares."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any

from bench.gpu import attention, card, decoding_rates, equality, head, policy_step, updates

Figures = Mapping[str, Any]
ENGINES = ("plain", "gpu")


@dataclass(frozen=True)
class Part:
    """`measure(device, tiny, subject)` gives figures, among them those of `columns`, which the table shows. A process
    that takes more than `limit` seconds is ended."""

    name: str
    about: str
    subjects: tuple[str, ...]
    columns: tuple[str, ...]
    measure: Callable[[str, bool, str], Figures]
    limit: int = 60


@dataclass(frozen=True)
class Unit:
    """A part with one subject: one process, one line."""

    part: Part
    subject: str

    @property
    def key(self) -> tuple[str, str]:
        """The name of the line."""
        return self.part.name, self.subject


def _head(device: str, tiny: bool, subject: str) -> Figures:
    rows, vocabulary, width = (32, 256, 16) if tiny else (16_384, 248_320, 2_048)
    return flat(head.measure(rows, vocabulary, width, device))


def _attention(device: str, tiny: bool, subject: str) -> Figures:
    return flat(attention.measure(device))


def flat(figures: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested figures under names with dots."""
    flattened: dict[str, Any] = {}
    for name, value in figures.items():
        flattened |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flattened


_DECODING = tuple(
    f"{load}_{name}"
    for load in ("shared", "distinct")
    for name in ("decoding", "end_to_end", "share_of_floor", "step_ms", "peak_gib")
)
_ERRORS = ("logp", "entropy", "gradient")
_STEP = ("first_seconds", "step_seconds", "peak_gib")
_DECODERS = (*ENGINES, "continuous", "generate")


def _decoding(model: str, limit: int) -> Part:
    about = f"Decoding, {model}, bf16, 64 rows, prompts of 512 tokens, completions of 256"
    return Part(f"decoding-{model}", about, _DECODERS, _DECODING, partial(decoding_rates.measure, model), limit)


PARTS = (
    Part("card", "The card", ("card",), ("copy_tb_s", "bf16_tflop_s", "float32_tflop_s"), card.measure),
    Part(
        "equality",
        "Largest differences from plain on a CPU in float32, five families, full and LoRA",
        ENGINES,
        (
            *(f"float32_{name}" for name in _ERRORS),
            "float32_equal_tokens",
            *(f"bf16_{name}" for name in _ERRORS),
            *("bf16_kl", "bf16_ratios_near_1", "bf16_largest_ratio"),
        ),
        equality.measure,
        limit=150,
    ),
    Part(
        "trained",
        "Sampler against trainer in bf16 on a trained model, full and LoRA",
        ENGINES,
        tuple(
            f"{kind}_bf16_{name}"
            for kind in ("full", "lora")
            for name in ("kl", "ratios_near_1", "largest_ratio", "logp")
        ),
        equality.trained,
    ),
    _decoding("Qwen3-0.6B", limit=90),
    Part("head", "Head loss, 16,384 × 248,320 × 2,048, bf16, forwards and backwards", ("kernels",), (), _head),
    Part("attention", "Attention of a decoding step, one layer", ("kernels",), (), _attention),
    Part(
        "sft",
        "SFT, Qwen3-0.6B, full, one document of 8,192 tokens",
        ENGINES,
        ("tokens_per_second", "mfu", *_STEP),
        updates.sft,
    ),
    Part(
        "grpo",
        "GRPO, Qwen3-0.6B, full, 8 prompts of 512 tokens × 8 completions of 256",
        ENGINES,
        ("generate_seconds", "score_seconds", "update_seconds", "step_seconds", "peak_gib"),
        policy_step.measure,
        limit=90,
    ),
    Part(
        "grpo-trl",
        "GRPOTrainer, the same sizes",
        ("trl-continuous", "trl"),
        ("first_seconds", "step_seconds", "mean_length", "peak_gib"),
        policy_step.trl,
        limit=100,
    ),
    Part(
        "lora",
        "LoRA of rank 16, Qwen3-4B, one document of 16,384 tokens",
        ENGINES,
        ("tokens_per_second", "mfu", "mfu_frozen", *_STEP),
        updates.lora,
        limit=90,
    ),
    _decoding("Qwen3-4B", limit=100),
    Part(
        "dpo",
        "DPO, Qwen2.5-0.5B, full, 8 pairs of completions of 512 tokens to prompts of 512",
        ENGINES,
        ("reference_seconds", *_STEP),
        updates.preferences,
    ),
)


def units(names: tuple[str, ...] = (), subjects: tuple[str, ...] = ()) -> list[Unit]:
    """The parts whose names begin with one of `names`, with those of their subjects that are in `subjects`, in order of
    worth; all without names or subjects."""
    unknown = [name for name in names if not any(part.name.startswith(name) for part in PARTS)]
    if unknown:
        raise ValueError(f"No part is called {unknown[0]!r}; there are {', '.join(part.name for part in PARTS)}.")
    return [
        Unit(part, subject)
        for part in PARTS
        for subject in part.subjects
        if (not names or part.name.startswith(names))
        and (not subjects or len(part.subjects) == 1 or subject in subjects)
    ]


def obstacle(unit: Unit) -> str:
    """Why a unit cannot be measured here; empty if it can."""
    if unit.part.name == "trained" and not equality.model_folder().is_dir():
        return f"there is no trained model in {equality.model_folder()} (TUTELAGE_GPU_MODEL)"
    if unit.subject.startswith("trl") and (find_spec("trl") is None or find_spec("datasets") is None):
        return "TRL is not installed (see bench/gpu.txt)"
    return ""
