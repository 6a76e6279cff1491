"""The table of an evaluation."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table


def print_evaluation(summary: Mapping[str, Any]) -> None:
    """Print the table of an evaluation's summary on standard output."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in summary["columns"]:
        table.add_column(name, justify="right")
    table.add_column("", style="dim")
    for row in summary["rows"]:
        table.add_row(row["name"], *("" if v is None else f"{v:.3f}" for v in row["values"]), row["note"])
    Console().print(table)
