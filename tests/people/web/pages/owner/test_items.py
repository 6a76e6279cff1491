"""Spans and corrections as owners read them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offenders import for_each

from tutelage.people.answers import Span
from tutelage.people.web.pages.owner import items
from tutelage.people.web.pages.owner.items import MarkedPart, TextPiece, marked_parts, word_differences

SPANS = st.lists(st.builds(Span, st.just(0), st.integers(0, 12), st.integers(0, 12), st.sampled_from("xy")))


@settings(max_examples=40)
@given(st.text("ab \U0001f433", max_size=10), SPANS)
def test_the_parts_are_the_text_and_each_has_what_covers_it(text: str, spans: list[Span]) -> None:
    parts = marked_parts(text, spans)
    assert "".join(part.text for part in parts) == text
    covered = [{each.category: 0 for each in spans if each.start <= at < each.end} for at in range(len(text))]
    assert [set(part.categories) for part in parts for _ in part.text] == [set(each) for each in covered]


def test_spans_may_overlap_and_are_counted() -> None:
    spans = (Span(0, 0, 4, "fact"), Span(0, 2, 6, "tone"), Span(0, 2, 6, "tone"))
    assert marked_parts("abcdefgh", spans) == (
        MarkedPart("ab", {"fact": 1}),
        MarkedPart("cd", {"fact": 1, "tone": 2}),
        MarkedPart("ef", {"tone": 2}),
        MarkedPart("gh", {}),
    )


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
    monkeypatch.setattr(items, "MOST_COMPARED", 3)
    assert word_differences("x a b y", "x b a y") == (
        TextPiece("same", "x"),
        TextPiece("removed", " a b"),
        TextPiece("added", " b a"),
        TextPiece("same", " y"),
    )
