"""The look of drawings: one style sheet for the light and the dark scheme, and drawings as files that carry it."""

import re
from functools import cache
from importlib.resources import files

from tutelage.report.figures.svg import Svg, SvgFile

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
