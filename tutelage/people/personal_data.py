"""Detection and redaction of likely personal data: e-mail addresses, numbers, names and street addresses.

Telephone numbers are detected by Google's libphonenumber (`phonenumbers`), account and card numbers by their check
digits (`python-stdnum`). Names and street addresses have no checksum: they are detected in a few phrases ("my name is
…", "12 Baker Street"), and names of raters by exact spelling. Findings are hints: there are false positives and false
negatives.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from tutelage.base.extras import missing
from tutelage.people.images import image_spots
from tutelage.people.languages import Sentence, counted

Spot: TypeAlias = tuple[int, int]
Finder: TypeAlias = Callable[[str], Iterable[Spot]]

KINDS: Mapping[str, tuple[Sentence, Callable[[int], Sentence]]] = {
    "email": (
        Sentence("e-mail address"),
        lambda n: counted("%(count)s e-mail address", "%(count)s e-mail addresses", count=n),
    ),
    "phone": (
        Sentence("telephone number"),
        lambda n: counted("%(count)s telephone number", "%(count)s telephone numbers", count=n),
    ),
    "iban": (
        Sentence("account number (IBAN)"),
        lambda n: counted("%(count)s account number (IBAN)", "%(count)s account numbers (IBAN)", count=n),
    ),
    "card": (Sentence("card number"), lambda n: counted("%(count)s card number", "%(count)s card numbers", count=n)),
    "ip": (Sentence("IP address"), lambda n: counted("%(count)s IP address", "%(count)s IP addresses", count=n)),
    "name": (Sentence("name"), lambda n: counted("%(count)s name", "%(count)s names", count=n)),
    "address": (
        Sentence("street address"),
        lambda n: counted("%(count)s street address", "%(count)s street addresses", count=n),
    ),
}
"""The kinds of personal data, each with its name and its name with a count."""
REGIONS = ("DE", "US", "GB", "ES", "CN", "EG", "SA")
"""Regions whose national telephone numbers are detected; numbers that begin with + can be of any region."""

_AT_DOMAIN = re.compile(r"@(?:[^\W_](?:[\w-]*[^\W_])?\.)+[^\W\d_]{2,24}")
_LOCAL_PART = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]+")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?:[ ]?[A-Z0-9]{4}){2,7}(?:[ ]?[A-Z0-9]{1,3})?\b")
_CARD = re.compile(r"(?<![\d.,-])\d(?:[ -]?\d){12,18}(?![\d.,-]*\d)")
_IP = re.compile(r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7})(?![\w:]|\.\d)")
_IN_TEXT = re.compile(r"(?:section|version|chapter|kapitel|abschnitt|sección|capítulo|§|v)\s*$", re.I)
_WORD = r"[^\W\d_a-z][^\W\d_]*(?:[-'’][^\W\d_]+)*"
_SAID = re.compile(
    r"(?:\b(?i:my name is|i am called|mein name ist|ich hei(?:ß|ss)e|me llamo|mi nombre es)\s+)"
    rf"({_WORD}(?:\s+{_WORD}){{0,3}})"
    r"|(?:我叫|我的名字是|我姓)([\u4e00-\u9fff]{2,4}?)(?=[，。,. !！]|$)"
    r"|(?:\bاسمي)\s+([\u0621-\u064a]+(?:\s+[\u0621-\u064a]+)?)"
)
_STREET = re.compile(
    rf"\b\d{{1,5}}[A-Za-z]?\s+(?:{_WORD}\s+){{1,3}}"
    r"(?:Street|St\.|Road|Rd\.|Avenue|Ave\.|Lane|Drive|Boulevard|Square|Court)\b"
    r"|\b[^\W\d_]*(?:straße|strasse|str\.|gasse|allee|platz|damm|ufer)\s+\d{1,4}\s?[a-z]?\b(?:,\s*\d{5}\s+[^\W\d_]+)?"
    rf"|\b(?:[Cc]alle|[Aa]venida|[Pp]laza|[Pp]aseo)\s+(?:(?:de|del|la|las|los)\s+)*"
    rf"{_WORD}(?:\s+{_WORD})?,?\s+(?:n\.?º\s*)?\d{{1,4}}\b"
)


@dataclass(frozen=True)
class Finding:
    """Personal data in a text, from `start` to `end`; `kind` is one of `KINDS`."""

    kind: str
    start: int
    end: int


class PersonalDataSearch:
    """A search for personal data. `names` are names to detect. Raises MissingExtra if the libraries of the extra
    `collect` are not installed."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        _libraries()
        # Short names ("Al", "May") would match words in many texts.
        longest_first = sorted({name for name in names if len(name) > 3}, key=len, reverse=True)
        alternatives = "|".join(map(re.escape, longest_first))
        self._names = re.compile(rf"(?<!\w)(?:{alternatives})(?!\w)") if longest_first else None
        self._finders: Mapping[str, Finder] = {
            "email": _emails,
            "iban": _ibans,
            "card": _cards,
            "ip": _addresses,
            "phone": _phones,
            "address": lambda text: (match.span() for match in _STREET.finditer(text)),
            "name": self._all_names,
        }

    def find(self, text: str) -> tuple[Finding, ...]:
        """Likely personal data in a text, in order of position, without overlaps; addresses of images aside."""
        findings, start = list[Finding](), 0
        for end, following in (*image_spots(text), (len(text), len(text))):
            inner = self._find(text[start:end])
            findings += (Finding(each.kind, each.start + start, each.end + start) for each in inner)
            start = following
        return tuple(findings)

    def _find(self, text: str) -> tuple[Finding, ...]:
        findings: list[Finding] = []
        for kind, finder in self._finders.items():
            for start, end in finder(text):
                if all(end <= each.start or each.end <= start for each in findings):
                    findings.append(Finding(kind, start, end))
        return tuple(sorted(findings, key=lambda each: each.start))

    def redact(self, text: str) -> str:
        """The text with each finding replaced by `[email]`, `[phone]`, …"""
        return replace_findings(text, self.find(text))

    def _all_names(self, text: str) -> Iterator[Spot]:
        for match in _SAID.finditer(text):
            yield match.span(match.lastindex or 0)
        if self._names is not None:
            yield from (match.span() for match in self._names.finditer(text))


