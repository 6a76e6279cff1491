"""The few words of SVG that the charts are written in. Everything that goes in is escaped here."""

from collections.abc import Iterable

from tutelage.report.words import escaped


def tag(name: str, *children: str, **attributes: str | float) -> str:
    """An element. `children` are SVG already; attribute values are escaped, numbers rounded to a tenth of a pixel.

    An attribute's underscores become hyphens, and a trailing one keeps Python's reserved words usable (`class_`).
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escaped(place(value))}"' for key, value in attributes.items()
    )
    body = "".join(children)
    return f"<{name}{written}>{body}</{name}>" if body else f"<{name}{written}/>"


def place(value: str | float) -> str:
    """An attribute's value as text."""
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def text(x: float, y: float, words: str, class_: str = "", anchor: str = "start") -> str:
    """Words at a place; `anchor` is start, middle or end."""
    return tag("text", escaped(words), x=x, y=y, class_=class_, text_anchor=anchor)


def title(lines: Iterable[str]) -> str:
    """What the browser shows while the pointer rests on the surrounding element."""
    return tag("title", escaped("\n".join(lines)))


def polyline(points: Iterable[tuple[float, float]], *, closed: bool = False) -> str:
    """The path data of straight strokes through pixel points."""
    strokes = "L".join(f"{place(x)} {place(y)}" for x, y in points)
    return f"M{strokes}" + ("Z" if closed else "")


def document(width: float, height: float, label: str, *children: str, class_: str = "chart") -> str:
    """A whole drawing that scales with the width it is given; `label` is read out instead of it."""
    view = f"0 0 {place(width)} {place(height)}"
    return tag("svg", *children, class_=class_, viewBox=view, role="img", aria_label=label)
