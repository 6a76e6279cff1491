"""Filters of the templates."""

from hypothesis import given
from hypothesis import strategies as st
from offenders import for_each

from tutelage.people.web.words import EXCERPT, excerpts

SAME = "Sure! Here is a short answer to your question about the sky: "


@for_each(
    [
        (("a", "b"), ("a", "b")),
        (("two\nlines", ""), ("two lines", "")),
        (("x" * 200, "y"), ("x" * EXCERPT + "…", "y")),
        ((SAME + "blue is scattered", SAME + "black at night"), ("…blue is scattered", "…black at night")),
        ((SAME, SAME), (SAME.strip(), SAME.strip())),
    ]
)
def test_an_excerpt_begins_where_the_texts_differ(texts: tuple[str, ...], pieces: tuple[str, ...]) -> None:
    assert excerpts(texts) == pieces


@given(st.lists(st.text(max_size=300), min_size=1, max_size=4))
def test_excerpts_are_short_and_of_their_texts(texts: list[str]) -> None:
    for text, piece in zip(texts, excerpts(texts), strict=True):
        assert len(piece) <= EXCERPT + 2
        assert piece.strip("…") in " ".join(text.split())
