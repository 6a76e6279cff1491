"""The language of a page (the rater's choice, the browser's preference, the languages of the study), and Jinja
environments per language, with translations and formats of numbers and dates.

Templates and redirects are written for a site at the root. `Rooted` adds the prefix to the addresses of a template when
it is loaded, `rooted` to a redirect; scripts derive it from their own address.
"""

import json
import re
from collections.abc import Iterable
from functools import cache, partial
from pathlib import Path
from urllib.parse import quote

import jinja2
from jinja2.ext import Extension
from markupsafe import Markup
from starlette.requests import Request

from tutelage.base.version import __version__
from tutelage.people.kinds import KINDS
from tutelage.people.languages import LANGUAGES, catalogue, say
from tutelage.people.web.render import render
from tutelage.people.web.words import filters

COOKIE = "tutelage_language"
_YEAR = 365 * 86_400
TEMPLATES = Path(__file__).parent / "templates"
_FIXED = re.compile(r'\b(href|src|action|formaction)="/(?!/)')
_COMPUTED = re.compile(r'\b(href|src|action|formaction)="\{\{ ([^{}]+?) \}\}')


class Rooted(Extension):
    """Jinja extension that prefixes addresses: `href="/owner"` becomes `href="{{ root }}/owner"`, and expressions pass
    through the filter `rooted`. `root` is a global of the environment."""

    def __init__(self, environment: jinja2.Environment) -> None:
        super().__init__(environment)
        environment.globals["root"] = ""
        environment.filters["rooted"] = lambda address: rooted(str(environment.globals["root"]), str(address))

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        source = _COMPUTED.sub(r'\1="{{ (\2) | rooted }}', source)
        return _FIXED.sub(r'\1="{{ root }}/', source)


def rooted(root: str, address: str) -> str:
    """The address below the root if it belongs to this site, otherwise unchanged."""
    return root + address if address.startswith("/") and not address.startswith("//") else address


@cache
def templates(language: str, root: str = "") -> jinja2.Environment:
    """The environment for a language and the root of a site; cached."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n", Rooted],
    )
    environment.policies["ext.i18n.trimmed"] = True
    words = catalogue.translations(language)
    environment.install_gettext_callables(words.gettext, words.ngettext, newstyle=True)  # type: ignore[attr-defined]  # of the extension
    environment.filters.update(filters(language))
    environment.filters["markdown"] = partial(render, language=language)
    environment.filters["say"] = partial(say, language=language)
    environment.filters["question"] = partial(_question, language=language)
    environment.filters["count"] = partial(catalogue.number, language=language)
    environment.filters["date"] = partial(catalogue.date, language=language)
    environment.globals |= {"version": __version__, "root": root, "mailto": _mailto}
    environment.globals["language"] = LANGUAGES[language]
    script_json = json.dumps(catalogue.script_words(language), ensure_ascii=False)
    environment.globals["script_words"] = Markup(script_json.replace("<", "\\u003c"))  # safe inside a script element
    return environment


def _question(text: str, language: str) -> str:
    """The question of a study: translated if it is a standard one, an owner's own unchanged."""
    standard = {str(kind.traits.question): kind.traits.question for kind in KINDS.values()}
    return say(standard.get(text, text), language)


def _mailto(subject: str, *paragraphs: str) -> str:
    """A mailto address with subject and body, percent-encoded with CR LF line ends (RFC 6068)."""
    text = "".join(f"{quote(line, safe='')}%0D%0A" for line in "\n\n".join(paragraphs).split("\n"))
    return f"mailto:?subject={quote(subject, safe='')}&body={text}"


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
