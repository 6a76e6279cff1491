"""`tutelage lab`: experiments on the demonstration's world, with a page and data for each."""

import importlib
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from tutelage.base.config.bases import EngineSettings
from tutelage.base.config.bounds import a_seed

if TYPE_CHECKING:
    from tutelage.demo.lab.experiment import Experiment


@dataclass(frozen=True, kw_only=True)
class LabSettings(EngineSettings):
    """An experiment on the demonstration's world."""

    from_: Annotated[str, tyro.conf.arg(name="from")] = ""
    """Folder of a finished tutelage demo to begin from; empty makes the stages it needs in OUT/world."""
    out: Path = Path("runs/lab")
    """Folder of the laboratory; the experiment gets one of its own in it. What is finished there is skipped."""
    seed: int = 0
    """Seed of all that is drawn."""
    quick: bool = False
    """A very small form, to see that everything works; too small to show much."""
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


def main(settings: LabSettings) -> int:
    """Conduct the experiment, and print the findings."""
    from tutelage.commands.terminal import remarks
    from tutelage.demo.lab.start import find, make

    name = next(name for name, kind in SUBCOMMANDS.items() if type(settings) is kind)
    experiment: Experiment[Any] = importlib.import_module(f"tutelage.demo.lab.{name}").EXPERIMENT
    quick, quiet = settings.quick, settings.quiet
    with remarks(quiet=quiet):
        if settings.from_:
            start = find(Path(settings.from_), settings.engine)
        else:
            start = make(
                settings.out / "world", seed=settings.seed, quick=quick, quiet=quiet, engine=settings.engine
            )
        page, report = experiment.conduct(
            settings.out / name,
            start,
            experiment.quick if quick else experiment.full,
            seed=settings.seed,
            quiet=quiet,
            command=f"tutelage lab {name} --seed {settings.seed}{' --quick' if quick else ''}",
        )
    print("\n".join(f"- {finding}" for finding in page.findings))
    print(f"\n{report}")
    return 0
