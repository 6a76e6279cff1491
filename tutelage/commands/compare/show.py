"""Output of `tutelage compare`: tables of the comparison, or JSON."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tutelage.commands.compare.run import compare
from tutelage.commands.compare.settings import CompareSettings
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
