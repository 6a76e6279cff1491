"""The table of exponents: whether any cost grows faster than the work that is needed."""

from pathlib import Path

from bench.curves import MARGIN, Curve, curves
from bench.exponents import Exponents

HEAD = f"""Growth of costs: exponents of a power law fitted to all points and to the upper half, which constant costs
flatten less. The needed work is that of `bench/flops.py`; a question and a vote need the same in every study, a survey
reads every item once, and ranks share the work. *Faster*: our exponent over the upper half is more than {MARGIN:g}
above that of the work.

| over | of | from – to | ours | upper half | peer | upper half | work | upper half | faster than the work |
|---|---|---|---|---|---|---|---|---|---|
"""


def growth_table(folder: Path) -> list[str]:
    """The table of a machine, as parts of a page; none where no growth was measured."""
    rows = [_row(curve) for curve in curves(folder)]
    return [HEAD + "\n".join(rows) + "\n"] if rows else []


def _row(curve: Curve) -> str:
    ends = " – ".join(f"{value:,.0f}" for value in (curve.values[0], curve.values[-1]))
    fits = " | ".join(map(_cells, (curve.of_ours, curve.of_theirs, curve.of_work)))
    verdict = f"**yes, by {curve.excess:.2f}**" if curve.grows_faster else "no"
    return f"| {curve.label} | {curve.what} | {ends} | {fits} | {verdict} |"


def _cells(found: Exponents | None) -> str:
    return "– | –" if found is None else f"{found.whole:.2f} | {found.upper:.2f}"
