"""Results of commands that train: the run directory, the figures of its summary, loaders of the model."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tutelage.base.nouns import counted

if TYPE_CHECKING:
    from tutelage.models.heads import ScalarModel
    from tutelage.models.policy import Policy

MODEL = "model"
"""Folder of the final model in a run directory."""


class Figure:
    """An attribute of a result: the number of this name in the summary; None where the run did not measure it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, result: "TrainingResult", owner: type) -> float | None:
        return result.number(self.name)


class Count:
    """An attribute of a result: the whole number of this name in the summary; 0 where it has none."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, result: "TrainingResult", owner: type) -> int:
        return int(result.metrics.get(self.name) or 0)


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
        """Folder of the final model, for transformers' `from_pretrained` or as the model of another command."""
        return self.out / MODEL

    def number(self, name: str) -> float | None:
        """A metric by its name; None where the run did not measure it."""
        value = self.metrics.get(name)
        return float(value) if isinstance(value, int | float) else None

    def describe(self) -> list[str]:
        """The figures that the command line prints at the end, as far as they were measured; a line each."""
        return []


@dataclass(frozen=True)
class PolicyResult(TrainingResult):
    """The result of training a policy."""

    def load(self, *, device: str = "auto") -> "Policy":
        """The trained policy, loaded from its folder."""
        from tutelage.commands.loading import load_policy

        return load_policy(self.model, device=device)


@dataclass(frozen=True)
class PretrainResult(PolicyResult):
    """The result of pretraining."""

    loss = Figure("held_out/loss")
    """Negative log-likelihood of the held-out text, nats per token."""
    perplexity = Figure("held_out/perplexity")
    """exp(loss) of the held-out text."""
    rows = Count("rows")
    """Rows that were trained on: windows of text."""


@dataclass(frozen=True)
class SftResult(PolicyResult):
    """The result of supervised fine-tuning."""

    loss = Figure("held_out/loss")
    """Negative log-likelihood of the held-out responses, nats per token."""
    perplexity = Figure("held_out/perplexity")
    """exp(loss) of the held-out responses."""
    rows = Count("rows")
    """Demonstrations that were trained on."""
    dropped = Count("dropped")
    """Demonstrations that were left out because their response had no room."""

    @property
    def rouge(self) -> dict[str, float]:
        """ROUGE-1, -2 and -L of greedy completions of held-out prompts, by name; empty where there were none."""
        scores = {name: self.number(f"held_out/{name}") for name in ("rouge1", "rouge2", "rougeL")}
        return {name: score for name, score in scores.items() if score is not None}


@dataclass(frozen=True)
class RewardResult(TrainingResult):
    """The result of training a reward model."""

    accuracy = Figure("accuracy")
    """Share of the test or held-out pairs in which the preferred answer scores higher (ties half)."""
    pairs = Count("pairs")
    """Pairs that were trained on."""
    dropped = Count("dropped")
    """Pairs that were left out because they did not fit, or were equal once cut."""

    @property
    def accuracy_interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the accuracy, by a bootstrap over prompts."""
        low, high = self.metrics.get("accuracy_interval") or (None, None)
        return None if low is None or high is None else (float(low), float(high))

    def describe(self) -> list[str]:
        """The accuracy, that of the lengths alone, by strength and on single votes where it was measured so; a line
        each."""
        metrics = self.metrics
        if self.accuracy is None:
            return []
        lines = [
            _accuracy("accuracy", self.accuracy, metrics["accuracy_interval"], counted(metrics["n"], "pair"))
        ]
        if length := metrics.get("length"):
            name = f"length alone ({length['prefers']} answers)"
            lines.append(_accuracy(name, length["accuracy"], length["accuracy_interval"], "the same pairs"))
        for part in metrics.get("by_strength", ()):
            lines.append(
                _accuracy(
                    f"  {part['strength']:<12}",
                    part["accuracy"],
                    part["interval"],
                    counted(part["n"], "pair"),
                )
            )
        votes, ceiling = metrics.get("votes"), metrics.get("ceiling")
        if votes and votes["accuracy"] is not None:
            lines.append(
                _accuracy("single votes", votes["accuracy"], votes["interval"], counted(votes["n"], "vote"))
            )
        if ceiling:
            lines.append(
                f"their noise allows {ceiling['value']:.3f}{_interval(*ceiling['interval'])}: two raters agree in "
                f"{ceiling['agreement']:.1%}"
            )
        return lines

    def load(self, *, device: str = "auto") -> "ScalarModel":
        """The trained reward model, loaded from its folder."""
        from tutelage.commands.loading import load_reward_model

        return load_reward_model(self.model, device=device)


@dataclass(frozen=True)
class ImproveResult(PolicyResult):
    """The result of reinforcement learning against a reward."""

    score = Figure("score/mean")
    """Mean score of the completions of the last rollout."""
    kl = Figure("kl/reference")
    """Divergence from the reference in the last rollout, nats per completion; None for a recipe without reference."""
    dropped = Count("dropped")
    """Prompts that were left out because no completion would have fitted."""


@dataclass(frozen=True)
class DpoResult(PolicyResult):
    """The result of learning from preferences without a reward model."""

    accuracy = Figure("held_out/accuracy")
    """Share of the held-out pairs whose preferred answer gained likelihood over the other (ties half)."""
    margin = Figure("held_out/margin")
    """Mean margin of the implied reward on the held-out pairs."""
    score = Figure("held_out/score")
    """Mean score of a fresh completion of the held-out prompts; None where the preferences came from a file."""
    dropped = Count("dropped")
    """Pairs, answers or prompts that were left out because they did not fit."""

    def describe(self) -> list[str]:
        """Accuracy and margin on the held-out pairs, and the score of fresh completions."""
        lines = []
        if self.accuracy is not None and self.margin is not None:
            lines.append(f"held-out accuracy {self.accuracy:.3f}, margin {self.margin:.3f}")
        if self.score is not None:
            lines.append(f"held-out score {self.score:.3f}")
        return lines


@dataclass(frozen=True)
class DistillResult(PolicyResult):
    """The result of distillation."""

    divergence = Figure("divergence")
    """Divergence from the teacher in the last batch, nats per token, by whole distributions; None for a recipe that
    compares single tokens."""
    kl = Figure("kl/reference")
    """KL(student‖teacher) of the completions in the last batch, nats per completion, estimated from their tokens."""
    dropped = Count("dropped")
    """Prompts that were left out because no completion would have fitted."""

    def describe(self) -> list[str]:
        """The distance from the teacher, per token and per completion."""
        lines = []
        if self.divergence is not None:
            lines.append(f"divergence from the teacher {self.divergence:.4f} nats per token")
        if self.kl is not None:
            lines.append(f"KL(student‖teacher) {self.kl:.3f} nats per completion")
        return lines


@dataclass(frozen=True)
class RejectionResult(PolicyResult):
    """The result of rejection-sampling fine-tuning."""

    score = Figure("held_out/score")
    """Mean score of a fresh completion of the held-out prompts."""
    dropped = Count("dropped")
    """Prompts that were left out because no completion would have fitted."""

    def describe(self) -> list[str]:
        """The score of a fresh completion."""
        return [] if self.score is None else [f"held-out score {self.score:.3f}"]


def _accuracy(name: str, value: float, interval: tuple[float | None, float | None], base: str) -> str:
    return f"{name} {value:.3f}{_interval(*interval)} on {base}"


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"
