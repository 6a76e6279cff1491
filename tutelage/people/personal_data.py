"""Personal data in texts: likely e-mail addresses, numbers, names and street addresses, and texts without them.

Telephone numbers are Google's libphonenumber's (`phonenumbers`), account and card numbers are those whose check digits
are right (`python-stdnum`). Names and street addresses have no such check: they are found where somebody says them in
one of a few ways ("my name is …", "12 Baker Street"), and names of raters where they are spelled as the study has them.
What is found is a hint, and what is not found may be there all the same.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from tutelage.base.extras import missing
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
    "card": (
        Sentence("card number"),
        lambda n: counted("%(count)s card number", "%(count)s card numbers", count=n),
    ),
    "ip": (
        Sentence("IP address"),
        lambda n: counted("%(count)s IP address", "%(count)s IP addresses", count=n),
    ),
    "name": (Sentence("name"), lambda n: counted("%(count)s name", "%(count)s names", count=n)),
    "address": (
        Sentence("street address"),
        lambda n: counted("%(count)s street address", "%(count)s street addresses", count=n),
    ),
}
"""The kinds of personal data: what one is called, and what so many are."""
REGIONS = ("DE", "US", "GB", "ES", "CN", "EG", "SA")
"""The regions whose national telephone numbers are known; numbers that begin with + are of any region."""

_AT_DOMAIN = re.compile(r"@(?:[^\W_](?:[\w-]*[^\W_])?\.)+[^\W\d_]{2,24}")
_LOCAL_PART = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]+")
_IBAN = re.compile(r"\b[A-Z]{2}\d{2}(?:[ ]?[A-Z0-9]{4}){2,7}(?:[ ]?[A-Z0-9]{1,3})?\b")
_CARD = re.compile(r"(?<![\d.,-])\d(?:[ -]?\d){12,18}(?![\d.,-]*\d)")
_IP = re.compile(
    r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-fA-F]{0,4}(?::[0-9a-fA-F]{0,4}){2,7})(?![\w:]|\.\d)"
)
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
    """A search for personal data. `names` are names that are known.

    Raises:
        MissingExtra: the libraries of the extra `collect` are not installed.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        _libraries()
        # A name of one short word ("Al", "May") would be found in half of all texts.
        known = sorted({name for name in names if len(name) > 3}, key=len, reverse=True)
        listed = "|".join(map(re.escape, known))
        self._names = re.compile(rf"(?<!\w)(?:{listed})(?!\w)") if known else None
        self._finders: Mapping[str, Finder] = {
            "email": _emails,
            "iban": _ibans,
            "card": _cards,
            "ip": _addresses,
            "phone": _phones,
            "address": lambda text: (found.span() for found in _STREET.finditer(text)),
            "name": self._all_names,
        }

    def find(self, text: str) -> tuple[Finding, ...]:
        """What the text seems to hold, from its beginning to its end; no two findings overlap."""
        found: list[Finding] = []
        for kind, finder in self._finders.items():
            for start, end in finder(text):
                if all(end <= each.start or each.end <= start for each in found):
                    found.append(Finding(kind, start, end))
        return tuple(sorted(found, key=lambda each: each.start))

    def redact(self, text: str) -> str:
        """The text with `[email]`, `[phone]`, … in place of what was found."""
        return replace_findings(text, self.find(text))

    def _all_names(self, text: str) -> Iterator[Spot]:
        for said in _SAID.finditer(text):
            yield said.span(said.lastindex or 0)
        if self._names is not None:
            yield from (found.span() for found in self._names.finditer(text))


def replace_findings(text: str, findings: Sequence[Finding]) -> str:
    """The text with the kind of each finding in its place."""
    parts, done = [], 0
    for each in findings:
        parts += [text[done : each.start], f"[{each.kind}]"]
        done = each.end
    return "".join((*parts, text[done:]))


def move_position(position: int, findings: Sequence[Finding], *, end: bool = False) -> int:
    """Where a position of a text lies after `replaced`; one within a finding goes to its beginning, or to its `end`."""
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
    """Import what is searched with, or say which extra is missing."""
    try:
        import phonenumbers  # noqa: F401
        import stdnum.iban
        import stdnum.luhn  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing(error, "Looking for personal data") or error from error


def _emails(text: str) -> Iterator[Spot]:
    """From each @ with a domain backwards: a search forwards would begin at every letter of a long word."""
    done = 0
    for found in _AT_DOMAIN.finditer(text):
        local = _LOCAL_PART.match(text[done : found.start()][::-1])
        if local:
            done = found.end()
            yield found.start() - local.end(), found.end()


def _phones(text: str) -> Iterator[Spot]:
    import phonenumbers

    if not _DIGITS.search(text):
        return
    for region in (None, *REGIONS):
        for match in phonenumbers.PhoneNumberMatcher(text, region):
            before, after = text[: match.start][-2:], text[match.end :][:2]
            calculated = _CALCULATION.search(before) or _CALCULATION.search(after)
            if region is None or (_GROUPED.search(match.raw_string) and not calculated):
                yield match.start, match.end


_DIGITS = re.compile(r"\d(?:[ ()/.-]{0,3}\d){6}")
_CALCULATION = re.compile(r"[=*/^×·+\d<>]|[.,]\d|\d[.,]")
_GROUPED = re.compile(r"\d[ ()/-]+\d")
"""A national number without any grouping is as likely a number of something else."""


def _ibans(text: str) -> Iterator[Spot]:
    from stdnum import iban

    for found in _IBAN.finditer(text):
        # What follows in capitals may have been taken for a part of it.
        words = found[0].split(" ")
        for count in range(len(words), 0, -1):
            part = " ".join(words[:count])
            if iban.is_valid(part):
                yield found.start(), found.start() + len(part)
                break


def _cards(text: str) -> Iterator[Spot]:
    from stdnum import luhn

    for found in _CARD.finditer(text):
        digits = re.sub(r"\D", "", found[0])
        if digits[0] in "3456" and len(digits) in (14, 15, 16, 19) and luhn.is_valid(digits):
            yield found.span()


def _addresses(text: str) -> Iterator[Spot]:
    for found in _IP.finditer(text):
        whole = found[0].count(".") == 3 or (found[0].count(":") > 2 and len(found[0]) > 6)
        try:
            ipaddress.ip_address(found[0])
        except ValueError:
            continue
        if whole and not _IN_TEXT.search(text[: found.start()]):
            yield found.span()
