"""Settings of pretraining."""

from dataclasses import dataclass, field

from tutelage.base import config
from tutelage.base.config.bases import BatchSettings, EngineSettings
from tutelage.base.errors import TutelageError


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(BatchSettings, EngineSettings):
    """Train a language model on plain text: a new small Llama with its own tokenizer, or an existing model."""

    data: str
    """Text: a .txt file with documents separated by blank lines, a file with a `text` column, or a hub data set."""
    model: str = ""
    """Folder or hub name of a model to train further; if omitted, a new one of the size in --shape."""
    dtype: config.DtypeName = "float32"
    """Precision of matrix products: float32, bf16, or auto: bf16 if the device multiplies it faster and the model is
    large enough to benefit. Weights, sums and log-probabilities are always float32."""
    device: str = "auto"
    """Device: auto (a GPU if there is one), cpu, cuda, ..."""
    shape: config.Shape = field(default_factory=config.Shape)
    optimiser: config.Optimiser = field(
        default_factory=lambda: config.Optimiser(
            lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1, warmup=0.05, schedule="cosine"
        )
    )
    epochs: float = 1.0
    """Passes over the text."""
    held_out: float = 0.02
    """Share of held-out documents, to measure perplexity."""
    evaluate_every: int = 50
    """Evaluate on the held-out text every N steps."""

    def __post_init__(self) -> None:
        BatchSettings.__post_init__(self)
        if self.model and self.shape != config.Shape():
            raise TutelageError(
                f"--shape describes a new model, but --model {self.model} names an existing one. Omit one of them."
            )
