"""Spans and corrections as owners read them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tutelage.people.answers import Span
from tutelage.people.web.pages.owner.items import MarkedPart, marked_parts

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
