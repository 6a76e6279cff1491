"""Small drawings as inline SVG: no script, no style attribute, readable to screen readers by their title."""

from collections.abc import Sequence

from markupsafe import Markup, escape

from tutelage.people.web.words import share
from tutelage.stats.intervals import Interval

REFERENCES = ((0.63, "hh-rlhf"), (0.726, "InstructGPT"), (0.81, "MT-bench"))
"""Published agreement between raters of preference data: what is usual, where textbooks would ask for more."""
_WIDE, _NARROW, _LEFT, _RIGHT = 640.0, 290.0, 0.5, 1.0


def agreement_scale(
    value: float | None, low: float | None, high: float | None, *, narrow: bool = False
) -> Markup:
    """Agreement between one half and one, with its interval, among the published lines. The names of the lines stand
    side by side, or, where it is narrow, below each other."""
    width, step = (_NARROW, 15) if narrow else (_WIDE, 0)
    axis = 44 + 2 * step
    parts = [f'<line class="axis" x1="0" x2="{width:.0f}" y1="{axis}" y2="{axis}"/>']
    for tick in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        anchor = {0.5: "start", 1.0: "end"}.get(tick, "middle")
        x = _x(tick, width)
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{axis + 18}" text-anchor="{anchor}">{share(tick)}</text>'
        )
    for row, (place, name) in enumerate(REFERENCES):
        x, y = _x(place, width), 13 + step * row
        parts.append(f'<line class="reference" x1="{x:.1f}" x2="{x:.1f}" y1="{y + 7}" y2="{axis + 6}"/>')
        parts.append(
            f'<text class="name" x="{x:.1f}" y="{y}" text-anchor="middle">{name} {share(place, 1)}</text>'
        )
    title = "Agreement is not known yet"
    if value is not None:
        title = f"Agreement {share(value, 1)}; published: " + ", ".join(
            f"{n} {share(p, 1)}" for p, n in REFERENCES
        )
        if low is not None and high is not None:
            ends = _x(low, width), _x(high, width)
            parts.append(
                f'<line class="whisker" x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="{axis}" y2="{axis}"/>'
            )
        parts.append(f'<circle class="dot" cx="{_x(value, width):.1f}" cy="{axis}" r="7"/>')
    return _svg("scale narrow" if narrow else "scale", width, axis + 24, title, parts)


def whisker(found: Interval, title: str, *, middle: float | None = 0.5) -> Markup:
    """A share with its interval between 0 and 1, and a line at what is neutral."""
    parts = ['<line class="axis" x1="0" x2="100" y1="8" y2="8"/>']
    if middle is not None:
        parts.append(
            f'<line class="reference" x1="{100 * middle:.1f}" x2="{100 * middle:.1f}" y1="2" y2="14"/>'
        )
    if found.value is not None:
        if found.low is not None and found.high is not None:
            parts.append(
                f'<line class="whisker" x1="{100 * found.low:.1f}" x2="{100 * found.high:.1f}" y1="8" y2="8"/>'
            )
        parts.append(f'<circle class="dot" cx="{100 * found.value:.1f}" cy="8" r="4"/>')
    return _svg("whisker-chart", 100, 16, title, parts)


def bars(counts: Sequence[int], title: str) -> Markup:
    """Counts side by side, the last one in the accent."""
    top = max(*counts, 1) if counts else 1
    parts = []
    for place, count in enumerate(counts):
        height = max(1.0, 36 * count / top)
        last = " last" if place == len(counts) - 1 else ""
        parts.append(
            f'<rect class="day{last}" x="{place * 10}" y="{38 - height:.1f}" width="7" height="{height:.1f}"/>'
        )
    return _svg("bars", 10 * max(1, len(counts)) - 3, 38, title, parts)


def strengths(value: float, low: float | None, high: float | None, reach: float) -> Markup:
    """A strength around zero, with its interval; `reach` is the greatest distance from zero that is shown."""
    scale = 60 / reach if reach else 1.0
    parts = [
        '<line class="axis" x1="0" x2="160" y1="8" y2="8"/>',
        '<line class="reference" x1="80" x2="80" y1="2" y2="14"/>',
    ]
    if low is not None and high is not None:
        ends = [min(160.0, max(0.0, 80 + scale * end)) for end in (low, high)]
        parts.append(f'<line class="whisker" x1="{ends[0]:.1f}" x2="{ends[1]:.1f}" y1="8" y2="8"/>')
    parts.append(f'<circle class="dot" cx="{80 + scale * value:.1f}" cy="8" r="4"/>')
    return _svg("strength", 160, 16, f"{value:+.2f}", parts)


def split(counts: Sequence[tuple[str, int]], title: str) -> Markup:
    """Shares of one bar: (class, count) from left to right."""
    total = sum(count for _, count in counts) or 1
    parts, begin = [], 0.0
    for name, count in counts:
        width = 100 * count / total
        if count:
            parts.append(f'<rect class="{name}" x="{begin:.2f}" y="0" width="{width:.2f}" height="8"/>')
        begin += width
    return _svg("split", 100, 8, title, parts, stretch=True)


def _x(share: float, width: float) -> float:
    return width * (min(_RIGHT, max(_LEFT, share)) - _LEFT) / (_RIGHT - _LEFT)


def _svg(
    name: str, width: float, height: float, title: str, parts: Sequence[str], *, stretch: bool = False
) -> Markup:
    fit = ' preserveAspectRatio="none"' if stretch else ""
    head = f'<svg class="chart {name}" viewBox="0 0 {width:.0f} {height:.0f}"{fit} role="img">'
    return Markup(f"{head}<title>{escape(title)}</title>{''.join(parts)}</svg>")
