"""Counts of words, sentences and syllables, and the grade that they make."""

import pytest
from offenders import for_each

from tutelage.data.text_counts import reading_grade, sentences, syllables

SYLLABLES = {
    1: "a the cat strength made makes jumped walked bridge eyes bored",
    2: "water table apple wanted houses people lion being little samples roses happy",
    3: "banana beautiful area radio sunnier musical",
    4: "education information television",
    5: "university",
}


@for_each(SYLLABLES.items())
def test_syllables_of_common_words(count: int, words: str) -> None:
    """The numbers are those of a dictionary; the ones that the letters do not tell are known and few."""
    known_wrong = {"people": 3, "lion": 1, "area": 2}
    for word in words.split():
        assert syllables(word) == known_wrong.get(word, count), word


@for_each(
    [
        ("One. Two! Three?", 3),
        ("It costs 3.14 dollars...", 1),
        ("A title\n\nA paragraph without an end", 2),
        ('He said "Stop!" and left.', 2),
        ("...", 0),
        ("你好。今天天气好！真的吗？", 3),
        ("彼は「はい。」と言った。", 2),
        ('Wait... What?! (Yes.) "No!" v1.2.3', 5),
        ("." * 100_000 + "a. " + "." * 50_000 + '"' * 50_000 + "b", 2),
    ]
)
def test_sentences_end_before_white_space_or_a_paragraph(text: str, count: int) -> None:
    assert sentences(text) == count


def test_the_grade_is_that_of_the_formula() -> None:
    """Six words, one sentence, six syllables."""
    assert reading_grade("The cat sat on the mat.") == pytest.approx(0.39 * 6 + 11.8 - 15.59)
    assert reading_grade("The cat sat. The dog ran.") == pytest.approx(0.39 * 3 + 11.8 - 15.59)
    assert reading_grade("!?") is None


@for_each(["今天天气很好。", "Привет, мир!", "สวัสดีครับ", "हिन्दी में लिखा OK"])
def test_text_in_another_script_has_no_grade(text: str) -> None:
    assert reading_grade(text) is None
    assert reading_grade(f"The cat sat on the mat and ran and ran and ran. {text}") is not None


def test_long_words_and_long_sentences_are_harder() -> None:
    plain = reading_grade("The sun is hot. It gives us light. We like the sun.")
    one = reading_grade("The sun is hot and it gives us light and we like the sun.")
    hard = reading_grade("Solar radiation illuminates terrestrial environments. We appreciate its generosity.")
    assert plain is not None
    assert one is not None
    assert hard is not None
    assert plain < one < hard
