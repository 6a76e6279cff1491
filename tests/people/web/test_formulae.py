"""Formulae: shown whole, or as they were written; never in part."""

from hypothesis import given
from hypothesis import strategies as st
from offenders import for_each

from tutelage.people.web.formulae import to_mathml
from tutelage.people.web.render import render, sanitise

from .test_render import Reader, assert_harmless


def shown(source: str) -> str:
    """A formula of its own line as a page has it."""
    return sanitise(to_mathml(source, block=True))


def rows_of(html: str) -> list[list[str]]:
    """The cells of the only table of a formula as texts."""
    assert html.count("<mtable") == 1
    rows = html.split("<mtr>")[1:]
    return [[Reader(f"<mtd{cell}").text for cell in row.split("<mtd")[1:]] for row in rows]


@for_each(
    [
        *("$x^2$", "$$x^2$$", r"\(x^2\)", r"\[x^2\]", "\\[\nx^2\n\\]", r"so \[x^2\] it is"),
        *("- one\n- $x^2$", "| $x^2$ |\n|-|\n| y |"),
    ]
)
def test_formulae_of_every_delimiter_become_mathml(text: str) -> None:
    html = render(text)
    assert "<msup><mi>x</mi><mn>2</mn></msup>" in html
    assert html.count("<math") == 1


@for_each(["It costs $5 or $10.", "from $1 to $2, not $3", r"a \( b", r"\[ open", "$", "$$", "a$b"])
def test_money_and_lone_marks_are_no_formulae(text: str) -> None:
    found = Reader(render(text))
    assert "math" not in found.tags
    assert found.text.strip().replace("\\", "") == text.replace("\\", "")


@for_each(
    [
        *("x" * 3_000, r"\frac{1", "{", r"\left(", r"\begin{matrix}", "&&&", "^", "\\\\", r"\foo{x}", r"\ce{H2O}"),
        *(r"\newcommand{\a}{b} \a", r"\def\a{\a\a}\a", r"\mathop{x}", r"\limits_x", r"\text{if $x$}", r"\text{a & b}"),
        *(r"\begin{alignedat}{2} a &= b \end{alignedat}", r"\href{a}{b}", r"\unicode{x41}", r"\hline", r"a & b"),
        *("x_{1", r"\text{a", "x}", "}{", r"\{x}", r"\sqrt{x\}"),
    ]
)
def test_a_formula_of_which_anything_would_be_lost_is_shown_as_its_source(source: str) -> None:
    found = assert_harmless(shown(source))
    assert found.text == source
    assert found.tags == ["code"]
    assert_harmless(render(f"$${source}$$"))


@for_each(["align", "align*", "aligned", "split", "eqnarray*"])
def test_lines_are_aligned_at_their_signs(name: str) -> None:
    html = shown(rf"\begin{{{name}}} a &= b + c \\ &= d \end{{{name}}}")
    assert rows_of(html) == [["a", "=b+c"], ["", "=d"]]
    assert html.count('<mtd class="right">') == html.count('<mtd class="left">') == 2


@for_each(
    [r"a=b \\ c=d", *(rf"\begin{{{name}}} a=b \\ c=d \end{{{name}}}" for name in ("gather", "gathered", "multline*"))]
)
def test_lines_stay_lines(source: str) -> None:
    assert rows_of(shown(source)) == [["a=b"], ["c=d"]]


@for_each(
    [
        (r"\boxed{42}", '<mrow class="boxed"><mrow><mn>42</mn>'),
        (r"\cancel{x}", '<mrow class="struck"><mrow><mi>x</mi>'),
        (r"a \quad b", '<mspace width="1em">'),
        (r"\begin{array}{c|c} a & b \end{array}", '<mtd class="ruled-after"><mi>a</mi></mtd><mtd><mi>b</mi>'),
        (r"\begin{array}{c} a \\ \hline b \end{array}", '<mtd class="ruled-below"><mi>a</mi></mtd></mtr>'),
        (r"\lim_{x \to 0} f", "<munder><mo>lim</mo>"),
        (r"\arg\max_x f", "<mo>arg</mo><munder><mo>max</mo><mi>x</mi></munder>"),
        (r"\mathbb{1} + \boldsymbol{x}", ">\U0001d7d9</mn>"),
        (r"\boldsymbol{x}", ">\U0001d499</mi>"),
        (r"\mathscr{F}", ">\u2131</mi>"),
        (r"\text{50\% off}", ">50%&nbsp;off</mtext>"),
        (r"\label{eq:1} x", "<mi>x</mi>"),
    ]
)
def test_what_a_formula_says_is_seen(source: str, piece: str) -> None:
    html = shown(source)
    assert piece in html
    assert_harmless(html)


LATEX = [
    *"abxy012+-=(){}^_&",
    r"\\",
    r"\frac",
    r"\text{if }",
    r"\sqrt",
    r"\alpha",
    r"\foo",
    r"\left(",
    r"\right)",
    r"\%",
    r"\boxed",
]


@given(st.lists(st.sampled_from(LATEX), max_size=12))
def test_no_letter_or_digit_of_any_formula_is_lost(pieces: list[str]) -> None:
    """Each is seen as often as it is written, outside of the names of commands."""
    found = assert_harmless(shown(" ".join(pieces)))
    for character in "abxy012":
        assert found.text.count(character) >= pieces.count(character)


def test_words_in_formulae_are_shown_whatever_they_are() -> None:
    assert "<img src=x>" in Reader(render(r"$\text{<img src=x>}$")).text.replace("\xa0", " ")
