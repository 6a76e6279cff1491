"""Results of training commands: run directory, summary figures, and loaders of the model."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tutelage.base.errors import TutelageError
from tutelage.base.nouns import counted

if TYPE_CHECKING:
    from tutelage.models.heads import ScalarModel
    from tutelage.models.policy import Policy

MODEL = "model"
"""Folder of the final model in a run directory."""


def model_of(run: Path) -> Path:
    """Return the folder of the model of a run. Raises TutelageError if the run is not finished."""
    model = run / MODEL
    if not (run / "summary.json").is_file() or not model.is_dir():
        raise TutelageError(
            f"{run} is not the folder of a finished run: it has no summary.json or no {MODEL}/. Give the folder that a "
            "command that trains wrote with --out."
        )
    return model


class Figure:
    """Descriptor for a number in the summary; None if the run did not measure it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, result: "TrainingResult", owner: type) -> float | None:
        return result.number(self.name)


class Count:
    """Descriptor for a whole number in the summary; 0 if absent."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, result: "TrainingResult", owner: type) -> int:
        return int(result.metrics.get(self.name) or 0)


@dataclass(frozen=True)
class TrainingResult:
    """Result of a training run, with the files in its folder."""

    out: Path
    """Run directory: config.json, metrics.jsonl, samples.jsonl, summary.json, checkpoints."""
    metrics: Mapping[str, Any]
    """Content of summary.json: the latest value of every metric, and the final figures."""

    @classmethod
    def read(cls, out: Path) -> Self:
        """Read the result of a finished run from its folder."""
        return cls(out, json.loads((out / "summary.json").read_text(encoding="utf-8")))

    @property
    def model(self) -> Path:
        """Folder of the final model, for transformers' `from_pretrained` or as the model of another command."""
        return self.out / MODEL

    def number(self, name: str) -> float | None:
        """Return a metric by name; None if the run did not measure it."""
        value = self.metrics.get(name)
        return float(value) if isinstance(value, int | float) else None

    def describe(self) -> list[str]:
        """Return the final figures that the command line prints, one line each, if measured."""
        return []


@dataclass(frozen=True)
class PolicyResult(TrainingResult):
    """Result of training a policy."""

    def load(self, *, device: str = "auto") -> "Policy":
        """Load the trained policy from its folder."""
        from tutelage.commands.loading import load_policy

        return load_policy(self.model, device=device)


@dataclass(frozen=True)
class PretrainResult(PolicyResult):
    """Result of pretraining."""

    loss = Figure("held_out/loss")
    """Negative log-likelihood of the held-out text, nats per token."""
    perplexity = Figure("held_out/perplexity")
    """exp(loss) of the held-out text."""
    rows = Count("rows")
    """Number of training rows: windows of text."""


@dataclass(frozen=True)
class SftResult(PolicyResult):
    """Result of supervised fine-tuning."""

    loss = Figure("held_out/loss")
    """Negative log-likelihood of the held-out responses, nats per token."""
    perplexity = Figure("held_out/perplexity")
    """exp(loss) of the held-out responses."""
    rows = Count("rows")
    """Number of training demonstrations."""
    dropped = Count("dropped")
    """Number of demonstrations dropped because their response did not fit."""

    @property
    def rouge(self) -> dict[str, float]:
        """ROUGE-1, -2 and -L of greedy completions of held-out prompts, by name; empty without held-out prompts."""
        scores = {name: self.number(f"held_out/{name}") for name in ("rouge1", "rouge2", "rougeL")}
        return {name: score for name, score in scores.items() if score is not None}


