"""One self-contained HTML page about a run or a whole round.

`folders` reads, `sections` and `headline` decide what is told, `page` writes; `charts` and `drawing` know nothing of
all that and serve any page.
"""

from tutelage.report.page import write_report

__all__ = ["write_report"]
