"""Rules by hand."""

import pytest

from tutelage.base.errors import TutelageError
from tutelage.core.rows import EncodedRow
from tutelage.rewards.rules import ExactMatch, LengthLimit, PatternMatch

from .made import completion, sampled


def test_length_costs_nothing_up_to_the_limit_and_one_at_twice_the_limit() -> None:
    answers = [completion(" ".join(["word"] * count)) for count in (0, 3, 4, 6, 8, 12)]
    assert LengthLimit(4)(answers) == [0.0, 0.0, 0.0, -0.5, -1.0, -2.0]
    assert LengthLimit(2, "characters")([completion("abc")]) == [-0.5]
    rows = [EncodedRow((1,), (2, 3)), EncodedRow((1,), (2, 3, 4, 5))]
    assert LengthLimit(2, "tokens")(sampled(rows)) == [0.0, -1.0]


def test_tokens_that_are_not_known_are_not_counted() -> None:
    with pytest.raises(TutelageError, match="Only the text of the answer to prompt p is known"):
        LengthLimit(2, "tokens")([completion("abc")])


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("<think>a\nb</think>So.", 1.0),
        ("\n<think></think>So.\n", 1.0),
        ("Well: <think>a</think>So.", 0.0),
        ("So.", 0.0),
    ],
)
def test_a_format_is_that_of_the_whole_answer(answer: str, score: float) -> None:
    assert PatternMatch(r"<think>.*</think>.+")([completion(answer)]) == [score]


@pytest.mark.parametrize(
    ("pattern", "answer", "solution", "score"),
    [
        ("", "forty  two\n", "forty two", 1.0),
        ("", "forty two.", "forty two", 0.0),
        ("", "42", 42, 1.0),
        (r"####\s*(\S+)", "1 #### 41 or #### 42", "42", 1.0),
        (r"####\s*(\S+)", "1 #### 42 or #### 41", "42", 0.0),
        (r"####\s*(\S+)", "42", "42", 0.0),
        (r"\d+", "It is 42.", "42", 1.0),
        (r"a(b)?", "a", "", 1.0),
    ],
)
def test_the_last_match_is_compared_with_the_column(
    pattern: str, answer: str, solution: object, score: float
) -> None:
    assert ExactMatch("solution", pattern)([completion(answer, solution=solution)]) == [score]


@pytest.mark.parametrize("data", [{}, {"reference": "42"}, {"solution": None}])
def test_a_row_without_the_column_is_named(data: dict[str, object]) -> None:
    with pytest.raises(TutelageError, match=r"The row of prompt p has no value in the column 'solution'"):
        ExactMatch("solution")([completion("42", **data)])


@pytest.mark.parametrize(
    "rule", [lambda: PatternMatch("("), lambda: ExactMatch("x", "("), lambda: LengthLimit(0)]
)
def test_rules_that_are_none(rule) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(TutelageError, match=r"is no regular expression|leaves no room"):
        rule()
