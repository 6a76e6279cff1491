"""Charts as frozen values. `draw` of this package makes an SVG drawing of one.

A chart does not know what it plots. Colours are numbers into the palette of the style sheet (classes `c0` to `c5`), so
a drawing follows the light or dark scheme of the page around it. Several runs in one chart are several series:

    draw(Chart("gold", tuple(Series(steps, gold, name, colour=i) for i, (name, steps, gold) in enumerate(runs))))
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tutelage.base.number_text import number

Mark: TypeAlias = Literal["line", "points", "bars"]
Names: TypeAlias = Literal["legend", "ends", "points"]
"""Where a chart names its series: in a legend above the plot, in a column at the right ends of the lines, or beside the
last point of each series, wherever there is room."""


@dataclass(frozen=True)
class Series:
    """Points of one kind. `low` and `high`, one per point, are a band around a line or whiskers on points; `size`
    (shares of the largest) sets the area of points; bars are `width` wide in data; `notes` are shown on hover instead
    of the coordinates. A series without a label is an aid to the eye: neither the names nor the hover text have it.

    Raises ValueError when a column is not as long as `x`.
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
    """The unit and extent of one direction. `low` and `high` are values the axis must reach; it may reach further. A
    `whole` axis counts: it has no ticks between whole numbers."""

    label: str = ""
    log: bool = False
    percent: bool = False
    whole: bool = False
    low: float | None = None
    high: float | None = None

    def written(self, value: float) -> str:
        """A value as text in the unit of this axis."""
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
    """Series over two axes. `title` names the drawing for those who cannot see it."""

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
    """One named value, perhaps with an interval; `written` is the text beside it. NaN is a value that is not known."""

    name: str
    value: float
    written: str = ""
    low: float | None = None
    high: float | None = None
    colour: int = 0


@dataclass(frozen=True)
class BarChart:
    """Named values below each other. A *bar* starts at the axis' beginning and is right for amounts; a *dot* with its
    whisker is right for estimates, whose axis need not start at zero."""

    title: str
    bars: tuple[ValueBar, ...]
    axis: Axis = LINEAR
    rules: tuple[Rule, ...] = ()
    mark: Literal["bar", "dot"] = "bar"
    width: float = 440.0
