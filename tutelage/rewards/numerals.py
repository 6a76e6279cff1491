r"""Numbers in text, by their value: the last one of a completion, in the notations of several languages and of LaTeX.

A *numeral* is the longest run of digits with what joins them: separators, a sign, a fraction, a power of ten. It is
read as a whole or not at all, never in part, and the last numeral of a text counts even if it cannot be read.

    1234  1,234  1 234  1'234  1_234  1{,}234  1\,234  12,34,567      groups; spaces may be narrow
    1,234.5  1.234,5  1 234,5                                         the last separator is the decimal mark
    0.5  .5  99,50  1/2  1 1/2  ½  1½  \frac{1}{2}                    a single separator: see below
    -3  −3  –3  = - 3  -$3                                            a minus sign belongs to the digits that touch it
    1e3  1.5·10^3  1.5 \times 10^{3}  10⁵  5 million                  powers of ten
    ٤٢  ४२  ４２                                                       decimal digits of every script
    10:30  2024-05-17  3:1  1.2.3  17/05/2024                         parts: equal part by part, not by value

A single separator is ambiguous before exactly three digits: `1.234` is 1.234 and `1,234` is 1234, and the reverse with
the decimal mark ",". What stands around a numeral is its unit and is not read: 42 %, 42 km, $42, 42cm² and 42k are 42.
A dash between digits separates two numbers (5-3 ends with 3), commas between three or more of at most two digits list
them (1,2,3 ends with 3), and so does a single comma in brackets ((3,4) and [3,4] end with 4). The asterisks of bold
text are not read (**42**), those of a power are (10**3). Digits within a name or an index are no numerals (v2, x_{12}).
Numerals that are not read: powers of other bases (4², 2^{10}), roots, π, ±5, 0x1F, x/2, other arguments of \frac,
groups of other sizes.
"""

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from tutelage.rewards.sandbox import LimitExceeded

DIGITS = 640
"""Maximum length of a numeral in characters, which Python parses under all its settings."""

Mark: TypeAlias = Literal[".", ","]
"""Decimal mark."""


@dataclass(frozen=True)
class Number:
    """Number ratio · 10^exponent. The power is never expanded, so 1e9999999999 is as cheap as 42."""

    ratio: Fraction
    exponent: int = 0

    def is_whole(self) -> bool:
        """Whether it is written as a whole number, without a power of ten."""
        return not self.exponent and self.ratio.denominator == 1

    def is_near(self, wanted: "Number", tolerance: float) -> bool:
        """|self − wanted| ≤ tolerance · |wanted|, exactly."""
        if not self.ratio or not wanted.ratio:
            return self.ratio == wanted.ratio
        shift = self.exponent - wanted.exponent
        if abs(shift) > 3 * DIGITS:  # exceeds both ratios, of at most DIGITS, and any tolerance below 1
            return False
        ratio = self.ratio * Fraction(10) ** shift
        return abs(ratio - wanted.ratio) <= Fraction(tolerance) * abs(wanted.ratio)


Parts: TypeAlias = tuple[int, ...]
"""Date, time, ratio or version."""


def last_number(text: str, mark: Mark = ".") -> Number | Parts | None:
    """Value of the last numeral of a text; None without one, and if it cannot be read.

    Raises LimitExceeded if it is longer than `DIGITS`.
    """
    last = None
    for match in _NUMERAL.finditer(_plain(text, mark)):
        if match.lastgroup != "name":
            last = match
    if last is None or last.lastgroup == "other":
        return None
    if last.end() - last.start() > DIGITS:
        raise LimitExceeded(f"The number {last[0][:20]} … is too long to be read.")
    return _value(last, mark)


def numerals_of(text: str) -> tuple[list[str], str]:
    """The numerals of a text, with one spelling of digits and separators, and the text around them."""
    plain = _plain(text, ".")
    matches = [match for match in _NUMERAL.finditer(plain) if match.lastgroup != "name"]
    starts, ends = [0, *(match.end() for match in matches)], [*(match.start() for match in matches), len(plain)]
    return [match[0] for match in matches], " ".join(plain[a:b] for a, b in zip(starts, ends, strict=True))


