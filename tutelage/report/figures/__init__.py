"""Charts as SVG text without scripts, for pages and files; no other package draws.

`draw` renders a `Chart` (series over two axes) or a `BarChart` (named values, one per row). Strips are small drawings
for a line of text or a table cell. `stylesheet()` has the colours and strokes for light and dark mode; `standalone`
embeds them in a file.
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
    """Render a chart as one `<svg>` element."""
    return draw_bars(chart) if isinstance(chart, BarChart) else draw_chart(chart)
