"""The language of a page: what the rater chose here before, what the browser asks for, what the study offers."""

from collections.abc import Iterable

from starlette.requests import Request

from tutelage.people.languages import LANGUAGES

COOKIE = "tutelage_language"
_YEAR = 365 * 86_400


def wanted_languages(request: Request) -> tuple[str, ...]:
    """The languages that whoever asks would like, the best first: the own choice, then those of the browser."""
    own = request.cookies.get(COOKIE, "")
    return tuple(filter(LANGUAGES.__contains__, (own, *accepted(request.headers.get("accept-language", "")))))


def accepted(header: str) -> Iterable[str]:
    """The languages of a header Accept-Language without their regions, the best first: "de-CH, en;q=0.5" as de, en."""
    ranges = []
    for place, part in enumerate(header[:500].split(",")):
        tag, _, quality = part.partition(";")
        try:
            weight = float(quality.partition("=")[2]) if quality else 1.0
        except ValueError:
            weight = 0.0
        if weight > 0:
            ranges.append((-weight, place, tag.strip().lower().partition("-")[0]))
    return [code for _, _, code in sorted(ranges)]


def language_cookie(code: str, *, secure: bool) -> str:
    """The value of Set-Cookie that remembers the choice."""
    return f"{COOKIE}={code}; Path=/; Max-Age={_YEAR}; HttpOnly; SameSite=Lax{'; Secure' if secure else ''}"
