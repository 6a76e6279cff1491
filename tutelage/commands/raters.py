"""`tutelage raters`: how reliable the raters of any table of votes are, and how well they agree."""

from dataclasses import dataclass

import tyro

from tutelage.workflows.settings.raters import RatersSettings


@dataclass(frozen=True, kw_only=True)
class Settings(RatersSettings):
    """How well the raters of a table of votes agree, how reliable each of them is, and what the truth of each item
    probably is (after Dawid and Skene 1979)."""

    votes: tyro.conf.Positional[str]
    """The table, one vote per row: .csv, .tsv, .json, .jsonl or .parquet."""
    show: int = 20
    """Raters to print: the flagged ones first, then those with the most votes."""
    diagram: str = ""
    """SVG file for the reliability diagram: of the labels where answers are known, else of the predictions of held-out
    votes (with model auto)."""


def main(settings: Settings) -> int:
    """Measure, write and print."""
    from tutelage.commands.display import display
    from tutelage.commands.tables.raters import print_raters
    from tutelage.report.calibration import write_diagram
    from tutelage.workflows.raters import raters

    with display():
        found = raters(settings)
    print_raters(settings, found, show=settings.show)
    if settings.diagram:
        write_diagram(settings.diagram, found.calibration())
        print(f"reliability diagram written to {settings.diagram}")
    return 0
