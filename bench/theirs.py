"""Running the peer's side of a job with TRL's trainers. Imported in the peers' environments only."""

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

from bench.job import Place


class StepClock(TrainerCallback):
    """Notes when each optimiser step of the trainer (in PPO: each rollout with its updates) was over."""

    def __init__(self) -> None:
        self.started = 0.0
        self.ended: list[float] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.started = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ended.append(time.perf_counter())

    def durations(self) -> list[float]:
        """Seconds from the end of each step to the end of the next: the first step is not measured."""
        return [now - before for before, now in pairwise(self.ended)]


def load(place: Place) -> tuple[Any, Any]:
    """The model in float32 and its tokenizer."""
    return (
        AutoModelForCausalLM.from_pretrained(place.model, dtype=torch.float32),
        AutoTokenizer.from_pretrained(place.model),
    )


def rows(path: Path) -> Any:
    """A file of rows as a data set."""
    return load_dataset("json", data_files=str(path), split="train", cache_dir=str(path.parent / "cache"))


def common(place: Place) -> dict[str, Any]:
    """Arguments that every trainer gets: nothing saved, evaluated or sent; no recomputation, which costs time."""
    return {
        "output_dir": str(place.out / "run"),
        "seed": place.seed,
        "use_cpu": place.device == "cpu",
        "bf16": place.dtype == "bf16",
        "gradient_checkpointing": False,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "logging_steps": 1,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": place.device == "cuda",
    }


def logged(trainer: Any, name: str) -> list[float]:
    """What the trainer logged under a name, step by step."""
    return [entry[name] for entry in trainer.state.log_history if name in entry]
