"""Results of the workflows: where things were written, the figures at the end, and loaders of the models."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from tutelage.models.heads import ScalarModel
    from tutelage.models.policy import Policy

MODEL = "model"
"""Folder of the final model in a run directory."""


@dataclass(frozen=True)
class TrainingResult:
    """The results of a training run and the files in its folder."""

    out: Path
    """The run directory: config.json, metrics.jsonl, samples.jsonl, summary.json, checkpoints."""
    metrics: Mapping[str, Any]
    """summary.json: the newest value of every metric, and the figures of the end."""

    @classmethod
    def read(cls, out: Path) -> Self:
        """The result of a finished run, read from its folder."""
        return cls(out, json.loads((out / "summary.json").read_text(encoding="utf-8")))

    @property
    def model(self) -> Path:
        """Folder of the final model, for transformers' `from_pretrained` or as the model of another workflow."""
        return self.out / MODEL

    def number(self, name: str) -> float | None:
        """A metric by its name; None where the run did not measure it."""
        value = self.metrics.get(name)
        return float(value) if isinstance(value, int | float) else None

    def _count(self, name: str) -> int:
        return int(self.metrics.get(name) or 0)


@dataclass(frozen=True)
class PolicyResult(TrainingResult):
    """The result of a workflow that trains a policy."""

    def load(self, *, device: str = "auto") -> "Policy":
        """The trained policy, loaded from its folder."""
        from tutelage.commands.loading import load_policy

        return load_policy(self.model, device=device)


@dataclass(frozen=True)
class LanguageResult(PolicyResult):
    """The result of pretraining."""

    @property
    def loss(self) -> float | None:
        """Negative log-likelihood of the held-out text, nats per token; None where nothing was held out."""
        return self.number("held_out/loss")

    @property
    def perplexity(self) -> float | None:
        """exp(loss) of the held-out text."""
        return self.number("held_out/perplexity")

    @property
    def rows(self) -> int:
        """Rows that were trained on: windows of text, or demonstrations."""
        return self._count("rows")


@dataclass(frozen=True)
class SftResult(LanguageResult):
    """The result of supervised fine-tuning."""

    @property
    def dropped(self) -> int:
        """Demonstrations that were left out because their response had no room."""
        return self._count("dropped")

    @property
    def rouge(self) -> dict[str, float]:
        """ROUGE-1, -2 and -L of greedy answers to held-out prompts, by name; empty where none were answered."""
        names = ("rouge1", "rouge2", "rougeL")
        found = {name: self.number(f"held_out/{name}") for name in names}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True)
class RewardResult(TrainingResult):
    """The result of training a reward model."""

    @property
    def accuracy(self) -> float | None:
        """Share of the test or held-out pairs in which the preferred answer scores higher (ties half)."""
        return self.number("accuracy")

    @property
    def accuracy_interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the accuracy, by a bootstrap over prompts."""
        low, high = self.metrics.get("accuracy_interval") or (None, None)
        return None if low is None or high is None else (float(low), float(high))

    @property
    def pairs(self) -> int:
        """Pairs that were trained on."""
        return self._count("pairs")

    @property
    def dropped(self) -> int:
        """Pairs that were left out because they did not fit, or were equal once cut."""
        return self._count("dropped")

    def load(self, *, device: str = "auto") -> "ScalarModel":
        """The trained reward model, loaded from its folder."""
        from tutelage.commands.loading import load_reward_model

        return load_reward_model(self.model, device=device)


@dataclass(frozen=True)
class ImproveResult(PolicyResult):
    """The result of reinforcement learning against a reward."""

    @property
    def score(self) -> float | None:
        """Mean score of the answers of the last rollout."""
        return self.number("score/mean")

    @property
    def kl(self) -> float | None:
        """Divergence from the reference in the last rollout, nats per answer; None for a recipe without reference."""
        return self.number("kl/reference")

    @property
    def dropped(self) -> int:
        """Prompts that were left out because no answer would have fitted."""
        return self._count("dropped")


@dataclass(frozen=True)
class DpoResult(PolicyResult):
    """The result of learning from preferences without a reward model."""

    @property
    def accuracy(self) -> float | None:
        """Share of the held-out pairs whose preferred answer gained likelihood over the other (ties half)."""
        return self.number("held_out/accuracy")

    @property
    def margin(self) -> float | None:
        """Mean margin of the implied reward on the held-out pairs."""
        return self.number("held_out/margin")

    @property
    def score(self) -> float | None:
        """Mean score of a fresh answer to the held-out prompts; None where the preferences came from a file."""
        return self.number("held_out/score")

    @property
    def dropped(self) -> int:
        """Pairs, answers or prompts that were left out because they did not fit."""
        return self._count("dropped")


@dataclass(frozen=True)
class DistillResult(PolicyResult):
    """The result of distillation."""

    @property
    def divergence(self) -> float | None:
        """Divergence from the teacher in the last batch, nats per token, by whole distributions; None for a recipe
        that compares single tokens."""
        return self.number("divergence")

    @property
    def kl(self) -> float | None:
        """KL(student‖teacher) of the answers in the last batch, nats per answer, estimated from their tokens; None
        where it was not measured."""
        return self.number("kl/reference")

    @property
    def dropped(self) -> int:
        """Prompts that were left out because no answer would have fitted."""
        return self._count("dropped")


@dataclass(frozen=True)
class RejectionResult(PolicyResult):
    """The result of rejection-sampling fine-tuning."""

    @property
    def score(self) -> float | None:
        """Mean score of a fresh answer to the held-out prompts."""
        return self.number("held_out/score")

    @property
    def dropped(self) -> int:
        """Prompts that were left out because no answer would have fitted."""
        return self._count("dropped")
