"""Nothing that a rater reads stands in a template alone: every page in a language in which each message is marked."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from urllib.parse import parse_qs, urlsplit

import pytest
from babel.support import NullTranslations
from hypothesis import given
from hypothesis import strategies as st
from offenders import for_each
from report.figures.reading import pixels, with_class

from tutelage.people import (
    Plan,
    Presentation,
    Store,
    add_rater,
    create_invite,
    create_study,
    personal_link,
    set_languages,
)
from tutelage.people.languages import catalogue
from tutelage.people.recruitment import Recruitment
from tutelage.people.remuneration import Finish
from tutelage.people.settings import NewInvitation
from tutelage.people.store.conversations import LiveModels, set_live_models
from tutelage.people.store.visits import Visit, entry_of, recruit
from tutelage.people.web import templating
from tutelage.people.web.templating import EXCERPT, agreement_scale, excerpts, share_interval, strength_interval
from tutelage.stats.intervals import Interval

from .conftest import World, make_study

READ = ("aria-label", "title", "alt", "placeholder")
"""Attributes that somebody reads."""
LETTERS = re.compile(r"[^\W\d_]{2,}")
OWN = {"Tutelage", "html"}


class Marked(NullTranslations):
    """Every message between ⟦ and ⟧."""

    def gettext(self, message: str) -> str:
        return f"⟦{message}⟧"

    def ngettext(self, one: str, many: str, count: int) -> str:
        return f"⟦{one if count == 1 else many}⟧"


class Unmarked(HTMLParser):
    """Words of a page that stand outside of marks, and marks that stand at each other without a space."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.depth, self.skipped, self.text = 0, "", ""
        self.found: list[str] = []
        self.feed(page)
        self.words(self.text)
        assert "⟧⟦" not in self.text

    def words(self, text: str) -> None:
        while (shorter := re.sub(r"⟦[^⟦⟧]*⟧", " ", text)) != text:
            text = shorter
        self.found += [word for word in LETTERS.findall(text) if word not in OWN]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        for name in READ:
            self.words(values.get(name) or "")
        self.words(" ".join(parse_qs(urlsplit(values.get("href") or "").query).get("subject", [])))
        named = tag == "button" and values.get("name") == "language"
        if tag in ("script", "kbd", "bdi") or named:
            self.skipped = tag
        elif tag not in ("code", "strong", "b", "span"):
            self.text += " "

    def handle_endtag(self, tag: str) -> None:
        if tag == self.skipped:
            self.skipped = ""

    def handle_data(self, data: str) -> None:
        if not self.skipped:
            self.text += data


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """German is the language in which messages are marked."""
    monkeypatch.setattr(catalogue, "translations", lambda language: Marked())
    templating.templates.cache_clear()
    yield
    templating.templates.cache_clear()


OWNERS_WORDS = {"question": "⟦Which?⟧", "guidelines": "⟦Rules⟧", "criteria": ("⟦clear⟧",), "spans": ("⟦fact⟧",)}


