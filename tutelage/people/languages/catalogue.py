"""Catalogues of translations, and formats of dates and numbers.

Catalogues are gettext files, `LANGUAGE.po` in this package, read once per process. Scripts get the
messages of the same catalogue whose source location is a script.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from babel.core import Locale
from babel.dates import format_date
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from babel.numbers import format_decimal, format_percent
from babel.support import NullTranslations, Translations

from tutelage.base.sentences import Sentence, Share
from tutelage.people.validation import FieldError

FOLDER = Path(__file__).parent
ENGLISH = "en"
SAMPLES = (*range(201), 1_000_000)
"""Numbers that cover each plural form of each language."""


@dataclass(frozen=True)
class Language:
    """A language of the interface: its code in settings, its own name, and the language `tag` of pages."""

    code: str
    name: str
    tag: str

    @property
    def locale(self) -> Locale:
        return Locale.parse(self.tag, sep="-")

    @property
    def direction(self) -> str:
        """`ltr` or `rtl`."""
        return str(self.locale.text_direction)


LANGUAGES: Mapping[str, Language] = {
    each.code: each
    for each in (
        Language(ENGLISH, "English", "en"),
        Language("de", "Deutsch", "de"),
        Language("es", "Español", "es"),
        Language("zh", "简体中文", "zh-Hans"),
        Language("ar", "العربية", "ar"),
    )
}


def check_languages(codes: Sequence[str]) -> None:
    """Raises FieldError unless the codes are at least one of `LANGUAGES`, each once."""
    unknown = next((code for code in codes if code not in LANGUAGES), None)
    if unknown is not None:
        names = ", ".join(f"{each.code} ({each.name})" for each in LANGUAGES.values())
        raise FieldError(
            "language",
            "There is no language '%(code)s' here; a study is asked in %(known)s.",
            code=unknown[:50],
            known=names,
        )
    if not codes or len(set(codes)) != len(codes):
        raise FieldError("language", "A study is asked in at least one language; name each once, the usual one first.")


def choose_language(offered: Sequence[str], wanted: Sequence[str]) -> str:
    """The first wanted language that is offered, else the first offered one. If `offered` is empty, all languages
    are."""
    among = tuple(offered) or tuple(LANGUAGES)
    return next((code for code in wanted if code in among), among[0])


@cache
def catalogue(language: str) -> Catalog:
    """The catalogue of a language other than English."""
    with (FOLDER / f"{language}.po").open("rb") as file:
        return read_po(file, locale=LANGUAGES[language].tag.replace("-", "_"), abort_invalid=True)


@cache
def translations(language: str) -> NullTranslations:
    """The catalogue as gettext translations; for English, messages are unchanged."""
    if language == ENGLISH:
        return NullTranslations()
    compiled = io.BytesIO()
    write_mo(compiled, catalogue(language))
    compiled.seek(0)
    return Translations(compiled)


def say(text: str, language: str) -> str:
    """Translate a `Sentence`; other texts are returned unchanged."""
    if not isinstance(text, Sentence):
        return text
    messages = translations(language)
    values = {name: _said(value, language) for name, value in text.values.items()}
    if text.many:
        count = text.values["count"]
        assert isinstance(count, int), "counted() takes a number"
        return str(messages.ngettext(text.message, text.many, count)) % values
    message = str(messages.gettext(text.message))
    return message % values if values else message


def _said(value: object, language: str) -> object:
    """A value of a sentence, formatted in the language."""
    if isinstance(value, Share):
        return percent(float(value), value.digits, language)
    if isinstance(value, int):
        return number(value, language)
    if isinstance(value, float):
        return format_decimal(value, "#,##0.######", LANGUAGES[language].locale, numbering_system="latn")
    return say(value, language) if isinstance(value, str) else value


def percent(value: float, digits: int, language: str) -> str:
    """A share as a percentage in the format of the language."""
    if language == ENGLISH:
        return f"{value:.{digits}%}".replace("%", "\N{NARROW NO-BREAK SPACE}%")
    pattern = LANGUAGES[language].locale.percent_formats[None].pattern
    pattern = pattern.replace("#,##0", "#,##0." + "0" * digits) if digits else pattern
    return format_percent(value, pattern, locale=LANGUAGES[language].locale, numbering_system="latn")


def number(value: float, language: str) -> str:
    """A whole number with the separators of the language, in Western Arabic digits."""
    return format_decimal(round(value), locale=LANGUAGES[language].locale, numbering_system="latn")


def date(milliseconds: int, language: str) -> str:
    """The date of a time, in the long format of the language."""
    day = datetime.fromtimestamp(milliseconds / 1000, UTC).date()
    return format_date(day, "long", LANGUAGES[language].locale)


@cache
def script_words(language: str) -> Mapping[str, object]:
    """The translated messages of scripts by their English text, plural messages as lists of forms, and the index of the
    form of each plural category (`Intl.PluralRules`)."""
    if language == ENGLISH:
        return {"messages": {}, "forms": {}}
    messages = {
        message.id[0] if message.pluralizable else message.id: message.string
        for message in catalogue(language)
        if any(path.endswith(".js") for path, _ in message.locations)
    }
    words = translations(language)
    category = LANGUAGES[language].locale.plural_form
    forms = {category(n): words.plural(n) for n in reversed(SAMPLES)}
    return {"messages": messages, "forms": forms}