_LETTER = "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0370-\u052f"
"""Letters of scripts in which a digit beside a letter is part of a name; in others it may touch a word."""
_GROUP = r"\{(?:[^{}]|\{[^{}]*\})*\}"
_SCALES = {"hundred": 2, "thousand": 3, "lakh": 5, "million": 6, "crore": 7, "billion": 9, "trillion": 12}
_SCALES |= {"千": 3, "万": 4, "萬": 4, "億": 8, "亿": 8}
_TIMES = r"(?:[×·*xX]|\\times(?![A-Za-z])|\\cdot(?![A-Za-z]))"
_NUMERAL = re.compile(
    rf"""
    (?P<other>
        (?:±|\\pm(?![A-Za-z]))\s*\d*
        | (?:√|\\(?:[dtc]?frac|sqrt)(?![A-Za-z])) \s* (?:\[\w*\]\s*)? (?:{_GROUP}\s*){{0,2}}\w*
        | π | \\pi(?![A-Za-z]) | ∞ | \\infty(?![A-Za-z])
        | 0[xXbBo][0-9A-Fa-f]+
        | (?:/|(?<![A-Za-z]\}})\^)\s*[-+]?(?:{_GROUP}|\d\w*)
    )
    | (?P<name> \\[A-Za-z]+ | (?<=[A-Za-z]\}})[\^_](?:{_GROUP}|[-+]?\w+)
        | [{_LETTER}][0-9{_LETTER}]*(?:(?<=\d)(?:\.\d+)+)?(?:[\^_](?:{_GROUP}|[-+]?\w+))* )
    | (?P<number>
        (?P<sign>(?<![\d{_LETTER})\]}}%])[-+](?:[$€£¥₹]\s?)?)?
        (?: (?P<date>\d{{4}}-\d\d-\d\d)(?![\d-])
          | (?: (?P<whole>\d{{1,3}})[ ](?=\d+/\d+(?![\d/.,:])) )?
            (?P<body> (?: (?<!\d[ ])\d{{1,3}}(?:[ ]\d{{3}})+(?!\d) | \d+ | (?<![\d.])(?=\.\d) ) (?:[.,:/'_]\d+)* )
            (?: [eE](?P<exponent>[-+]?\d+)(?![0-9{_LETTER}])
              | [ ]?{_TIMES}[ ]?10(?:[ ]?\^[ ]?|\*\*|[ ]\*\*[ ])\{{?(?P<power>[-+]?\d+)\}}?
              | (?:\^[ ]?|\*\*)\{{?(?P<raised>[-+]?\d+)\}}?(?!\w)
              | (?P<unread> \^[ ]?(?:{_GROUP}|\S) | \*\*(?:{_GROUP}|[-+]?[\d({_LETTER}])
                  | (?:[千万萬億亿]\d+)+[千万萬億亿]? )
              | [ ]?(?P<scale> [千万萬億亿] | (?:hundred|thousand|lakh|million|crore|billion|trillion)(?![A-Za-z]) )
            )?
        )
    )
    """,
    re.VERBOSE,
)


def _value(numeral: re.Match[str], mark: Mark) -> Number | Parts | None:
    parts = numeral.groupdict(default="")
    if parts["date"]:
        return tuple(map(int, parts["date"].split("-")))
    if parts["unread"] or (parts["raised"] and parts["body"] != "10"):
        return None
    sign, body = -1 if parts["sign"].startswith("-") else 1, parts["body"]
    is_list = re.fullmatch(r"\d\d?(?:,\d\d?){2,}", body) or (
        mark == "." and re.fullmatch(r"\d+,\d+", body) and _is_in_brackets(numeral)
    )
    if is_list and not _GROUPED.fullmatch(body):
        sign, body = 1, body.rpartition(",")[2]  # a list, whose sign is that of its first number
    value = _ratio(body, mark)
    if value is None:
        is_plain = sign > 0 and not any(parts[name] for name in ("exponent", "power", "scale"))
        return tuple(map(int, re.split(r"\D", body))) if is_plain and _PARTS.fullmatch(body) else None
    if parts["whole"]:
        if value >= 1:
            return None
        value += int(parts["whole"])
    if parts["raised"]:
        return Number(Fraction(sign), int(parts["raised"]))
    return Number(sign * value, int(parts["exponent"] or parts["power"] or _SCALES.get(parts["scale"], 0)))


def _is_in_brackets(numeral: re.Match[str]) -> bool:
    """Whether brackets enclose the numeral alone, other than those of a command's argument."""
    start, end = numeral.span()
    before, after = numeral.string[max(0, start - 2) : start], numeral.string[end : end + 1]
    return after in tuple(")]}\\") and re.search(r"[(\[]$|(?<![A-Za-z])\{$", before) is not None


