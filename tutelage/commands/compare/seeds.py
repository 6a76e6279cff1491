"""Training with several seeds: one run for each, and their comparison."""

import sys
from collections.abc import Callable, Sequence

from tutelage.base.config.flags import settings_from
from tutelage.base.errors import TutelageError
from tutelage.commands.compare.run import compare
from tutelage.commands.compare.settings import CompareSettings
from tutelage.commands.compare.show import PAGE, print_comparison
from tutelage.commands.table import Command
from tutelage.engines.ranks import processes


def train_seeds(command: Command, words: Sequence[str], seeds: int, train: Callable[[list[str]], int]) -> int:
    """Call `train` with the words of a training command for each of `seeds` seeds, from `--seed` on, and compare the
    runs, which are in `--out`. Returns the first exit status other than 0.

    Raises TutelageError under torchrun.
    """
    if processes.world_size() > 1:
        raise TutelageError("--seeds starts one run after the other: give --processes instead of starting torchrun.")
    settings = settings_from(command.settings, list(words[1:]), prog=f"tutelage {command.name}")
    folders = {seed: settings.out / f"seed-{seed}" for seed in range(settings.seed, settings.seed + seeds)}
    for seed, folder in folders.items():
        print(f"Seed {seed}: {folder}", file=sys.stderr)
        status = train([*words, "--seed", str(seed), "--out", str(folder)])
        if status:
            return status
    page = settings.out / PAGE
    print_comparison(compare(CompareSettings(runs=tuple(folders.values()), out=page)))
    print(f"The page is {page}.", file=sys.stderr)
    return 0
