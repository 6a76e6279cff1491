"""Differences of texts, word by word."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offenders import for_each

from tutelage.people import differences
from tutelage.people.differences import TextPiece, word_differences

TEXTS = st.lists(st.sampled_from(["a", "b", "word", " ", "  ", "\n", "é", "\U0001f433"])).map("".join)


@settings(max_examples=60)
@given(TEXTS, TEXTS)
def test_the_pieces_are_both_texts(before: str, after: str) -> None:
    pieces = word_differences(before, after)
    assert "".join(piece.text for piece in pieces if piece.change != "added") == before
    assert "".join(piece.text for piece in pieces if piece.change != "removed") == after
    assert all(piece.text for piece in pieces)
    assert [piece.change for piece in word_differences(before, before)] == ["same"] * bool(before)


@for_each(
    [
        (
            "the largest fish of all",
            "the largest animal of all",
            [("same", "the largest"), ("removed", " fish"), ("added", " animal"), ("same", " of all")],
        ),
        ("", "new", [("added", "new")]),
        ("a b", "a x b", [("same", "a"), ("added", " x"), ("same", " b")]),
    ]
)
def test_what_changed_is_told(before: str, after: str, pieces: list[tuple[str, str]]) -> None:
    assert list(word_differences(before, after)) == [TextPiece(*each) for each in pieces]  # type: ignore[arg-type]


def test_long_texts_are_told_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(differences, "MOST_COMPARED", 3)
    assert word_differences("x a b y", "x b a y") == (
        TextPiece("same", "x"),
        TextPiece("removed", " a b"),
        TextPiece("added", " b a"),
        TextPiece("same", " y"),
    )
