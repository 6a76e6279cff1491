"""Reports: one self-contained HTML page about a run or a round, made from its folder.

`folders` and `files` read. `sections`, `facts`, `stage_figures`, `diagnoses` and `headline` decide what the page shows,
and `page` writes it.
"""

from tutelage.report.page import write_report

__all__ = ["write_report"]
