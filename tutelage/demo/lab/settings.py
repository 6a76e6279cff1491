"""LabSettings of the experiments, as commands of `tutelage lab`."""

from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import tyro

from tutelage.base import config
from tutelage.base.config.limits import a_seed


@dataclass(frozen=True, kw_only=True)
class LabSettings:
    """An experiment on the demonstration's world."""

    from_: Annotated[str, tyro.conf.arg(name="from")] = ""
    """Folder of a finished tutelage demo to begin from; empty makes the stages it needs in OUT/world."""
    out: Path = Path("runs/lab")
    """Folder of the laboratory; the experiment gets one of its own in it. What is finished there is skipped."""
    seed: int = 0
    """Seed of all that is drawn."""
    quick: bool = False
    """A very small form, to see that everything works; too small to show much."""
    engine: config.EngineName = "auto"
    """How models compute: plain, by transformers' modules; cpu, by kernels compiled for this processor; auto: cpu on a
    processor, else plain."""
    quiet: bool = False
    """Print nothing but the findings."""

    def __post_init__(self) -> None:
        a_seed(self)


class Kl(LabSettings):
    """What the KL penalty does: PPO at prices from nothing to far too much, and without a reference."""


class Estimators(LabSettings):
    """The estimators of the KL, k1, k2, k3 and abs, in the reward and in the loss: bias, noise, effect on training."""


class Advantages(LabSettings):
    """The noise of the policy gradient for every estimator of Ψ on the same rollouts, from REINFORCE to GAE."""


class Overoptimisation(LabSettings):
    """Reward models from few and many pairs, climbed by best-of-n and by PPO: where the proxy and gold part, and what
    ensembles and the KL do about it (Gao et al. 2022)."""


class Recipes(LabSettings):
    """All recipes at equal tokens, with several seeds: gold against KL and against time."""


SUBCOMMANDS = MappingProxyType(
    {
        "kl": Kl,
        "estimators": Estimators,
        "advantages": Advantages,
        "recipes": Recipes,
        "overoptimisation": Overoptimisation,
    }
)
