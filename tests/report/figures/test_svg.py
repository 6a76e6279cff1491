"""SVG as text: nothing that enters it can break out of it."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

from jinja2 import Environment
from markupsafe import escape

from tutelage.report.figures import Axis, Chart, Series, draw, standalone, stylesheet
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
    drawing = re.compile(r"<svg(?![^>]*aria-hidden)[ >]|createElementNS")  # icons of buttons are hidden from readers
    found = {
        path.relative_to(root)
        for path in sources
        if path.suffix in (".py", ".html", ".js") and drawing.search(path.read_text(encoding="utf-8"))
    }
    assert {path.parent.as_posix() for path in found} == {"tutelage/report/figures"}


ROOT = Path(__file__).parents[3]
LINES = tuple(Series((0.0, 1.0), (0.0, end), f"line {i}", colour=i) for i, end in enumerate((1.0, 2.0)))
CHART = Chart("Test", LINES, Axis("x"), Axis("y"), height=300, names="ends")


def luminance(colour: str) -> float:
    """WCAG 2.2, relative luminance."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_colours_can_be_told_from_their_ground_in_every_scheme() -> None:
    schemes = [dict(re.findall(r"--(\w+): (#\w{6})", block)) for block in stylesheet().split(":root")[1:]]
    assert len(schemes) == 3
    for scheme in schemes:
        for ground in ("paper", "panel", "notice"):
            for ink in ("ink", "muted", "good", "bad"):
                assert contrast(scheme[ink], scheme[ground]) >= 4.5, (ink, ground, scheme)
        for series in (f"c{i}" for i in range(6)):
            assert contrast(scheme[series], scheme["panel"]) >= 3, (series, scheme)


def test_a_file_is_well_formed_has_its_own_colours_for_light_and_dark_and_nothing_that_needs_a_pointer() -> None:
    written = standalone(draw(CHART))
    root = ET.fromstring(written)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert (root.get("width"), root.get("height")) == ("440", "300")
    assert "prefers-color-scheme: dark" in written
    assert "--c0" in written
    assert 'class="slice"' not in written
    assert not re.findall(r"<title>", written)
    texts = {element.text for element in root.iter() if element.get("class", "").startswith("end")}
    assert texts == {"line 0", "line 1"}


def test_the_drawings_that_are_kept_carry_this_style() -> None:
    """Browsers show them in any width, so a rule about narrow screens has no place in them."""
    by_hand = ROOT / "docs" / "images"
    found = [path for folder in ("docs", "bench/results") for path in (ROOT / folder).rglob("*.svg")]
    kept = [path for path in found if path.parent != by_hand]
    assert len(kept) > 20
    assert [path.name for path in kept if stylesheet() not in path.read_text(encoding="utf-8")] == []
    assert "max-width" not in stylesheet()
