"""The templates, in each language: what they say, and how they write numbers and dates."""

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
    """The templates as a reader of the language sees them on a site at the root; made once for each."""
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n", Rooted],
    )
    found.policies["ext.i18n.trimmed"] = True
    words = catalogue.translations(language)
    found.install_gettext_callables(words.gettext, words.ngettext, newstyle=True)  # type: ignore[attr-defined]  # of the extension
    found.filters.update(filters(language))
    found.filters["markdown"] = partial(render, language=language)
    found.filters["say"] = partial(say, language=language)
    found.filters["question"] = partial(_question, language=language)
    found.filters["count"] = partial(catalogue.number, language=language)
    found.filters["date"] = partial(catalogue.date, language=language)
    found.globals |= {"version": __version__, "root": root, "mailto": _mailto}
    found.globals["language"] = LANGUAGES[language]
    found.globals["script_words"] = _embedded(catalogue.script_words(language))
    return found


def _question(text: str, language: str) -> str:
    """The question of a study: a standard one in the language, the owner's own as it was written."""
    standard = {str(kind.traits.question): kind.traits.question for kind in KINDS.values()}
    return say(standard.get(text, text), language)


def _mailto(subject: str, *paragraphs: str) -> str:
    """The address of a new mail with its subject and text: percent-encoded, lines end in CR LF, as RFC 6068 asks."""
    text = "".join(f"{quote(line, safe='')}%0D%0A" for line in "\n\n".join(paragraphs).split("\n"))
    return f"mailto:?subject={quote(subject, safe='')}&body={text}"


def _embedded(words: object) -> Markup:
    """JSON that can stand within an element script."""
    return Markup(json.dumps(words, ensure_ascii=False).replace("<", "\\u003c"))
