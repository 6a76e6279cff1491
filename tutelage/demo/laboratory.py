"""`tutelage lab`: experiments on the demonstration's world, each with a page and data."""

import importlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from tutelage.base.config.bases import EngineSettings
from tutelage.base.config.bounds import a_seed

if TYPE_CHECKING:
    from tutelage.demo.lab.experiment import Experiment


@dataclass(frozen=True, kw_only=True)
class ExperimentSettings:
    """Run an experiment."""

    out: Path = Path("runs/lab")
    """Output folder, with a subfolder per experiment. Finished cells are skipped."""
    seed: int = 0
    """Random seed."""
    quiet: bool = False
    """Print only the findings."""

    def __post_init__(self) -> None:
        a_seed(self)

    def sized(self, size: Any) -> Any:
        """Return the size of the experiment, changed by settings of its own."""
        return size

    @property
    def own_flags(self) -> tuple[str, ...]:
        """Flags of settings of its own, for the command that repeats it."""
        return ()


@dataclass(frozen=True, kw_only=True)
class LabSettings(ExperimentSettings, EngineSettings):
    """Run an experiment on the demonstration's world."""

    from_: Annotated[str, tyro.conf.arg(name="from")] = ""
    """Folder of a finished tutelage demo to start from; if omitted, required stages run in OUT/world."""


class Kl(LabSettings):
    """Effect of the KL penalty: PPO with coefficients from zero to far too large, and without a reference."""


class Estimators(LabSettings):
    """KL estimators k1, k2, k3 and abs, in the reward and in the loss: bias, noise, effect on training."""


class Advantages(LabSettings):
    """Noise of the policy gradient for every estimator of Ψ on the same rollouts, from REINFORCE to GAE."""


class Overoptimisation(LabSettings):
    """Over-optimisation of reward models from few and many pairs, by best-of-n and by PPO, and remedies: ensembles
    and the KL penalty (Gao et al. 2022)."""


class Rubrics(LabSettings):
    """Over-optimisation of a rubric under a noisy judge by GRPO, with three seeds, and remedies: rubric dropout and an
    ensemble of judges (Yang et al. 2026)."""


@dataclass(frozen=True, kw_only=True)
class Recipes(LabSettings):
    """Recipes at equal tokens, with three seeds: gold by KL and by time."""

    recipes: tuple[str, ...] = ()
    """Recipes to compare, by name or as module:NAME; if omitted, all of `tutelage recipes`."""

    def sized(self, size: Any) -> Any:
        """Return the size with these recipes. Raises TutelageError if there is no such recipe."""
        from tutelage.algorithms.registry import recipe_named

        for name in self.recipes:
            recipe_named(name)
        return replace(size, names=tuple(dict.fromkeys(self.recipes)) or size.names)

    @property
    def own_flags(self) -> tuple[str, ...]:
        """The recipes, if not all."""
        return ("--recipes", *self.recipes) if self.recipes else ()


class Credit(ExperimentSettings):
    """Turn-level estimators of Ψ for episodes of several turns: exact bias and noise, by enumeration."""


EXPERIMENTS = (Kl, Estimators, Advantages, Recipes, Overoptimisation, Rubrics, Credit)
SUBCOMMANDS: Mapping[str, type[ExperimentSettings]] = {kind.__name__.lower(): kind for kind in EXPERIMENTS}


def main(settings: ExperimentSettings) -> int:
    """Run the experiment, and print the findings."""
    from tutelage.commands.terminal import remarks
    from tutelage.demo.lab.start import find, make

    name = type(settings).__name__.lower()
    experiment: Experiment[Any] = importlib.import_module(f"tutelage.demo.lab.{name}").EXPERIMENT
    size, quiet = settings.sized(experiment.size), settings.quiet
    with remarks(quiet=quiet):
        start = None
        if isinstance(settings, LabSettings) and settings.from_:
            start = find(Path(settings.from_), settings.engine)
        elif isinstance(settings, LabSettings):
            start = make(settings.out / "world", seed=settings.seed, quiet=quiet, engine=settings.engine)
        page, report = experiment.conduct(
            settings.out / name,
            start,
            size,
            seed=settings.seed,
            quiet=quiet,
            command=shlex.join(("tutelage", "lab", name, "--seed", str(settings.seed), *settings.own_flags)),
        )
    print("\n".join(f"- {finding}" for finding in page.findings))
    print(f"\n{report}")
    return 0
