"""Drawings read back: elements by class, and the pixels of paths."""

import math
import re
from xml.etree import ElementTree as ET

from tutelage.report.figures import Chart, draw
from tutelage.report.figures.scales import frame

NAN = math.nan
PIXEL = 0.051
"""The precision of places on a drawing, which are written to a tenth of a pixel."""


def drawn(chart: Chart) -> ET.Element:
    return ET.fromstring(draw(chart))


def with_class(root: ET.Element, *names: str) -> list[ET.Element]:
    return [element for element in root.iter() if set(names) <= set(element.get("class", "").split())]


def pixels(path: ET.Element) -> list[tuple[float, float]]:
    numbers = [float(n) for n in re.findall(r"-?\d+(?:\.\d+)?", path.get("d", ""))]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def strokes(chart: Chart) -> list[list[tuple[float, float]]]:
    """The lines in the plot: without the swatches of the legend, which lie above it."""
    at = frame(chart)
    lines = [pixels(path) for path in with_class(drawn(chart), "line")]
    return [line for line in lines if all(y >= at.y.end - PIXEL for _, y in line)]


def titles(root: ET.Element) -> list[str]:
    return [title.text or "" for title in root.iter("title")]
