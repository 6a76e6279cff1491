"""The last number of a text, in the notations of several languages and of LaTeX."""

import time
from contextlib import suppress
from fractions import Fraction

from hypothesis import example, given
from hypothesis import strategies as st
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.rewards.numerals import Mark, Number, Parts, last_number


def value(text: str, mark: Mark = ".") -> Fraction | Parts | None:
    last = last_number(text, mark)
    return last.ratio * Fraction(10) ** last.exponent if isinstance(last, Number) else last


@for_each(
    [
        ("It is 42.", 42),
        ("x = -3", -3),
        ("−7 degrees", -7),
        ("x=–5", -5),
        ("x = - 3", -3),
        ("- 3", 3),
        ("3 - 4", 4),
        ("5-3", 3),
        ("pages 10–20", 20),
        ("-$5", -5),
        ("$-5", -5),
        ("none", None),
        # groups
        ("1,234.5 km", "1234.5"),
        ("$10,000,000.", 10_000_000),
        ("100,200,300", 100_200_300),
        ("It is 3 000.", 3000),
        ("10 000", 10_000),
        ("1\u202f000\u202f000", 1_000_000),
        ("5\u00a0000", 5000),
        ("in 2024 100 people", 100),
        ("10 20 300", 300),
        ("1'234", 1234),
        ("1’234’567.5", "1234567.5"),
        ("1_000", 1000),
        ("12,34,567", 1_234_567),
        ("50,000원", 50_000),
        # decimal marks
        ("5 or .5", "0.5"),
        ("wait...5", 5),
        ("1.234,50 €", "1234.5"),
        ("1.234.567,8", "1234567.8"),
        ("1 234,50", "1234.5"),
        ("99,50", "99.5"),
        ("0,123", "0.123"),
        ("1.234", "1.234"),
        ("1,234", 1234),
        ("1,234,56", None),
        ("1,2,3", 3),
        ("-1,2,3", 3),
        ("(3,4)", 4),
        ("[3,4]", 4),
        ("{1,2}", 2),
        (r"\{1,2\}", 2),
        ("[0,5)", 5),
        ("(-3,4)", 4),
        ("(1,234)", 1234),
        ("(3.5)", "3.5"),
        (r"\boxed{99,50}", "99.5"),
        # bold and other marks of text
        ("The answer is **42**.", 42),
        ("**42** apples", 42),
        ("**42**, which", 42),
        ("**x = 42**.", 42),
        ("**1,234** dollars", 1234),
        ("**-3**.", -3),
        ("**10** 5", 5),
        ("**3 × 10** 5", 5),
        ("**42**个", 42),
        ("__42__", 42),
        ("*42*", 42),
        (r"\boxed{**42**}", 42),
        ("$42$", 42),
        ("~~41~~ 42", 42),
        ("# 42", 42),
        ("`42`", 42),
        # fractions and powers
        ("one half is 1/2", "1/2"),
        ("½", "1/2"),
        ("-½", "-1/2"),
        ("1½", "3/2"),
        ("1 1/2", "3/2"),
        ("never 1/0", None),
        ("1e3", 1000),
        ("1.5e-3", "0.0015"),
        ("3×10⁵", 300_000),
        ("3 x 10^8", 300_000_000),
        ("3 * 10 ** 8", 300_000_000),
        ("12×3", 3),
        ("12÷3", 3),
        ("10^5", 100_000),
        ("10**3", 1000),
        ("4²", None),
        ("2^10", None),
        ("2**10", None),
        ("5 million", 5_000_000),
        ("3万円", 30_000),
        ("1万5千", None),
        # scripts
        ("٤٢", 42),
        ("٣٫٥", "3.5"),
        ("४२", 42),
        ("４２", 42),
        ("答案是42。", 42),
        # units, names, indices
        ("42%", 42),
        ("42 km", 42),
        ("25cm²", 25),
        ("25 m^2", 25),
        ("the 3rd", 3),
        ("v2 of gpt4", None),
        ("7 in v2.0", 7),
        ("7 = x_1", 7),
        ("GPT-4", 4),
        # LaTeX
        ("$9{,}500$", 9500),
        (r"12\,500", 12_500),
        (r"10,\!000", 10_000),
        (r"\$1,234", 1234),
        (r"42\%", 42),
        (r"\boxed{42}.", 42),
        (r"\boxed{\frac{3}{4}}", "3/4"),
        (r"-\dfrac{1}{2}", "-1/2"),
        (r"$\frac{-3}{4}$", "-3/4"),
        (r"2\frac{1}{2}", "5/2"),
        (r"\frac12", "1/2"),
        (r"25\text{ cm}^2", 25),
        (r"90^{\circ}", 90),
        (r"1.5 \times 10^{3}", 1500),
        # not read
        (r"\frac{\pi}{4}", None),
        (r"2\sqrt{3}", None),
        ("√16", None),
        ("2π", None),
        ("x/2", None),
        ("(3+4)^2", None),
        ("±5", None),
        ("0x1F", None),
    ]
)
def test_the_last_number_of_a_text(text: str, wanted: int | str | None) -> None:
    assert value(text) == (None if wanted is None else Fraction(wanted))


@for_each(
    [
        ("2024-05-17", (2024, 5, 17)),
        ("17.05.2024", (17, 5, 2024)),
        ("at 09:30", (9, 30)),
        ("3:1", (3, 1)),
        ("-3:1", None),
    ]
)
def test_dates_times_and_ratios_are_read_part_by_part(text: str, parts: Parts | None) -> None:
    assert value(text) == parts


@for_each(
    [("1.234", 1234), ("1,234", "1.234"), ("3.5", "3.5"), ("1.234,5", "1234.5"), ("1,234.5", "1234.5"), ("٣٫٥", "3.5")]
)
def test_with_a_decimal_comma(text: str, wanted: int | str) -> None:
    assert value(text, ",") == Fraction(wanted)


@given(st.integers(0, 10**12), st.sampled_from(", '_\u202f\u2009"), st.sampled_from(["", "-", "−"]))
def test_groups_of_three_are_read_with_every_separator(number: int, separator: str, sign: str) -> None:
    text = f"{sign}{number:,}".replace(",", separator)
    assert value(f"It is {text} km.") == (-number if sign else number)


@given(st.text("0123456789.,'/ :-^_{}\\eE+½²٤$万fracsqrtx", max_size=40))
def test_any_text_is_read_or_not(text: str) -> None:
    last_number(text)


def test_reading_takes_time_in_proportion_to_the_text() -> None:
    pieces = ["1,", "1 000 ", "^{", r"\sqrt{", r"\frac{1}", "1/", "½ ", "- ", "{}", "x_", "万1", "~", "9", "**1", "(1,"]
    for piece in pieces:
        started = time.process_time()
        with suppress(TutelageError):  # a number beyond the limit
            last_number(piece * (100_000 // len(piece)))
        assert time.process_time() - started < 2.0, piece


EXPONENTS = st.integers(-700, 700)


@given(st.fractions(), EXPONENTS, st.fractions(), EXPONENTS, st.floats(0, 0.99))
@example(Fraction(1), 400, Fraction(10), 399, 0.0)
def test_closeness_is_that_of_the_written_out_numbers(
    one: Fraction, a: int, other: Fraction, b: int, tolerance: float
) -> None:
    x, y = one * Fraction(10) ** a, other * Fraction(10) ** b
    near = abs(x - y) <= Fraction(tolerance) * abs(y)
    assert Number(one, a).is_near(Number(other, b), tolerance) == near
