"""Output of `tutelage compare`, tables of the comparison or JSON, and of training with several seeds, which ends with
one."""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tutelage.base.config.flags import settings_from
from tutelage.base.errors import TutelageError
from tutelage.commands.compare.run import compare
from tutelage.commands.compare.settings import CompareSettings
from tutelage.commands.table import Command
from tutelage.engines.ranks import processes
from tutelage.report.comparison import Comparison
from tutelage.report.comparison_page import mean_text, over_text, p_text
from tutelage.report.page import spelled

PAGE = Path("compare.html")


def main(settings: CompareSettings) -> int:
    """Compare, write the page, and print the tables or JSON."""
    settings = replace(settings, out=settings.out or PAGE)
    comparison = compare(settings)
    if settings.json:
        print(comparison.json())
    else:
        print_comparison(comparison)
    print(f"The page is {settings.out}.", file=sys.stderr)
    return 0


def print_comparison(comparison: Comparison) -> None:
    """Print the variants, the settings that differ, the figures and the tests."""
    names = [variant.name for variant in comparison.variants]
    _print("run", ("seeds", "unfinished", "folders"), (
        (one.name, (spelled(list(one.seeds)), str(one.unfinished or ""), " ".join(one.folders)))
        for one in comparison.variants
    ))  # fmt: skip
    _print("setting", names, ((row.name, [spelled(value) for value in row.values]) for row in comparison.settings))
    _print("figure", names, ((row.name, [mean_text(value) for value in row.values]) for row in comparison.figures))
    _print(f"minus {names[0]}", ("variant", "difference", "p", "over"), (
        (test.figure, (test.variant, mean_text(test.difference), p_text(test.difference.p), over_text(test)))
        for test in comparison.tests
    ))  # fmt: skip


def _print(first: str, columns: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> None:
    """Print a table, unless it is empty."""
    table = Table(box=None, pad_edge=False)
    table.add_column(first)
    for name in columns:
        table.add_column(name, justify="right")
    for name, values in rows:
        table.add_row(name, *values)
    if table.row_count:
        Console(markup=False, emoji=False).print(table)
        print()


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
