"""Answers that are numbers or formulas."""

import sys
from itertools import product

import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.rewards import sandbox as limits
from tutelage.rewards.math_rules import MathMatch, NumberMatch

from .made import completion


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


def test_a_row_with_a_number_beyond_the_limits_is_refused_by_name() -> None:
    with pytest.raises(TutelageError, match=r"row of prompt p has .*640.*'answer': '999"):
        NumberMatch()([completion("7", answer="9" * 5000)])


def test_a_row_with_a_formula_beyond_the_limits_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.5)
    with pytest.raises(TutelageError, match=r"row of prompt p has .*in time.*'answer'"):
        MathMatch()([completion("7", answer="$9^{9^{9^{9}}}$")])


@for_each(
    [
        ("First 3, then 7.", 7, 1.0),
        ("First 7, then 3.", 7, 0.0),
        ("So 1,000.00 it is", "1000", 1.0),
        ("0.5", "1/2", 1.0),
        ("0.3333333", "1/3", 1.0),
        ("0.33", "1/3", 0.0),
        ("no idea", 7, 0.0),
        ("It is 72", "She sold 48 + 24 = 72 clips.\n#### 72", 1.0),
    ]
)
def test_numbers_are_compared_as_numbers(answer: str, wanted: object, score: float) -> None:
    assert NumberMatch()([completion(answer, answer=wanted)]) == [score]


@for_each(
    [
        (rule, *case)
        for rule, case in product(
            [NumberMatch(), MathMatch()],
            [
                ("It is 42.", [41, "42"], 1.0),
                ("It is 40.", [41, "42"], 0.0),
                ("It is 42.", 42.0, 1.0),
                ("It is 42.", {"value": "41", "aliases": ["42"]}, 1.0),
            ],
        )
    ]
)
def test_any_of_several_values_counts(rule: NumberMatch | MathMatch, answer: str, wanted: object, score: float) -> None:
    assert rule([completion(answer, answer=wanted)]) == [score]


def test_values_of_a_column_without_a_number_are_ignored_unless_all_lack_one() -> None:
    for wanted in (["42", "forty-two"], {"value": "42", "aliases": ["42", "Forty Two", "9" * 5000]}):
        assert NumberMatch()([completion("It is 42.", answer=wanted)]) == [1.0]
        assert NumberMatch()([completion("forty-two", answer=wanted)]) == [0.0]
    with pytest.raises(TutelageError, match=r"row of prompt p .*'answer'.*forty-two"):
        NumberMatch()([completion("42", answer=["forty-two", "XLII"])])


@for_each(
    [
        ("It is 3 000.", "10 000", 0.0),
        ("Das sind 10 000 Euro.", "10000", 1.0),
        ("Es kostet 99,50 €", "1.234,50", 0.0),
        ("Es kostet 1.234,50 €", "1,234.50", 1.0),
        ("It is $9{,}500$.", 9500, 1.0),
        ("It is $9{,}500$.", 500, 0.0),
        ("It is 2^10", 10, 0.0),
        ("It is 42, so x/2", 2, 0.0),
        ("10:30", "10:30", 1.0),
        ("11:30", "10:30", 0.0),
        ("2024-05-17", "2024-05-17", 1.0),
        ("2024-05-17", "17", 0.0),
        ("42%", 42, 1.0),
        ("50%", 0.5, 0.0),
    ]
)
def test_a_number_is_matched_as_a_whole(answer: str, wanted: object, score: float) -> None:
    assert NumberMatch()([completion(answer, answer=wanted)]) == [score]


def test_the_decimal_mark_decides_what_a_single_separator_is() -> None:
    rows = [completion("1.234", answer="1234"), completion("1,234", answer="1.234")]
    assert NumberMatch(mark=",")(rows) == [1.0, 0.0]
    assert NumberMatch()(rows) == [0.0, 0.0]
    assert NumberMatch()([completion("1,234", answer="1234")]) == [1.0]


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
    for value in ([], {"other": 7}, [7, None]):
        with pytest.raises(TutelageError, match=r"row of prompt p .*'answer'"):
            rule([completion("7", answer=value)])


