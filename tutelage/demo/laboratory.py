"""`tutelage lab`: experiments on the demonstration's world, with a page and data for each."""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tutelage.demo.lab.settings import SUBCOMMANDS, LabSettings

if TYPE_CHECKING:
    from tutelage.demo.lab.experiment import Experiment


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
