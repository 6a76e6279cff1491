"""Measurements of a policy: scores of its completions, and noise and bias of gradient estimates.

Noise and bias are computed from the gradients of hundreds of small batches, through their inner products. Each
gradient is stored as a count sketch (Charikar, Chen & Farach-Colton 2002): every entry is added, with a random sign,
to one of `width` random buckets. Inner products remain unbiased, with an error of about ‖a‖‖b‖/√width, far below the
measured noise.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import nan, sqrt
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tutelage.base import config
from tutelage.base.nouns import counted
from tutelage.models.budget import Budget
from tutelage.models.policy import Policy
from tutelage.rewards.reward import Reward
from tutelage.rewards.scores import scores_of
from tutelage.rollout.generator import EncodedPrompt
from tutelage.rollout.local import LocalGenerator
from tutelage.train.rl.batch_scores import score_rows
from tutelage.train.rl.rollouts import ScoredCompletions, complete

Z95 = 1.96
BUDGET = 8192
"""Padded tokens of one forward pass."""

Row = dict[str, str | float]


@dataclass(frozen=True)
class Measurement:
    """Measured value with its standard error, of a mean or by the jackknife."""

    value: float
    error: float = float("nan")

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval."""
        return self.value - Z95 * self.error

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval."""
        return self.value + Z95 * self.error

    def __sub__(self, other: "Measurement") -> "Measurement":
        """Difference of two independent values."""
        return Measurement(self.value - other.value, sqrt(self.error**2 + other.error**2))

    @property
    def written(self) -> str:
        """As text: 1.23 ± 0.04, where the second number is half of the 95 % interval."""
        return f"{self.value:.2f} ± {Z95 * self.error:.2f}".replace("-", "\N{MINUS SIGN}")


def mean(values: Sequence[float]) -> Measurement:
    """Mean of independent values."""
    error = stdev(values) / sqrt(len(values)) if len(values) > 1 else float("nan")
    return Measurement(fmean(values), error)


def measure(
    policy: Policy,
    questions: Sequence[EncodedPrompt],
    judges: Mapping[str, Reward],
    sampling: config.Sampling,
    *,
    seed: int,
) -> list[Row]:
    """One completion of each question: prompt, completion, scores of the judges, kl (log π − log π_ref of the
    completion, whose mean is KL(π‖ref) in nats), length in tokens and whether it terminated."""
    judge = next(iter(judges.values()))
    answers = complete(LocalGenerator(policy), questions, 1, sampling, judge, seed=seed)
    kl = answer_kl(policy, answers, sampling.temperature)
    columns = {name: told(answers, reward) for name, reward in judges.items()}
    return [
        {
            "prompt": prompt.messages[-1].content,
            "completion": answers.texts[row],
            **{name: values[row] for name, values in columns.items()},
            "kl": kl[row],
            "length": float(answers.rollout.mask[row].sum()),
            "ended": float(answers.rollout.terminated[row]),
        }
        for row, prompt in enumerate(answers.row_prompts)
    ]


def told(answers: ScoredCompletions, judge: Reward) -> list[float]:
    """Scores of a judge for each completion."""
    return scores_of(judge, answers.completions).tolist()


@torch.no_grad()
def answer_kl(policy: Policy, answers: ScoredCompletions, temperature: float) -> list[float]:
    """Σ_t log π − log π_ref of each completion, at the sampling temperature."""
    rollout = answers.rollout
    with policy.reference():
        ref_logp = score_rows(policy, rollout, temperature=temperature, budget=Budget(BUDGET)).logp
    return ((rollout.logp - ref_logp) * rollout.mask).sum(1).tolist()


def averages(rows: Sequence[Row]) -> dict[str, float]:
    """Mean of every number of the rows under its name, with its standard error as name_error and its standard
    deviation as name_std."""
    figures: dict[str, float] = {}
    for name in rows[0]:
        values = [value for row in rows if isinstance(value := row[name], float)]
        if values:
            average = mean(values)
            figures |= {name: average.value, f"{name}_error": average.error}
            figures[f"{name}_std"] = stdev(values) if len(values) > 1 else float("nan")
    return figures


Floats = npt.NDArray[np.float64]
WIDTH = 1 << 15
SKETCHES = "sketches.pt"


class Sketch:
    """Fixed random map of the gradients of some parameters onto `width` numbers."""

    def __init__(self, parameters: Sequence[nn.Parameter], *, width: int = WIDTH, seed: int = 0) -> None:
        self.parameters, self.width = list(parameters), width
        count = sum(p.numel() for p in self.parameters)
        generator = torch.Generator().manual_seed(seed)
        self.bucket = torch.randint(width, (count,), generator=generator)
        self.sign = torch.randint(2, (count,), generator=generator).float().mul_(2).sub_(1)

    def gradient(self, value: Tensor) -> Tensor:
        """Sketch of d value / d parameters; retains the graph of `value`. Float[width]"""
        parts = torch.autograd.grad(value, self.parameters, retain_graph=True, allow_unused=True)
        filled = [torch.zeros_like(p) if g is None else g for g, p in zip(parts, self.parameters, strict=True)]
        return self(torch.cat([g.detach().flatten() for g in filled]).cpu())

    def __call__(self, vector: Tensor) -> Tensor:
        """Float[D] -> Float[width]"""
        return torch.zeros(self.width).index_add_(0, self.bucket, vector.float() * self.sign)


def products(one: Floats, other: Floats) -> Floats:
    """⟨one_j, other_k⟩ for all pairs of batches. [K, m], [K, m] -> [K, K]"""
    return np.asarray(one @ other.T)


def inner(pairs: Floats) -> float:
    """Unbiased ⟨E one, E other⟩: the mean of the products of *different* batches."""
    count = len(pairs)
    return float((pairs.sum() - np.trace(pairs)) / (count * (count - 1)))


def noise(pairs: Floats) -> float:
    """Trace of the covariance of one batch's gradient, from the products of the batches with themselves."""
    return float(np.trace(pairs) / len(pairs) - inner(pairs))


