"""The drawings of the owner's pages, by geometry."""

import xml.etree.ElementTree as ET

import pytest
from report.figures.reading import pixels, with_class

from tutelage.people.web.drawings import agreement_scale, share_interval, strength_interval
from tutelage.stats.intervals import Interval


def centres(root: ET.Element) -> list[float]:
    return [float(disc.get("cx", "")) for disc in with_class(root, "point")]


def levels(root: ET.Element, name: str) -> list[list[float]]:
    """The horizontal places of all strokes of a class."""
    return [[x for x, _ in pixels(path)] for path in with_class(root, name)]


@pytest.mark.parametrize(("narrow", "width"), [(False, 640), (True, 290)])
def test_the_scale_of_agreement_is_drawn_to_scale(narrow: bool, width: float) -> None:
    root = ET.fromstring(agreement_scale(Interval(0.75, 0.7, 0.8), "en", narrow=narrow))
    assert centres(root) == [width / 2], "half way from one half to one"
    assert levels(root, "whisker") == [[0.4 * width, 0.6 * width]]
    published = [width * 2 * (share - 0.5) for share in (0.63, 0.726, 0.81)]
    assert [x for x, _ in levels(root, "rule")] == pytest.approx(published, abs=0.06)
    assert [text.text for text in with_class(root, "tick")] == [f"{n}\u202f%" for n in range(50, 101, 10)]
    assert "hh-rlhf 63.0" in " ".join(text.text or "" for text in with_class(root, "name"))
    assert "Agreement 75.0" in root.get("aria-label", "")


def test_agreement_that_is_unknown_or_outside_stays_on_the_paper() -> None:
    unknown = ET.fromstring(agreement_scale(Interval(None, None, None), "en"))
    assert centres(unknown) == levels(unknown, "whisker") == []
    assert unknown.get("aria-label") == "Agreement is not known yet"
    low = ET.fromstring(agreement_scale(Interval(0.2, 0.1, 0.3), "en"))
    assert centres(low) == [0]
    assert levels(low, "whisker") == [[0, 0]]


def test_a_share_is_drawn_to_scale_with_its_neutral_value() -> None:
    root = ET.fromstring(share_interval(Interval(0.25, 0.2, 0.4), "a <b> & c"))
    ((start, end),) = levels(root, "grid")
    assert centres(root) == [start + 0.25 * (end - start)]
    assert levels(root, "whisker") == [[start + 0.2 * (end - start), start + 0.4 * (end - start)]]
    assert levels(root, "rule") == [[(start + end) / 2] * 2]
    assert root.get("aria-label") == "a <b> & c"
    free = ET.fromstring(share_interval(Interval(None, None, None), "none", middle=None))
    assert centres(free) == levels(free, "whisker") == levels(free, "rule") == []


def test_a_strength_is_drawn_around_zero_and_cut_at_the_reach() -> None:
    root = ET.fromstring(strength_interval(Interval(0.0, -1.0, 9.0), 2.0))
    ((start, end),) = levels(root, "grid")
    assert centres(root) == [(start + end) / 2] == [levels(root, "rule")[0][0]]
    assert levels(root, "whisker") == [[start + 0.25 * (end - start), end]]