def test_a_column_with_a_number_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(TutelageError, match=r"row of prompt p .*'answer': '2\^10'"):
        NumberMatch()([completion("10", answer="2^10")])


@for_each(
    [
        (r"So it is $\boxed{\frac{1}{2}}$.", "0.5", 1.0),
        (r"$2\sqrt{2}$", r"\sqrt{8}", 1.0),
        ("The answer is 42.", "42", 1.0),
        ("The answer is 41.", "42", 0.0),
        (r"\(\{1, 2\}\)", r"\{2, 1\}", 1.0),
        (r"First \boxed{5}. Wrong: \boxed{\frac{14}{2}}.", "7", 1.0),
        (r"First \fbox{5}. Wrong: \fbox{7}, since 5 fails", "7", 1.0),
        (r"First \boxed{7}. Wrong: \boxed{5}.", "7", 0.0),
        (r"\boxed{2} and \boxed{3}", r"\{2, 3\}", 1.0),
        ("", "42", 0.0),
    ]
)
def test_formulas_are_compared_by_what_they_mean(answer: str, wanted: str, score: float) -> None:
    assert MathMatch()([completion(answer, answer=wanted)]) == [score]


@for_each(
    [
        ("100000", "1e5", 1.0),
        ("1", "1e5", 0.0),
        ("It is 1e5 m.", "100000", 1.0),
        ("1e5", "1", 0.0),
        ("x = 1500", "1.5 x 10^3", 1.0),
        ("1000000", "1.000.000", 1.0),
        ("0", "1.000.000", 0.0),
        ("1 000", "1", 0.0),
        ("5 million", "5000000", 1.0),
        ("3/2", "1 1/2", 1.0),
        ("at 12:00", "12", 0.0),
        ("pages 3–5, so 7", "7", 1.0),
        ("3–5", "3", 0.0),
        ("1e" + "9" * 5000, "1", 0.0),
        ("50", "50%", 1.0),
        ("5", "5 km", 1.0),
        ("{1, 2}", "1,2", 1.0),
        ("$1024$", "2^10", 1.0),
        (r"\boxed{10\,000}", "10000", 1.0),
        (r"\boxed{10\,000}", r"20\,000", 0.0),
        (r"\boxed{10 000}", "0", 0.0),
        ("$10 000$", "$20 000$", 0.0),
        (r"\boxed{1~234\ 567}", "1234567", 1.0),
        (r"\boxed{1.000.000}", "1000000", 1.0),
        (r"\boxed{1.000.000}", r"\boxed{2.000.000}", 0.0),
        (r"\boxed{0.123\,456}", "0.123456", 1.0),
        (r"\boxed{x^2\,300}", "300x^2", 1.0),
        (r"\boxed{(1,\,200)}", "(1,200)", 1.0),
        ("x = ٤٢", "42", 1.0),
        (r"\boxed{٣٫٥}", "3.5", 1.0),
        ("42", "४२", 1.0),
        (r"\boxed{1\text{ h }30\text{ min}}", r"1\text{ h }30\text{ min}", 1.0),
        (r"\boxed{1\text{ h }30\text{ min}}", r"1\text{ h }45\text{ min}", 0.0),
        (r"\boxed{5\text{ feet }3\text{ inches}}", r"5\text{ feet}", 0.0),
        (r"\boxed{3\text{ and }5}", "3,5", 1.0),
    ]
)
def test_a_numeral_is_read_wholly_or_not_at_all(answer: str, wanted: str, score: float) -> None:
    assert MathMatch()([completion(answer, answer=wanted)]) == [score]


@for_each(["12:00", "12:30 pm", "2024-05-17", "17/05/2024", "3:1", "3–5", "1e5 or 1e6", "x^2 + 1e5", "1e" + "9" * 5000])
def test_a_column_that_is_no_single_number_is_refused(wanted: str) -> None:
    with pytest.raises(TutelageError, match=r"row of prompt p .*'answer'"):
        MathMatch()([completion("12", answer=wanted)])


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
