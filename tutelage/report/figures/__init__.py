"""Drawings as SVG text, without a script, for pages and for files; no other package draws.

`draw` makes a drawing of a `Chart` (series over two axes) or a `BarChart` (named values below each other). The strips
are small drawings for a line of text or a cell of a table. Colours and strokes come from `stylesheet()`, for the light
and the dark scheme; `standalone` makes the content of a file that carries them along.
"""

from tutelage.report.figures.bars import column_strip, draw_bars, interval_scale, interval_strip, parts_strip
from tutelage.report.figures.charts import LINEAR, Axis, BarChart, Chart, Names, Rule, Series, ValueBar
from tutelage.report.figures.drawing import draw_chart
from tutelage.report.figures.svg import Svg, standalone, stylesheet

__all__ = [
    "LINEAR",
    "Axis",
    "BarChart",
    "Chart",
    "Names",
    "Rule",
    "Series",
    "Svg",
    "ValueBar",
    "column_strip",
    "draw",
    "interval_scale",
    "interval_strip",
    "parts_strip",
    "standalone",
    "stylesheet",
]


def draw(chart: Chart | BarChart) -> Svg:
    """The drawing of a chart as one `<svg>` element."""
    return draw_bars(chart) if isinstance(chart, BarChart) else draw_chart(chart)
