"""`tutelage report`: a self-contained HTML page about a run or a whole round."""

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True)
class ReportSettings:
    """Write report.html into the folder of a run, or of a round of several runs, finished or not."""

    folder: tyro.conf.Positional[Path]
    """Folder that a command wrote with --out."""


def main(settings: ReportSettings) -> int:
    """Write the page, and print its path."""
    from tutelage.report.page import write_report

    path = write_report(settings.folder)
    print(path)
    print(f"{path.stat().st_size / 1000:,.0f} kB; needs no network, opens in any browser", file=sys.stderr)
    return 0
