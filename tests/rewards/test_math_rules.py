"""Answers that are numbers or formulas."""

import sys
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.rewards import sandbox as limits
from tutelage.rewards.math_rules import MathMatch, Number, NumberMatch, last_number

from .made import completion


@for_each(
    [
        ("It is 42.", Fraction(42)),
        ("1,234.5 km", Fraction("1234.5")),
        ("x = -3", Fraction(-3)),
        ("−7 degrees", Fraction(-7)),
        ("3 - 4", Fraction(4)),
        ("one half is 1/2", Fraction(1, 2)),
        ("1e3", Fraction(1000)),
        ("5 or .5", Fraction(1, 2)),
        ("$10,000,000.", Fraction(10_000_000)),
        ("never 1/0", None),
        ("v2 of gpt4", None),
        ("none", None),
    ]
)
def test_the_last_number_of_a_text(text: str, number: Fraction | None) -> None:
    found = last_number(text)
    assert (None if found is None else found.ratio * 10**found.exponent) == number


@for_each(
    [
        ("It is 3e9999999999.", "42", 0.0),
        ("9e20", "42", 0.0),
        ("42", "3e9999999999", 0.0),
        ("7e40000000", "70e39999999", 1.0),
        ("1e400", "10e399", 1.0),
        ("1e400", "1e401", 0.0),
        ("-1e400", "1e400", 0.0),
        ("5e-9999999999", "50e-10000000000", 1.0),
        ("0e9999999999", "0", 1.0),
        ("5e-9999999999", "0", 0.0),
        ("It is 42, or " + "1" * 5000, "42", 0.0),
        ("1e" + "9" * 5000, "42", 0.0),
        ("7/" + "0" * 600, "7", 0.0),
    ]
)
def test_numbers_of_any_size_are_compared_exactly(answer: str, wanted: str, score: float) -> None:
    assert NumberMatch(tolerance=0.0)([completion(answer, answer=wanted)]) == [score]


EXPONENTS = st.integers(-700, 700)


@given(st.fractions(), EXPONENTS, st.fractions(), EXPONENTS, st.floats(0, 0.99))
@example(Fraction(1), 400, Fraction(10), 399, 0.0)
def test_closeness_is_that_of_the_written_out_numbers(
    one: Fraction, a: int, other: Fraction, b: int, tolerance: float
) -> None:
    x, y = one * Fraction(10) ** a, other * Fraction(10) ** b
    near = abs(x - y) <= Fraction(tolerance) * abs(y)
    assert Number(one, a).is_near(Number(other, b), tolerance) == near


def test_a_row_with_a_number_beyond_the_limits_is_refused_by_name() -> None:
    with pytest.raises(TutelageError, match=r"row of prompt p has .*640.*'answer': '999"):
        NumberMatch()([completion("7", answer="9" * 5000)])


def test_a_row_with_a_formula_beyond_the_limits_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.5)
    with pytest.raises(TutelageError, match=r"row of prompt p has .*in time.*'answer'"):
        MathMatch()([completion("7", answer="$9^{9^{9^{9}}}$")])


@pytest.mark.parametrize(
    ("answer", "wanted", "score"),
    [
        ("First 3, then 7.", 7, 1.0),
        ("First 7, then 3.", 7, 0.0),
        ("So 1,000.00 it is", "1000", 1.0),
        ("0.5", "1/2", 1.0),
        ("0.3333333", "1/3", 1.0),
        ("0.33", "1/3", 0.0),
        ("no idea", 7, 0.0),
        ("It is 72", "She sold 48 + 24 = 72 clips.\n#### 72", 1.0),
    ],
)
def test_numbers_are_compared_as_numbers(answer: str, wanted: object, score: float) -> None:
    assert NumberMatch()([completion(answer, answer=wanted)]) == [score]


def test_a_pattern_says_where_the_number_stands() -> None:
    rule = NumberMatch("solution", r"####\s*(.+)")
    answers = ["#### 7 (not 3)", "#### 7", "7", "#### 3\n#### 7"]
    assert rule([completion(text, solution=7) for text in answers]) == [0.0, 1.0, 0.0, 1.0]
    assert rule.columns == ("solution",)


@pytest.mark.parametrize("rule", [NumberMatch(), MathMatch()])
def test_a_column_without_a_number_is_refused(rule: NumberMatch | MathMatch) -> None:
    with pytest.raises(TutelageError, match="The row of prompt p has no value in the column 'answer'"):
        rule([completion("7")])
    with pytest.raises(TutelageError, match=r"The row of prompt p has no.* in the column 'answer': '!'"):
        rule([completion("7", answer="!")])


@pytest.mark.parametrize(
    ("answer", "wanted", "score"),
    [
        (r"So it is $\boxed{\frac{1}{2}}$.", "0.5", 1.0),
        (r"$2\sqrt{2}$", r"\sqrt{8}", 1.0),
        ("The answer is 42.", "42", 1.0),
        ("The answer is 41.", "42", 0.0),
        (r"\(\{1, 2\}\)", r"\{2, 1\}", 1.0),
        ("", "42", 0.0),
    ],
)
def test_formulas_are_compared_by_what_they_mean(answer: str, wanted: str, score: float) -> None:
    assert MathMatch()([completion(answer, answer=wanted)]) == [score]


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "math_verify", None)
    monkeypatch.delitem(sys.modules, "tutelage.rewards.formulas", raising=False)
    monkeypatch.delattr("tutelage.rewards.formulas", raising=False)
    with pytest.raises(TutelageError, match=r"tutelage\[rules\]"):
        MathMatch()


def test_a_tolerance_is_a_share() -> None:
    assert NumberMatch(tolerance=0.1)([completion("109", answer=100), completion("111", answer=100)]) == [1.0, 0.0]
    with pytest.raises(TutelageError, match="tolerance"):
        NumberMatch(tolerance=1.0)
