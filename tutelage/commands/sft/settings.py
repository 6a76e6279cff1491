"""Settings of supervised fine-tuning."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from tutelage.base import config
from tutelage.base.config.bases import BatchSettings, MemorySettings, RunSettings, ShardSettings
from tutelage.base.config.limits import a_share, above_zero, at_least
from tutelage.commands.study_settings import StudySettings
from tutelage.data.records import WRITTEN, StudyRows


@dataclass(frozen=True, kw_only=True)
class SftSettings(StudySettings, RunSettings, BatchSettings, MemorySettings, ShardSettings):
    """Fine-tune a language model on demonstrations: the loss is on the responses only."""

    model: config.Model
    data: str
    """Demonstrations: a file (json, jsonl, csv, parquet; also .gz) or hub data set, whose format is recognised; or a
    study: its folder, its database file, or a postgresql:// URL."""
    study_rows: tuple[StudyRows, ...] = WRITTEN
    """What is read of a study: corrections (better responses that raters wrote), live (the better answers of
    conversations), votes (the better answers of all other questions)."""
    answers: Literal["last", "every"] = "last"
    """Of a conversation with several answers: the last is learnt, or every one, each after what was said before it."""
    lora: config.Lora = field(default_factory=config.Lora)
    optimiser: config.Optimiser = field(
        default_factory=lambda: config.Optimiser(warmup=0.03, schedule="cosine")
    )
    epochs: float = 1.0
    """Passes over the demonstrations."""
    held_out: float = 0.05
    """Share of the demonstrations kept aside to measure perplexity and ROUGE."""
    evaluate_every: int = 50
    """Steps between looks at the held-out demonstrations."""
    samples: int = 4
    """Held-out prompts that are answered before and after, to read."""
    rouge: int = 32
    """Held-out prompts that are answered at the end and compared with their references; 0 for none."""
    sampling: config.Sampling = field(
        default_factory=lambda: config.Sampling(temperature=0.0, max_new_tokens=128)
    )
    """How held-out prompts are answered."""

    RATES: ClassVar[config.Rates] = config.Rates(all=2e-5, lora=3e-4)
    """Learning rates where --optimiser.lr is left out."""

    def __post_init__(self) -> None:
        config.settle_rate(self)
        RunSettings.__post_init__(self)
        BatchSettings.__post_init__(self)
        above_zero(self, "epochs")
        at_least(self, evaluate_every=1, samples=0, rouge=0)
        a_share(self, "held_out")
