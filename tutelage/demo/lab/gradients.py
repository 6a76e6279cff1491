"""How noisy and how wrong a gradient estimate is, from the gradients of many small batches.

A batch's gradient has as many entries as the policy has parameters, and there are hundreds of them. What is asked of
them are inner products only, so each is kept as a count sketch (Charikar, Chen & Farach-Colton 2002): every entry is
added, with a random sign, to one of `width` random buckets. Inner products keep their mean; they get an error of about
‖a‖‖b‖/√width, which is the same for all pairs of vectors and far below the noise that is measured.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import nan, sqrt
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tutelage.base.nouns import counted

Floats = npt.NDArray[np.float64]
WIDTH = 1 << 15
SKETCHES = "sketches.pt"


class Sketch:
    """A fixed random map of the gradients of some parameters onto `width` numbers."""

    def __init__(self, parameters: Sequence[nn.Parameter], *, width: int = WIDTH, seed: int = 0) -> None:
        self.parameters, self.width = list(parameters), width
        count = sum(p.numel() for p in self.parameters)
        generator = torch.Generator().manual_seed(seed)
        self.bucket = torch.randint(width, (count,), generator=generator)
        self.sign = torch.randint(2, (count,), generator=generator).float().mul_(2).sub_(1)

    def gradient(self, value: Tensor) -> Tensor:
        """The sketch of d value / d parameters; the graph of `value` stays for the next. Float[width]"""
        parts = torch.autograd.grad(value, self.parameters, retain_graph=True, allow_unused=True)
        filled = [
            torch.zeros_like(p) if g is None else g for g, p in zip(parts, self.parameters, strict=True)
        ]
        return self(torch.cat([g.detach().flatten() for g in filled]).cpu())

    def __call__(self, vector: Tensor) -> Tensor:
        """Float[D] -> Float[width]"""
        return torch.zeros(self.width).index_add_(0, self.bucket, vector.float() * self.sign)


@dataclass(frozen=True)
class GradientEstimate:
    """A number with its jackknife standard error."""

    value: float
    error: float


def products(one: Floats, other: Floats) -> Floats:
    """⟨one_j, other_k⟩ for all pairs of batches. [K, m], [K, m] -> [K, K]"""
    return np.asarray(one @ other.T)


def inner(pairs: Floats) -> float:
    """⟨E one, E other⟩ without bias: the mean of the products of *different* batches."""
    count = len(pairs)
    return float((pairs.sum() - np.trace(pairs)) / (count * (count - 1)))


def noise(pairs: Floats) -> float:
    """The trace of the covariance of one batch's gradient, from the products of the batches with themselves."""
    return float(np.trace(pairs) / len(pairs) - inner(pairs))


def bias(one: Floats, other: Floats) -> float:
    """‖E one − E other‖², from estimates on the same batches; without bias, so it may come out below 0."""
    return inner(products(one - other, one - other))


def cosine(one: Floats, other: Floats) -> float:
    """The cosine of the angle between the two mean gradients; NaN where one of them drowns in its noise."""
    lengths = inner(products(one, one)) * inner(products(other, other))
    return inner(products(one, other)) / sqrt(lengths) if lengths > 0 else nan


def jackknife(statistic: Callable[..., float], *samples: Floats) -> GradientEstimate:
    """A statistic of three or more batches [K, m] with its standard error, by leaving out one batch at a time (Tukey
    1958)."""
    count = len(samples[0])
    if count < 3:
        raise ValueError(f"{counted(count, 'batch')}, less one, have no spread to tell; give three or more.")
    left_out = [statistic(*(np.delete(sample, k, axis=0) for sample in samples)) for k in range(count)]
    spread = np.asarray(left_out) - np.mean(left_out)
    return GradientEstimate(statistic(*samples), float(np.sqrt((count - 1) / count * (spread**2).sum())))


def save_sketches(folder: Path, found: Mapping[str, Sequence[Tensor]]) -> None:
    """Write the sketches of some batches, by the name of their estimate."""
    torch.save({name: torch.stack(list(rows)) for name, rows in found.items()}, folder / SKETCHES)


def load_sketches(folders: Sequence[Path]) -> dict[str, Floats]:
    """The sketches in several folders, batch under batch. [K, width] each"""
    parts = [torch.load(folder / SKETCHES, weights_only=True) for folder in folders]
    return {name: torch.cat([part[name] for part in parts]).double().numpy() for name in parts[0]}
