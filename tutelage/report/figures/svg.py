"""SVG as text, and the look of drawings. Every text that enters a drawing is escaped in this file."""

import re
from collections.abc import Iterable
from functools import cache
from html import escape
from importlib.resources import files

UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")

Points = list[tuple[float, float]]
"""Places on a drawing as (x, y) in pixels; y grows downwards."""


class Svg(str):
    """The text of a complete `<svg>` element. Jinja inserts it into a page as it is, because of `__html__`."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


class SvgFile(str):
    """The content of an SVG file. A notebook shows it as an image, because of `_repr_svg_`."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)


def clean(text: str) -> str:
    """A text that a page can show once it is escaped: control characters, characters that turn the direction of what
    follows, and halves of surrogate pairs become a visible �."""
    return UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def escaped(text: str) -> str:
    """A text as HTML and SVG write it, in elements and in quoted attributes."""
    return escape(clean(text))


def tag(name: str, *children: str, **attributes: str | float) -> str:
    """An element. `children` are SVG already; attribute values are escaped, numbers rounded to a tenth of a pixel.

    The underscores of an attribute's name become hyphens, and a trailing one keeps Python's reserved words usable
    (`class_`).
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(attribute(value))}"'
        for key, value in attributes.items()
    )
    body = "".join(children)
    return f"<{name}{written}>{body}</{name}>" if body else f"<{name}{written}/>"


def attribute(value: str | float) -> str:
    """The value of an attribute as text; a number has at most one decimal."""
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def text(x: float, y: float, words: str, class_: str = "", anchor: str = "start") -> str:
    """Words whose baseline is at y; `anchor` says whether x is their start, middle or end."""
    return tag("text", escaped(words), x=x, y=y, class_=class_, text_anchor=anchor)


def tooltip(*lines: str) -> str:
    """The lines that a browser shows while the pointer rests on the surrounding element."""
    return tag("title", escaped("\n".join(lines)))


def path(points: Iterable[tuple[float, float]], class_: str, *children: str, closed: bool = False) -> str:
    """Straight strokes through pixel points."""
    strokes = "L".join(f"{attribute(x)} {attribute(y)}" for x, y in points)
    return tag("path", *children, d=f"M{strokes}" + ("Z" if closed else ""), class_=class_)


def document(
    width: float, height: float, label: str, *children: str, class_: str = "chart", **attributes: str
) -> Svg:
    """A complete drawing that scales with the width it is given; screen readers read `label` instead of it."""
    view = f"0 0 {attribute(width)} {attribute(height)}"
    return Svg(tag("svg", *children, class_=class_, viewBox=view, role="img", aria_label=label, **attributes))


GROUND = (
    "svg { background: var(--panel); font-family: system-ui, -apple-system, 'Segoe UI', Arial, sans-serif; }"
)


@cache
def stylesheet() -> str:
    """The colours and strokes of drawings as CSS. The variables in it may also colour the page around a drawing."""
    folder = files("tutelage.report.figures") / "styles"
    return "".join((folder / name).read_text(encoding="utf-8") for name in ("palette.css", "charts.css"))


def standalone(drawing: Svg) -> SvgFile:
    """A drawing as the content of a file of its own, with its style and background. What only answers a pointer is left
    out, since a browser shows such a file as an image."""
    still = re.sub(r'<rect[^>]*class="slice"[^>]*>.*?</rect>|<title>.*?</title>', "", drawing, flags=re.S)
    opened, rest = still.split(">", 1)
    width, height = re.findall(r'viewBox="0 0 (\S+) (\S+)"', opened)[0]
    size = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
    return SvgFile(f"{opened.replace('<svg', size, 1)}><style>{stylesheet()}{GROUND}</style>{rest}\n")
