"""SVG as text: nothing that enters it can break out of it."""

import re
from pathlib import Path

from jinja2 import Environment
from markupsafe import escape

from tutelage.report.figures.svg import Svg, clean, document, text


def test_unprintable_characters_become_visible() -> None:
    hostile = "a\x00b\x1b[31m\u202ec\ud800d\r\ne\tf"
    cleaned = clean(hostile)
    assert cleaned == "a�b�[31m�c�d\ne\tf"
    cleaned.encode("utf-8")


def test_a_page_takes_a_drawing_as_it_is_and_escapes_every_other_text() -> None:
    drawing = document(10, 5, "a <b> & c", text(0, 0, "</text><b>"))
    page = Environment(autoescape=True).from_string("{{ drawing }}{{ other }}")
    assert page.render(drawing=drawing, other=str(drawing)) == str(drawing) + str(escape(str(drawing)))
    assert isinstance(drawing, Svg)


def test_no_other_package_draws() -> None:
    root = Path(__file__).parents[3]
    sources = [path for folder in ("tutelage", "bench") for path in (root / folder).rglob("*")]
    drawing = re.compile(r"<svg|viewBox|createElementNS")
    found = {
        path.relative_to(root)
        for path in sources
        if path.suffix in (".py", ".html", ".js") and drawing.search(path.read_text(encoding="utf-8"))
    }
    assert {path.parent.as_posix() for path in found} == {"tutelage/report/figures"}
