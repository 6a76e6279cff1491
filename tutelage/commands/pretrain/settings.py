"""Settings of pretraining."""

from dataclasses import dataclass, field

from tutelage.base import config
from tutelage.base.config.bases import BatchSettings, EngineSettings
from tutelage.base.config.bounds import a_share, above_zero, at_least
from tutelage.base.errors import TutelageError


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(BatchSettings, EngineSettings):
    """Train a language model on plain text: a new small Llama with its own tokenizer, or further training of a model
    that exists."""

    data: str
    """Text: a .txt file with documents between blank lines, a file with a `text` column, or a hub data set."""
    model: str = ""
    """Folder or hub name of a model to train further; empty makes a new one of the size in --shape."""
    dtype: config.DtypeName = "float32"
    """Precision of matrix products: float32, bf16, or auto, which takes bf16 where the device multiplies it faster and
    the model is large enough to gain by it. Weights, sums and log-probabilities are float32 either way."""
    device: str = "auto"
    """Where it runs: auto (a GPU when there is one), cpu, cuda, ..."""
    shape: config.Shape = field(default_factory=config.Shape)
    optimiser: config.Optimiser = field(
        default_factory=lambda: config.Optimiser(
            lr=2e-3, betas=(0.9, 0.95), weight_decay=0.1, warmup=0.05, schedule="cosine"
        )
    )
    epochs: float = 1.0
    """Passes over the text."""
    held_out: float = 0.02
    """Share of the documents kept aside to measure perplexity."""
    evaluate_every: int = 50
    """Steps between looks at the held-out text."""

    def __post_init__(self) -> None:
        BatchSettings.__post_init__(self)
        above_zero(self, "epochs")
        at_least(self, evaluate_every=1)
        a_share(self, "held_out")
        if self.model and self.shape != config.Shape():
            raise TutelageError(
                f"--shape describes a new model, but --model {self.model} names one that exists. Leave one of them out."
            )
