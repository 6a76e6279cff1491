"""The pictures of the documentation: every page has those that it shows, and none is too large to be kept."""

import re

from .screenshots import IMAGES, KEPT

LARGEST = 150_000
DEMO = ("report", "terminal")
"""Those that `demo_pictures` takes."""


def test_every_picture_is_on_a_page() -> None:
    pages = [IMAGES.parents[1] / "README.md", *IMAGES.parent.rglob("*.md")]
    named = {name for page in pages for name in re.findall(r"images/([\w-]+)\.png", page.read_text())}
    assert named == {*KEPT, *DEMO}
    assert named == {file.stem for file in IMAGES.glob("*.png")}


def test_every_picture_is_kept_and_small() -> None:
    sizes = {name: (IMAGES / f"{name}.png").stat().st_size for name in KEPT}
    assert {name: size for name, size in sizes.items() if size > LARGEST} == {}
