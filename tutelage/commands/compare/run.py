"""Comparison of runs."""

from tutelage.commands.calls import workflow
from tutelage.commands.compare.settings import CompareSettings
from tutelage.report.comparison import Comparison, compare_runs
from tutelage.report.comparison_page import write_comparison


@workflow(CompareSettings)
def compare(settings: CompareSettings) -> Comparison:
    """Compare runs of one command. Writes a page to `settings.out`, if given.

    Raises:
        TutelageError: a folder holds no run or is given twice, or the runs cannot be compared.
    """
    comparison = compare_runs(settings.runs)
    if settings.out is not None:
        write_comparison(comparison, settings.out)
    return comparison
