"""Charts as frozen values, rendered by `draw` of this package.

Charts are independent of what they plot. Colours are indices into the palette of the style sheet (classes `c0` to
`c5`), so a drawing follows the light or dark mode of its page. Several runs in one chart are several series:

    draw(Chart("gold", tuple(Series(steps, gold, name, colour=i) for i, (name, steps, gold) in enumerate(runs))))
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tutelage.base.number_text import number

Mark: TypeAlias = Literal["line", "points", "bars"]
Names: TypeAlias = Literal["legend", "ends", "points"]
"""Position of the series names: a legend above the plot, a column at the right ends of the lines, or next to each
series' last point."""


@dataclass(frozen=True)
class Series:
    """Points of one kind. `low` and `high`, one per point, are a band around a line or whiskers on points; `size`
    (relative to the largest) sets the area of points; bars are `width` wide in data units; `notes` replace the
    coordinates as hover text. A series without a label is auxiliary: it has no name and no hover text.

    Raises ValueError if a column is not as long as `x`.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    label: str = ""
    mark: Mark = "line"
    colour: int = 0
    style: Literal["plain", "faint", "dashed"] = "plain"
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    size: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    width: float = 1.0

    def __post_init__(self) -> None:
        for name in ("y", "low", "high", "size", "notes"):
            values = getattr(self, name)
            if len(values) != len(self.x) and (values or name == "y"):
                raise ValueError(f"series {self.label!r} has {len(self.x)} x but {len(values)} {name}")


@dataclass(frozen=True)
class Axis:
    """Unit and extent of one axis. The axis reaches at least `low` and `high`. A `whole` axis has ticks at integers
    only."""

    label: str = ""
    log: bool = False
    percent: bool = False
    whole: bool = False
    low: float | None = None
    high: float | None = None

    def written(self, value: float) -> str:
        """A value formatted in the unit of this axis."""
        return f"{number(value * 100)}%" if self.percent else number(value)


LINEAR = Axis()


@dataclass(frozen=True)
class Rule:
    """A reference line at a value of one axis."""

    at: float
    label: str = ""
    axis: Literal["x", "y"] = "y"


@dataclass(frozen=True)
class Chart:
    """Series over two axes. `title` is the text alternative of the drawing."""

    title: str
    series: tuple[Series, ...]
    x: Axis = LINEAR
    y: Axis = LINEAR
    rules: tuple[Rule, ...] = ()
    width: float = 440.0
    height: float = 250.0
    names: Names = "legend"


@dataclass(frozen=True)
class ValueBar:
    """One named value with an optional interval; `written` is the label next to it. NaN for an unknown value."""

    name: str
    value: float
    written: str = ""
    low: float | None = None
    high: float | None = None
    colour: int = 0


@dataclass(frozen=True)
class BarChart:
    """Named values, one per row. A *bar* starts at the beginning of the axis and suits amounts; a *dot* with whiskers
    suits estimates, whose axis need not start at zero."""

    title: str
    bars: tuple[ValueBar, ...]
    axis: Axis = LINEAR
    rules: tuple[Rule, ...] = ()
    mark: Literal["bar", "dot"] = "bar"
    width: float = 440.0