@dataclass(frozen=True)
class RewardResult(TrainingResult):
    """Result of training a reward model."""

    pairs = Count("pairs")
    """Number of training pairs."""
    dropped = Count("dropped")
    """Number of pairs, or completions in steps, dropped because they did not fit, or were equal once truncated."""
    rated_steps = Count("rated_steps")
    """Number of rated training steps, of a process reward model."""

    @property
    def accuracy(self) -> float | None:
        """Share of the test or held-out pairs in which the preferred answer scores higher (ties half), or of the rated
        steps whose score has the sign of their label; None without any: the summary then has the accuracy on the last
        training batch."""
        return None if "accuracy_interval" not in self.metrics else self.number("accuracy")

    @property
    def accuracy_interval(self) -> tuple[float, float] | None:
        """95 % interval of the accuracy, by a bootstrap over prompts."""
        low, high = self.metrics.get("accuracy_interval") or (None, None)
        return None if low is None or high is None else (float(low), float(high))

    def describe(self) -> list[str]:
        """Return the accuracy, the length baseline, and, if measured, the accuracy by strength and on single votes, one
        line each."""
        metrics = self.metrics
        if self.accuracy is None:
            return []
        if self.rated_steps:
            return self._describe_steps(self.accuracy)
        lines = [_accuracy("accuracy", self.accuracy, metrics["accuracy_interval"], counted(metrics["n"], "pair"))]
        if length := metrics.get("length"):
            name = f"length alone ({length['prefers']} answers)"
            lines.append(_accuracy(name, length["accuracy"], length["accuracy_interval"], "the same pairs"))
        for part in metrics.get("by_strength", ()):
            lines.append(
                _accuracy(f"  {part['strength']:<12}", part["accuracy"], part["interval"], counted(part["n"], "pair"))
            )
        votes, ceiling = metrics.get("votes"), metrics.get("ceiling")
        if votes and votes["accuracy"] is not None:
            lines.append(_accuracy("single votes", votes["accuracy"], votes["interval"], counted(votes["n"], "vote")))
        if ceiling:
            lines.append(
                f"their noise allows {ceiling['value']:.3f}{interval_text(*ceiling['interval'])}: two raters "
                f"agree in {ceiling['agreement']:.1%}"
            )
        return lines

    def _describe_steps(self, accuracy: float) -> list[str]:
        metrics = self.metrics
        lines = [_accuracy("accuracy", accuracy, metrics["accuracy_interval"], counted(metrics["n"], "step"))]
        if metrics["first_wrong"] is not None:
            unit = counted(metrics["first_wrong_n"], "completion")
            lines.append(_accuracy("first wrong step", metrics["first_wrong"], metrics["first_wrong_interval"], unit))
        if metrics["auc"] is not None:
            lines.append(f"area under the curve {metrics['auc']:.3f}")
        return lines

    def load(self, *, device: str = "auto") -> "ScalarModel":
        """Load the trained reward model from its folder."""
        from tutelage.commands.loading import load_reward_model

        return load_reward_model(self.model, device=device)


@dataclass(frozen=True)
class ImproveResult(PolicyResult):
    """Result of reinforcement learning against a reward."""

    score = Figure("score/mean")
    """Mean score of the completions of the last rollout."""
    kl = Figure("kl/reference")
    """Divergence from the reference in the last rollout, nats per completion; None for a recipe without reference."""
    dropped = Count("dropped")
    """Number of prompts dropped because no completion would fit."""


@dataclass(frozen=True)
class DpoResult(PolicyResult):
    """Result of training on preferences without a reward model."""

    accuracy = Figure("held_out/accuracy")
    """Share of the held-out pairs whose preferred answer gained likelihood over the other (ties half)."""
    margin = Figure("held_out/margin")
    """Mean margin of the implied reward on the held-out pairs."""
    score = Figure("held_out/score")
    """Mean score of a new completion of the held-out prompts; None if the preferences came from a file."""
    dropped = Count("dropped")
    """Number of pairs, answers or prompts dropped because they did not fit."""

    def describe(self) -> list[str]:
        """Return accuracy and margin on the held-out pairs, and the score of new completions."""
        lines = []
        if self.accuracy is not None and self.margin is not None:
            lines.append(f"held-out accuracy {self.accuracy:.3f}, margin {self.margin:.3f}")
        if self.score is not None:
            lines.append(f"held-out score {self.score:.3f}")
        return lines


@dataclass(frozen=True)
class DistillResult(PolicyResult):
    """Result of distillation."""

    divergence = Figure("divergence")
    """Divergence from the teacher in the last batch, nats per token, of whole distributions; None for a recipe that
    compares single tokens."""
    kl = Figure("kl/reference")
    """KL(student‖teacher) of the completions in the last batch, nats per completion, estimated from their tokens."""
    dropped = Count("dropped")
    """Number of prompts dropped because no completion would fit."""

    def describe(self) -> list[str]:
        """Return the divergence from the teacher, per token and per completion."""
        lines = []
        if self.divergence is not None:
            lines.append(f"divergence from the teacher {self.divergence:.4f} nats per token")
        if self.kl is not None:
            lines.append(f"KL(student‖teacher) {self.kl:.3f} nats per completion")
        return lines


@dataclass(frozen=True)
class RejectionResult(PolicyResult):
    """Result of rejection-sampling fine-tuning."""

    score = Figure("held_out/score")
    """Mean score of a new completion of the held-out prompts."""
    dropped = Count("dropped")
    """Number of prompts dropped because no completion would fit."""

    def describe(self) -> list[str]:
        """Return the score of a new completion."""
        return [] if self.score is None else [f"held-out score {self.score:.3f}"]


def _accuracy(name: str, value: float, interval: tuple[float | None, float | None], base: str) -> str:
    return f"{name} {value:.3f}{interval_text(*interval)} on {base}"


def interval_text(low: float | None, high: float | None) -> str:
    """An interval behind its estimate; empty if there is none."""
    return "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"
