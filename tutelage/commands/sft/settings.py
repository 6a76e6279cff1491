"""Settings of supervised fine-tuning."""

from dataclasses import dataclass, field
from typing import Literal

from tutelage.base import config
from tutelage.base.config.bases import BatchSettings, WeightSettings
from tutelage.base.config.bounds import at_least
from tutelage.commands.study import StudySettings
from tutelage.data.records import WRITTEN, StudyRows


@dataclass(frozen=True, kw_only=True)
class SftSettings(StudySettings, WeightSettings, BatchSettings):
    """Fine-tune a language model on demonstrations: the loss is on the responses only."""

    data: str
    """Demonstrations: a file (json, jsonl, csv, parquet; also .gz) or hub data set, whose format is detected; or a
    study: its folder, its database file, or a postgresql:// URL."""
    study_rows: tuple[StudyRows, ...] = WRITTEN
    """Rows of a study to use: corrections (better responses that raters wrote), live (the better responses of
    conversations), votes (the better responses of all other questions)."""
    answers: Literal["last", "every"] = "last"
    """For a conversation with several answers: train on the last one, or on every one after its history. Each is a row,
    and --batch-size counts rows, not conversations."""
    optimiser: config.Optimiser = field(default_factory=lambda: config.Optimiser(warmup=0.03, schedule="cosine"))
    epochs: float = 1.0
    """Passes over the demonstrations."""
    held_out: float = 0.05
    """Share of held-out demonstrations, to measure perplexity and ROUGE."""
    evaluate_every: int = 50
    """Evaluate on the held-out demonstrations every N steps."""
    samples: int = 4
    """Held-out prompts to complete before and after training, for inspection."""
    rouge: int = 32
    """Held-out prompts to complete at the end and compare with their references; 0 for none."""
    sampling: config.Sampling = field(default_factory=lambda: config.Sampling(temperature=0.0, max_new_tokens=128))
    """Sampling of completions of held-out prompts."""

    RATES = config.Rates(all=2e-5, lora=3e-4)

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, samples=0, rouge=0)
