"""`tutelage lab`: experiments on the demonstration's world, with a page and data for each."""

import importlib
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import tyro

if TYPE_CHECKING:
    from tutelage.lab.experiment import Experiment


@dataclass(frozen=True, kw_only=True)
class Settings:
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


class Kl(Settings):
    """What the KL penalty does: PPO at prices from nothing to far too much, and without a reference."""


class Estimators(Settings):
    """The estimators of the KL, k1, k2, k3 and abs, in the reward and in the loss: bias, noise, effect on training."""


class Advantages(Settings):
    """The noise of the policy gradient for every estimator of Ψ on the same rollouts, from REINFORCE to GAE."""


class Overoptimisation(Settings):
    """Reward models from few and many pairs, climbed by best-of-n and by PPO: where the proxy and gold part, and what
    ensembles and the KL do about it (Gao et al. 2022)."""


class Recipes(Settings):
    """All recipes at equal tokens, with several seeds: gold against KL and against time."""


COMMANDS = MappingProxyType(
    {
        "kl": Kl,
        "estimators": Estimators,
        "advantages": Advantages,
        "recipes": Recipes,
        "overoptimisation": Overoptimisation,
    }
)


def main(settings: Settings) -> int:
    """Conduct the experiment, and print the findings."""
    from tutelage.lab.start import find, make
    from tutelage.train.run.terminal import remarks

    name = next(name for name, kind in COMMANDS.items() if type(settings) is kind)
    experiment: Experiment[Any] = importlib.import_module(f"tutelage.lab.{name}").EXPERIMENT
    quick, quiet = settings.quick, settings.quiet
    with remarks(quiet=quiet):
        if settings.from_:
            start = find(Path(settings.from_))
        else:
            start = make(settings.out / "world", seed=settings.seed, quick=quick, quiet=quiet)
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