def replace_findings(text: str, findings: Sequence[Finding]) -> str:
    """Replace each finding by its kind in brackets."""
    parts, position = [], 0
    for each in findings:
        parts += [text[position : each.start], f"[{each.kind}]"]
        position = each.end
    return "".join((*parts, text[position:]))


def move_position(position: int, findings: Sequence[Finding], *, end: bool = False) -> int:
    """The position in the text after `replace_findings`. A position within a finding maps to the start of its
    replacement, or with `end` to its end."""
    shift = 0
    for each in findings:
        size = len(each.kind) + 2
        if each.end <= position:
            shift += size - (each.end - each.start)
        elif each.start < position:
            return each.start + shift + (size if end else 0)
    return position + shift


@cache
def _libraries() -> None:
    """Import the libraries for the search. Raises MissingExtra if one is not installed."""
    try:
        import phonenumbers  # noqa: F401
        import stdnum.iban
        import stdnum.luhn  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing(error, "Looking for personal data") or error from error


def _emails(text: str) -> Iterator[Spot]:
    """Searches backwards from each @ with a domain: a forward search takes quadratic time on long words."""
    position = 0
    for match in _AT_DOMAIN.finditer(text):
        local = _LOCAL_PART.match(text[position : match.start()][::-1])
        if local:
            position = match.end()
            yield match.start() - local.end(), match.end()


def _phones(text: str) -> Iterator[Spot]:
    import phonenumbers

    text = _SLASHED.sub(lambda match: "x" * len(match[0]), text)
    if not _DIGITS.search(text):
        return
    for region in (None, *REGIONS):
        for match in phonenumbers.PhoneNumberMatcher(text, region):
            before, after = text[: match.start][-2:], text[match.end :][:2]
            calculated = _CALCULATION.search(before) or _CALCULATION.search(after)
            if region is None or (_GROUPED.search(match.raw_string) and not calculated):
                yield match.start, match.end


_DIGITS = re.compile(r"\d(?:[ ()/.-]{0,3}\d){6}")
_SLASHED = re.compile(r"(?:\b\d/){8,}")
"""Digits between slashes, in no telephone number; libphonenumber takes a second for ten thousand characters of them."""
_CALCULATION = re.compile(r"[=*/^×·+\d<>]|[.,]\d|\d[.,]")
_GROUPED = re.compile(r"\d[ ()/-]+\d")
"""National numbers are detected only if grouped: other digit sequences are likely not telephone numbers."""


def _ibans(text: str) -> Iterator[Spot]:
    from stdnum import iban

    for match in _IBAN.finditer(text):
        # The match may include subsequent words in capitals.
        words = match[0].split(" ")
        for count in range(len(words), 0, -1):
            part = " ".join(words[:count])
            if iban.is_valid(part):
                yield match.start(), match.start() + len(part)
                break


def _cards(text: str) -> Iterator[Spot]:
    from stdnum import luhn

    for match in _CARD.finditer(text):
        digits = re.sub(r"\D", "", match[0])
        if digits[0] in "3456" and len(digits) in (14, 15, 16, 19) and luhn.is_valid(digits):
            yield match.span()


def _addresses(text: str) -> Iterator[Spot]:
    for match in _IP.finditer(text):
        whole = match[0].count(".") == 3 or (match[0].count(":") > 2 and len(match[0]) > 6)
        try:
            ipaddress.ip_address(match[0])
        except ValueError:
            continue
        if whole and not _IN_TEXT.search(text[: match.start()]):
            yield match.span()
