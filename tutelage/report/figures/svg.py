"""SVG primitives and the style of charts. All text in a drawing is escaped in this module."""

import re
from collections.abc import Iterable
from functools import cache
from html import escape
from importlib.resources import files

UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")

Points = list[tuple[float, float]]
"""Positions in a drawing as (x, y) in pixels; y grows downwards."""


class Svg(str):
    """A complete `<svg>` element as text. Jinja inserts it unescaped because of `__html__`."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


class SvgFile(str):
    """The content of an SVG file. Notebooks display it as an image because of `_repr_svg_`."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)


def clean(text: str) -> str:
    """Replace control characters, bidirectional control characters and lone surrogates by a visible �."""
    return UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def escaped(text: str) -> str:
    """Text escaped for HTML and SVG, in elements and in quoted attributes."""
    return escape(clean(text))


def tag(name: str, *children: str, **attributes: str | float) -> str:
    """An element. `children` are SVG; attribute values are escaped, numbers rounded to a tenth of a pixel.

    Underscores in attribute names become hyphens; a trailing one allows for Python keywords (`class_`).
    """
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(attribute(value))}"' for key, value in attributes.items()
    )
    body = "".join(children)
    return f"<{name}{pairs}>{body}</{name}>" if body else f"<{name}{pairs}/>"


def attribute(value: str | float) -> str:
    """The value of an attribute as text; numbers have at most one decimal."""
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def text(x: float, y: float, words: str, class_: str = "", anchor: str = "start") -> str:
    """Text with baseline y; `anchor` says whether x is its start, middle or end."""
    return tag("text", escaped(words), x=x, y=y, class_=class_, text_anchor=anchor)


def tooltip(*lines: str) -> str:
    """The hover text of the surrounding element."""
    return tag("title", escaped("\n".join(lines)))


def path(points: Iterable[tuple[float, float]], class_: str, *children: str, closed: bool = False) -> str:
    """A polyline through pixel positions."""
    strokes = "L".join(f"{attribute(x)} {attribute(y)}" for x, y in points)
    return tag("path", *children, d=f"M{strokes}" + ("Z" if closed else ""), class_=class_)


def document(width: float, height: float, label: str, *children: str, class_: str = "chart", **attributes: str) -> Svg:
    """A complete drawing that scales to its container; screen readers read `label`."""
    view = f"0 0 {attribute(width)} {attribute(height)}"
    return Svg(tag("svg", *children, class_=class_, viewBox=view, role="img", aria_label=label, **attributes))


GROUND = "svg { background: var(--panel); font-family: system-ui, -apple-system, 'Segoe UI', Arial, sans-serif; }"


@cache
def stylesheet() -> str:
    """The CSS of charts. Its colour variables can also be used by the surrounding page."""
    folder = files("tutelage.report.figures") / "styles"
    return "".join((folder / name).read_text(encoding="utf-8") for name in ("palette.css", "charts.css"))


def standalone(drawing: Svg) -> SvgFile:
    """A drawing as a self-contained SVG file with style and background. Hover elements are removed, because browsers
    show such files as images."""
    still = re.sub(r'<rect[^>]*class="slice"[^>]*>.*?</rect>|<title>.*?</title>', "", drawing, flags=re.S)
    opened, rest = still.split(">", 1)
    width, height = re.findall(r'viewBox="0 0 (\S+) (\S+)"', opened)[0]
    size = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
    return SvgFile(f"{opened.replace('<svg', size, 1)}><style>{stylesheet()}{GROUND}</style>{rest}\n")