def pages(lite: Store) -> Iterator[str]:
    """Every page that a rater may see."""
    world = World(lite, make_study(lite, name="⟦study⟧", corrections=True, **OWNERS_WORDS))
    study = world.study
    set_languages(lite, study.id, ("de", "en"))
    german = {"accept-language": "de"}
    yield world.nobody().get("/", **german).text
    rater = world.rater("⟦anna⟧")
    for path in ("/rate", "/welcome", "/nowhere", "/owner", "/rate?item=x"):
        yield rater.get(path, **german).text
    for limit in (1, 5):
        token = create_invite(lite, study.id, NewInvitation(uses=limit)).secret
        yield world.nobody().get(f"/join/{token}").text
        yield rater.get(f"/join/{token}").text
        yield world.nobody().form(f"/join/{token}", {"name": "⟦anna⟧"}).text
        world.nobody().form(f"/join/{token}", {"name": f"⟦bert⟧ {limit}"})
        yield world.nobody().get(f"/join/{token}").text
    yield (world.nobody().get(f"/join/{create_invite(lite, study.id, NewInvitation(role='owner')).secret}").text)
    yield world.nobody().get("/join/nothing", **german).text
    new = add_rater(lite, study.id, "⟦new⟧")
    yield world.nobody().get(f"/return/{personal_link(lite, new.id)}").text
    yield rater.form("/leave").text
    recruit(lite, study.id, Recruitment("prolific", code="DONE", screened_code="OUT", answers=2))
    link = entry_of(lite, study.id).partition("?")[0]
    come = "PROLIFIC_PID=5f3a&STUDY_ID=study&SESSION_ID=s1"
    yield world.nobody().get(f"{link}?{come}").text
    yield world.nobody().get(link, **german).text
    recruit(lite, study.id, Recruitment("mturk", code="DONE", answers=1))
    preview = "workerId=a&hitId=b&assignmentId=ASSIGNMENT_ID_NOT_AVAILABLE"
    yield world.nobody().get(f"{link}?{preview}").text
    yield from states(world)
    for kind, more in (("likert", {"scale": 5}), ("ranking", {}), ("pair", {"spans": ("⟦fact⟧",)})):
        other = create_study(
            lite, f"⟦{kind}⟧", kind=kind, plan=Plan(), languages=("de",), presentation=Presentation(**more)
        )
        if kind == "pair":
            set_live_models(lite, other.id, LiveModels("a", "b"))
        there = World(lite, other).rater("⟦anna⟧")
        yield there.get("/rate").text
        yield there.get("/welcome").text


def states(world: World) -> Iterator[str]:
    """The last page of a visit, in each of its states, with and without a code."""
    for state in ("active", "left", "screened", "complete"):
        for code, back, wanted in (("", "", 0), ("X1", "", 1), ("X1", "https://back.test", 2)):
            visit = Visit(1, 1, "prolific", "5f3a", "study", "s1", state, 0, 0, None)  # type: ignore[arg-type]
            told = Finish(visit, "⟦Prolific⟧", wanted, wanted, code, back)
            for name in ("finish.html", "gone.html"):
                values = {"told": told, "study": world.study, "csrf": ""}
                yield templating.templates("de").get_template(name).render(values)


@pytest.mark.usefixtures("marked")
def test_no_page_of_raters_has_words_that_cannot_be_translated(lite: Store) -> None:
    seen = 0
    for page in pages(lite):
        assert '<html lang="de"' in page
        assert Unmarked(page).found == []
        seen += 1
    assert seen > 40


@for_each(
    [
        "<p>⟦All⟧ well</p>",
        '<p aria-label="Prompt">⟦x⟧</p>',
        "<p>⟦one⟧<b>two</b></p>",
        '<a href="mailto:?subject=My%20link&body=x">⟦Mail⟧</a>',
    ]
)
def test_a_planted_word_is_found(planted: str) -> None:
    assert Unmarked(planted).found != []


def test_templates_are_made_once_for_each_language(world: World) -> None:
    make: Callable[[str], object] = templating.templates
    assert make("ar") is make("ar")
    assert make("ar") is not make("de")


def test_the_address_of_a_mail_gives_back_its_subject_and_its_text() -> None:
    make: Callable[..., str] = templating.templates("en").globals["mailto"]  # type: ignore[assignment]  # of any type
    subject, greeting = "A & B? 100 %", "Grüß Gott, “Zoë” + 1"
    link = "https://example.org/return/a-b_c?x=1&y=2#z"
    address = urlsplit(make(subject, greeting, link))
    assert (address.scheme, address.path, address.fragment) == ("mailto", "", "")
    assert parse_qs(address.query, strict_parsing=True) == {
        "subject": [subject],
        "body": [f"{greeting}\r\n\r\n{link}\r\n"],
    }


