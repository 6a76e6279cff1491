"""The pictures of the documentation: those that are named are there, and none is too large to be kept."""

import re

from .screenshots import IMAGES, KEPT

LARGEST = 150_000


def test_the_guide_shows_pictures_that_are_there() -> None:
    named = set(re.findall(r"\(images/([\w-]+)\.png\)", (IMAGES.parent / "collecting.md").read_text()))
    assert named
    assert named <= set(KEPT)


def test_every_picture_is_kept_and_small() -> None:
    sizes = {name: (IMAGES / f"{name}.png").stat().st_size for name in KEPT}
    assert {name: size for name, size in sizes.items() if size > LARGEST} == {}
