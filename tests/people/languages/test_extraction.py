"""Every message of the sources has a translation in every catalogue, which fills in the same values."""

import re
import string
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from babel.messages.catalog import Catalog, Message
from offenders import for_each

from tutelage.people.languages.catalogue import ENGLISH, LANGUAGES, catalogue
from tutelage.people.languages.extraction import PEOPLE, template
from tutelage.people.web.templating import NOUNS

OTHERS = [code for code in LANGUAGES if code != ENGLISH]
VALUE = re.compile(r"%\((\w+)\)s")
ALIKE = {"%(answered)s of %(quota)s", "Error", "Neutral", "Person", "neutral", "no"}
"""Messages that a translation may repeat as they are."""


class Tags(HTMLParser):
    """The elements of a text, in their order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not attrs
        self.seen.append(tag)


@pytest.fixture(scope="module")
def messages() -> Catalog:
    return template()


def forms(message: Message) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What stands in the sources, and its translations."""
    told = message.string if isinstance(message.string, tuple) else (str(message.string),)
    return (message.id if isinstance(message.id, tuple) else (str(message.id),)), tuple(map(str, told))


def translated(code: str) -> Iterator[Message]:
    return (message for message in catalogue(code) if message.id)


@for_each(OTHERS)
def test_a_catalogue_has_the_messages_of_the_sources_and_no_other(code: str, messages: Catalog) -> None:
    wanted = {message.id: {path for path, _ in message.locations} for message in messages if message.id}
    assert len(wanted) > 250
    found = {message.id: {path for path, _ in message.locations} for message in translated(code)}
    assert found == wanted, "run python -m tutelage.people.languages.extraction, and translate what is new"
    assert not [message.id for message in translated(code) if message.fuzzy]


@for_each(OTHERS)
def test_every_translation_is_complete_and_fills_in_the_same_values(code: str) -> None:
    for message in translated(code):
        said, told = forms(message)
        assert len(told) == (catalogue(code).num_plurals if message.pluralizable else 1), message.id
        wanted = set(VALUE.findall(said[-1]))
        for text in told:
            assert text.strip(), message.id
            found = set(VALUE.findall(text))
            # "one answer" may stand for "%(count)s answer": the number is in the word
            assert found == wanted or (
                message.pluralizable and found >= wanted - {"count", "shown"} and found <= wanted
            ), text
            assert set(text.replace("%(", "").split("%")[1:]) == set(), f"a bare % in {text}"
            assert sorted(Tags(text).seen) == sorted(Tags(said[-1]).seen)
            assert not {'"', "\t"} & set(text), "it may stand in an attribute"
        if message.pluralizable:
            assert set(VALUE.findall(told[-1])) == wanted


@for_each(OTHERS)
def test_nothing_is_left_in_english(code: str) -> None:
    letters = set(string.ascii_letters)
    same = {said[-1] for said, told in map(forms, translated(code)) if told[-1] == said[-1]}
    assert {text for text in same if letters & set(VALUE.sub("", text))} <= ALIKE


@pytest.mark.parametrize(
    ("code", "form"),
    [("de", re.compile(r"\b(du|dein\w*|dir|dich)\b", re.I)), ("es", re.compile(r"\b(tú|tus?|tienes|puedes)\b", re.I))],
)
def test_readers_are_addressed_politely(code: str, form: re.Pattern[str]) -> None:
    assert [text for message in translated(code) for text in forms(message)[1] if form.search(text)] == []


TEXT = re.compile(r"""(?<![\w/#.$])(["'`])(?=[A-Z(])(?!\(pointer)([^"'`\n]*?[a-z]{2,}[^"'`\n]*? [^"'`\n]*?)\1""")
"""A string in a script that begins like a sentence and has a space."""


def test_scripts_say_nothing_that_is_not_in_the_catalogue(messages: Catalog) -> None:
    known = {text for message in messages if message.id for text in forms(message)[0]}
    said = 0
    for path in sorted((PEOPLE / "web" / "static").rglob("*.js")):
        code = re.sub(r"^\s*(//|\*|/\*).*$", "", path.read_text(encoding="utf-8"), flags=re.M)
        code = re.sub(r'Unreachable\("[^"]*"\)', "", code)  # nobody reads it
        for _, text in TEXT.findall(code):
            assert text in known, f"{path.name}: {text}"
            said += 1
    assert said > 60


TEMPLATES = PEOPLE / "web" / "templates"
JINJA = re.compile(r"\{#.*?#\}|\{\{.*?\}\}|\{%.*?%\}", re.S)
TRANSLATED = re.compile(r"\{% trans.*?%\}.*?\{% endtrans %\}", re.S)
IN_ATTRIBUTES = re.compile(
    r"\{% block (?:body_class|layout) %\}.*?\{% endblock %\}|\{% macro invalid.*?endmacro %\}", re.S
)
"""Parts of templates that stand within a tag."""
READ_ALOUD = ("alt", "aria-label", "placeholder", "title", "data-label", "data-subject", "data-greeting")
UNTRANSLATABLE = {"https", "UTC", "Tutelage", "A", "B", "JavaScript"}
"""Words that are the same in every language."""


class VisibleTexts(HTMLParser):
    """What a reader sees or hears of a template that stands in it as it is."""

    def __init__(self, template: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self._silent = 0
        self.feed(JINJA.sub(" ", TRANSLATED.sub(" ", IN_ATTRIBUTES.sub("", template))))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._silent += tag in ("script", "style", "code", "kbd")
        self.found += [value for name, value in attrs if name in READ_ALOUD and value]

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in ("script", "style", "code", "kbd")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.found.append(data)


def escaping(template: str) -> list[str]:
    words = " ".join(VisibleTexts(template).found)
    return [word for word in re.findall(r"[A-Za-z]{2,}", words) if word not in UNTRANSLATABLE]


def test_templates_say_nothing_that_is_not_in_the_catalogue() -> None:
    paths = list(TEMPLATES.rglob("*.html"))
    assert len(paths) > 30
    assert {path.name: found for path in paths if (found := escaping(path.read_text(encoding="utf-8")))} == {}


def test_a_text_that_escapes_would_be_found() -> None:
    assert escaping('<p title="Hello">{{ _("known") }} and {% if x %}more{% endif %}</p>') == ["Hello", "and", "more"]
    assert escaping("{% trans %}known{% endtrans %}<code>x = yes</code> 12 UTC") == []


COUNTED = re.compile(r'\| plural\("([^"]+)"\)')


def test_what_templates_count_has_its_forms() -> None:
    for path in TEMPLATES.rglob("*.html"):
        assert set(COUNTED.findall(path.read_text(encoding="utf-8"))) <= NOUNS.keys(), path