SAME = "Sure! Here is a short answer to your question about the sky: "


@for_each(
    [
        (("a", "b"), ("a", "b")),
        (("two\nlines", ""), ("two lines", "")),
        (("x" * 200, "y"), ("x" * EXCERPT + "…", "y")),
        ((SAME + "blue is scattered", SAME + "black at night"), ("…blue is scattered", "…black at night")),
        ((SAME, SAME), (SAME.strip(), SAME.strip())),
    ]
)
def test_an_excerpt_begins_where_the_texts_differ(texts: tuple[str, ...], pieces: tuple[str, ...]) -> None:
    assert excerpts(texts) == pieces


@given(st.lists(st.text(max_size=300), min_size=1, max_size=4))
def test_excerpts_are_short_and_of_their_texts(texts: list[str]) -> None:
    for text, piece in zip(texts, excerpts(texts), strict=True):
        assert len(piece) <= EXCERPT + 2
        assert piece.strip("…") in " ".join(text.split())


def centres(root: ET.Element) -> list[float]:
    return [float(disc.get("cx", "")) for disc in with_class(root, "point")]


def levels(root: ET.Element, name: str) -> list[list[float]]:
    """The horizontal places of all strokes of a class."""
    return [[x for x, _ in pixels(path)] for path in with_class(root, name)]


@pytest.mark.parametrize(("narrow", "width"), [(False, 640), (True, 290)])
def test_the_scale_of_agreement_is_drawn_to_scale(narrow: bool, width: float) -> None:
    root = ET.fromstring(agreement_scale(Interval(0.75, 0.7, 0.8), "en", narrow=narrow))
    assert centres(root) == [width / 2], "half way from one half to one"
    assert levels(root, "whisker") == [[0.4 * width, 0.6 * width]]
    published = [width * 2 * (share - 0.5) for share in (0.63, 0.726, 0.81)]
    assert [x for x, _ in levels(root, "rule")] == pytest.approx(published, abs=0.06)
    assert [text.text for text in with_class(root, "tick")] == [f"{n}\u202f%" for n in range(50, 101, 10)]
    assert "hh-rlhf 63.0" in " ".join(text.text or "" for text in with_class(root, "name"))
    assert "Agreement 75.0" in root.get("aria-label", "")


def test_agreement_that_is_unknown_or_outside_stays_on_the_paper() -> None:
    unknown = ET.fromstring(agreement_scale(Interval(None, None, None), "en"))
    assert centres(unknown) == levels(unknown, "whisker") == []
    assert unknown.get("aria-label") == "Agreement is not known yet"
    low = ET.fromstring(agreement_scale(Interval(0.2, 0.1, 0.3), "en"))
    assert centres(low) == [0]
    assert levels(low, "whisker") == [[0, 0]]


def test_a_share_is_drawn_to_scale_with_its_neutral_value() -> None:
    root = ET.fromstring(share_interval(Interval(0.25, 0.2, 0.4), "a <b> & c"))
    ((start, end),) = levels(root, "grid")
    assert centres(root) == [start + 0.25 * (end - start)]
    assert levels(root, "whisker") == [[start + 0.2 * (end - start), start + 0.4 * (end - start)]]
    assert levels(root, "rule") == [[(start + end) / 2] * 2]
    assert root.get("aria-label") == "a <b> & c"
    free = ET.fromstring(share_interval(Interval(None, None, None), "none", middle=None))
    assert centres(free) == levels(free, "whisker") == levels(free, "rule") == []


def test_a_strength_is_drawn_around_zero_and_cut_at_the_reach() -> None:
    root = ET.fromstring(strength_interval(Interval(0.0, -1.0, 9.0), 2.0))
    ((start, end),) = levels(root, "grid")
    assert centres(root) == [(start + end) / 2] == [levels(root, "rule")[0][0]]
    assert levels(root, "whisker") == [[start + 0.25 * (end - start), end]]
