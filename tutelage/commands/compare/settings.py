"""Settings of a comparison of runs."""

from dataclasses import dataclass
from pathlib import Path

import tyro


@dataclass(frozen=True, kw_only=True)
class CompareSettings:
    """Compare runs of one command: their curves, the settings that differ, final figures, and paired tests against the
    first. Runs that differ only in the seed are one variant. Evaluations are compared prompt by prompt."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders that a command wrote with --out, two or more."""
    out: Path | None = None
    """Page to write; on the command line, compare.html by default."""
    json: bool = False
    """Print the comparison as JSON instead of tables."""
