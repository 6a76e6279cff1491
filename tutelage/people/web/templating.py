"""Jinja environments per language, with translations and formats of numbers and dates."""

import json
from functools import cache, partial
from pathlib import Path
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from tutelage.base.version import __version__
from tutelage.people.kinds import KINDS
from tutelage.people.languages import LANGUAGES, catalogue, say
from tutelage.people.web.prefix import Rooted
from tutelage.people.web.render import render
from tutelage.people.web.words import filters

TEMPLATES = Path(__file__).parent / "templates"


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
    environment.globals["script_words"] = _embedded(catalogue.script_words(language))
    return environment


def _question(text: str, language: str) -> str:
    """The question of a study: translated if it is a standard one, an owner's own unchanged."""
    standard = {str(kind.traits.question): kind.traits.question for kind in KINDS.values()}
    return say(standard.get(text, text), language)


def _mailto(subject: str, *paragraphs: str) -> str:
    """A mailto address with subject and body, percent-encoded with CR LF line ends (RFC 6068)."""
    text = "".join(f"{quote(line, safe='')}%0D%0A" for line in "\n\n".join(paragraphs).split("\n"))
    return f"mailto:?subject={quote(subject, safe='')}&body={text}"


def _embedded(words: object) -> Markup:
    """JSON that is safe inside a script element."""
    return Markup(json.dumps(words, ensure_ascii=False).replace("<", "\\u003c"))
