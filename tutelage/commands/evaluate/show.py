"""Output of `tutelage evaluate`: the table of an evaluation."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from tutelage.commands.evaluate.run import evaluate
from tutelage.commands.evaluate.settings import EvaluateSettings
from tutelage.commands.terminal import remarks


def main(settings: EvaluateSettings) -> int:
    """Evaluate, and print the table."""
    with remarks(quiet=settings.quiet):
        result = evaluate(settings)
    if not settings.quiet:
        print_evaluation(result.summary)
    return 0


def print_evaluation(summary: Mapping[str, Any]) -> None:
    """Print the table of an evaluation summary to standard output."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in summary["columns"]:
        table.add_column(name, justify="right")
    table.add_column("", style="dim")
    for row in summary["rows"]:
        table.add_row(row["name"], *("" if v is None else f"{v:.3f}" for v in row["values"]), row["note"])
    Console(markup=False, emoji=False).print(table)
