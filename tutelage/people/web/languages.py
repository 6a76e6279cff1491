"""The language of a page: the rater's choice, the browser's preference, the languages of the study."""

from collections.abc import Iterable

from starlette.requests import Request

from tutelage.people.languages import LANGUAGES

COOKIE = "tutelage_language"
_YEAR = 365 * 86_400


def wanted_languages(request: Request) -> tuple[str, ...]:
    """The preferred languages of the client, best first: the saved choice, then Accept-Language."""
    own = request.cookies.get(COOKIE, "")
    return tuple(filter(LANGUAGES.__contains__, (own, *accepted(request.headers.get("accept-language", "")))))


def accepted(header: str) -> Iterable[str]:
    """The languages of an Accept-Language header without regions, best first: "de-CH, en;q=0.5" gives de, en."""
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
    """The value of a Set-Cookie header that remembers the choice."""
    return f"{COOKIE}={code}; Path=/; Max-Age={_YEAR}; HttpOnly; SameSite=Lax{'; Secure' if secure else ''}"