def relative_noise(a: Floats, b: Floats) -> float:
    """Noise of the rows of a, in units of that of b."""
    return noise(products(a, a)) / noise(products(b, b))


def bias(one: Floats, other: Floats) -> float:
    """‖E one − E other‖² from estimates on the same batches; unbiased, so it may be below 0."""
    return inner(products(one - other, one - other))


def cosine(one: Floats, other: Floats) -> float:
    """Cosine of the angle between the two mean gradients; NaN if one of them is below its noise."""
    lengths = inner(products(one, one)) * inner(products(other, other))
    return inner(products(one, other)) / sqrt(lengths) if lengths > 0 else nan


def jackknife(statistic: Callable[..., float], *samples: Floats) -> Measurement:
    """Statistic of three or more batches [K, m] with its jackknife standard error, leaving out one batch at a time
    (Tukey 1958)."""
    count = len(samples[0])
    if count < 3:
        raise ValueError(f"{counted(count, 'batch')}, less one, have no spread to tell; give three or more.")
    left_out = [statistic(*(np.delete(sample, k, axis=0) for sample in samples)) for k in range(count)]
    spread = np.asarray(left_out) - np.mean(left_out)
    return Measurement(statistic(*samples), float(np.sqrt((count - 1) / count * (spread**2).sum())))


def save_sketches(folder: Path, sketches: Mapping[str, Sequence[Tensor]]) -> None:
    """Write the sketches of some batches, by name of their estimate."""
    torch.save({name: torch.stack(list(rows)) for name, rows in sketches.items()}, folder / SKETCHES)


def load_sketches(folders: Sequence[Path]) -> dict[str, Floats]:
    """Concatenate the sketches in several folders. [K, width] each"""
    parts = [torch.load(folder / SKETCHES, weights_only=True) for folder in folders]
    return {name: torch.cat([part[name] for part in parts]).double().numpy() for name in parts[0]}