_PARTS = re.compile(r"\d+:\d+|\d+([.:/])\d+(?:\1\d+)+")
_GROUPED = re.compile(r"([1-9]\d?(?:,\d\d)*|[1-9]\d{0,2}(?:,\d{3})*),\d{3}")


def _ratio(body: str, mark: Mark) -> Fraction | None:
    """Value of a decimal number, or of a fraction of two."""
    over, _, under = body.partition("/")
    numbers = _decimal(over, mark), _decimal(under or "1", mark)
    return None if numbers[0] is None or not numbers[1] else numbers[0] / numbers[1]


def _decimal(text: str, mark: Mark) -> Fraction | None:
    """Value of digits with separators. The first notation that fits decides."""
    other = "," if mark == "." else "."
    head, last = r"[1-9]\d{0,2}", rf"(?P<rest>[{mark}{other}]\d+)?"
    notations = (
        rf"(?P<whole>\d*)(?P<rest>{re.escape(mark)}\d+)?",
        rf"(?P<whole>{head}(?P<group>[., '_])\d{{3}}(?:(?P=group)\d{{3}})*)(?:(?!(?P=group)){last})",
        r"(?P<whole>[1-9]\d?(?:,\d\d)+,\d{3})(?P<rest>\.\d+)?",
        rf"(?P<whole>\d+)(?P<rest>{re.escape(other)}\d+)",
    )
    match = next((match for match in (re.fullmatch(notation, text) for notation in notations) if match), None)
    if match is None or not text:
        return None
    whole, rest = re.sub(r"\D", "", match["whole"]), (match["rest"] or ".0")[1:]
    return Fraction(f"{whole or 0}.{rest}")


_CHARACTERS = str.maketrans(
    dict.fromkeys("−‐‑–﹣－", "-")
    | dict.fromkeys("\u00a0\u202f\u2009\u2007\u200a\u3000", " ")
    | dict.fromkeys("’ʼ＇", "'")
    | dict.fromkeys("⁄∕／", "/")
    | {"．": ".", "，": ",", "：": ":", "＋": "+", "＾": "^", "＝": "=", "＄": "$"}
)
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_FRACTION = re.compile(r"\\[dtc]?frac\s*(?:\{\s*(-?[\d.,]+)\s*\}|(\d))\s*(?:\{\s*([\d.,]+)\s*\}|(\d))")


def _plain(text: str, mark: Mark) -> str:
    """Text with one spelling of digits, signs, separators, fractions and powers."""
    if not text.isascii():
        text = re.sub(r"[¼-¾⅐-⅞↉]", lambda match: " " + unicodedata.normalize("NFKC", match[0]), text)
        text = re.sub(r"(?<=\d) +(?=\d+⁄)", " ", re.sub(r"(?<!\d) (?=\d+⁄)", "", text))
        text = re.sub(r"[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+", lambda match: f"^{{{match[0].translate(_SUPERSCRIPTS)}}}", text)
        text = with_ascii_digits(text.translate(_CHARACTERS), mark)
    if "\\" in text or "{,}" in text or "~" in text:
        text = re.sub(r"\\[,;: ]|~", " ", text.replace("{,}", ",").replace(r"\!", "").replace(r"\$", "$"))
        text = re.sub(r"\^\s*(?:\\circ|\{\s*\\circ\s*\})", "°", text)
        text = _FRACTION.sub(_fraction, text)
    return re.sub(r"(?<=[=≈({])( ?[-+])\s+(?=[$.\d])", r"\1", text)


def with_ascii_digits(text: str, mark: Mark = ".") -> str:
    """Text with the decimal digits of every script as 0 to 9, and their separators as those of `mark`."""
    text = text.replace("٫", mark).replace("٬", "," if mark == "." else ".")
    return re.sub(r"[^\D0-9]", lambda match: str(unicodedata.decimal(match[0])), text)


def _fraction(match: re.Match[str]) -> str:
    r"""a/b for \frac{a}{b}; after a digit, a mixed number. Unchanged after a sign, if it has one of its own."""
    over, under = match[1] or match[2], match[3] or match[4]
    before = match.string[: match.start()].rstrip()[-1:] if match.start() else ""
    if over.startswith("-") and before in ("-", "+"):
        return match[0]
    return f" {over}/{under}" if before.isdigit() else f"{over}/{under}"
