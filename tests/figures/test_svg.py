"""SVG as text: nothing that enters it can break out of it."""

from jinja2 import Environment
from markupsafe import escape

from tutelage.figures.svg import Svg, clean, document, text


def test_unprintable_characters_become_visible() -> None:
    hostile = "a\x00b\x1b[31m\u202ec\ud800d\r\ne\tf"
    cleaned = clean(hostile)
    assert cleaned == "a�b�[31m�c�d\ne\tf"
    cleaned.encode("utf-8")


def test_a_page_takes_a_drawing_as_it_is_and_escapes_every_other_text() -> None:
    drawing = document(10, 5, "a <b> & c", text(0, 0, "</text><b>"))
    page = Environment(autoescape=True).from_string("{{ drawing }}{{ other }}")
    assert page.render(drawing=drawing, other=str(drawing)) == drawing + escape(str(drawing))
    assert isinstance(drawing, Svg)
