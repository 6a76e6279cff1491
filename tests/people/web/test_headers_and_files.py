"""What every answer carries, and what pages are made of: nothing inline, nothing from elsewhere, nothing missing."""

import re
from pathlib import Path

import pytest
from offenders import for_each

from tutelage.people.kinds import KINDS
from tutelage.people.languages import catalogue
from tutelage.people.web import templating
from tutelage.people.web.app import HEADERS, STATIC
from tutelage.people.web.templating import TEMPLATES

from .conftest import World

SOURCES = sorted([*TEMPLATES.rglob("*.html"), *STATIC.rglob("*.js"), *STATIC.glob("*.css")])


@for_each(
    [
        ("/", 200),
        ("/rate", 401),
        ("/nothing", 404),
        ("/join/nothing", 404),
        ("/static/rate.js", 200),
        ("/static/nothing.js", 404),
        ("/static/../app.py", 404),
        ("/static/%2e%2e/app.py", 404),
        ("/static/..%2f..%2fapp.py", 404),
        ("/static//etc/passwd", 404),
        ("/static/", 404),
    ]
)
def test_every_answer_carries_the_headers(path: str, status: int, world: World) -> None:
    reply = world.nobody().get(path)
    assert reply.status_code == status
    for name, value in HEADERS.items():
        assert reply.headers[name] == value
    if path.startswith("/static"):
        assert "def create_app" not in reply.text
    else:
        assert reply.headers["cache-control"] == "no-store"


def test_the_policy_forbids_what_is_inline_and_elsewhere() -> None:
    policy = dict(part.strip().split(" ", 1) for part in HEADERS["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in HEADERS["content-security-policy"]


def test_a_method_that_is_not_meant_is_refused(world: World) -> None:
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert world.client.request(method, "/rate").status_code == 405
    assert world.client.request("POST", "/rate/recent", headers={"origin": "http://site.test"}).status_code == 405


def test_a_defect_tells_nothing_of_the_inside(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from starlette.testclient import TestClient

    def fail(*_: object) -> None:
        raise ZeroDivisionError("/secret/path and more")

    monkeypatch.setattr("tutelage.people.web.pages.rating.next_step", fail)
    browser = world.rater()
    browser.client = TestClient(world.app, "http://site.test", raise_server_exceptions=False)
    reply = browser.json("/rate/next", {}, accept="application/json")
    assert reply.status_code == 500
    assert "log" in reply.json()["error"]
    assert "secret" not in reply.text
    assert "Traceback" not in reply.text


def test_a_database_that_is_busy_asks_to_come_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from tutelage.people import Unavailable

    def busy(*_: object, **__: object) -> None:
        raise Unavailable("The database is locked; nothing was saved.")

    browser = world.rater()
    question = browser.next()["question"]
    monkeypatch.setattr("tutelage.people.web.pages.rating.submit", busy)
    reply = browser.answer(question)
    assert reply.status_code == 503
    assert reply.headers["retry-after"]
    assert "saved" in reply.json()["error"]


@for_each(SOURCES)
def test_nothing_is_inline_or_from_elsewhere(source: Path) -> None:
    text = source.read_text(encoding="utf-8")
    code = re.sub(r"^\s*//.*$", "", text, flags=re.M)
    assert not re.findall(r"(?:https?:)?//(?!www\.w3\.org)[a-z0-9-]+\.[a-z]", code)
    if source.suffix == ".html":
        assert not re.search(r'<script(?![^>]*\b(?:src=|type="application/json"))', text)
        sent = re.sub(r"\{[{%].*?[%}]\}", "", text, flags=re.DOTALL)  # without the names of arguments in the template
        assert not re.search(r"\s(on[a-z]+|style)=", sent)
        assert "<style" not in text


def test_every_file_that_is_named_is_there() -> None:
    named = set()
    for source in SOURCES:
        written = source.read_text(encoding="utf-8")
        for kind in KINDS:
            text = written.replace("{{ study.kind.name }}", kind)
            named |= set(re.findall(r'"/static/([^"?]+)"', text))
        if source.suffix == ".css":
            named |= set(re.findall(r'url\("([^"]+)"\)', written))
        if source.suffix == ".js":
            places = [source.parent / place for place in re.findall(r'(?:from|import) "([^"]+)"', written)]
            named |= {str(place.resolve().relative_to(STATIC)) for place in places}
    assert named
    assert [name for name in sorted(named) if not (STATIC / name).is_file()] == []
    used = {name.split("/")[-1] for name in named}
    files = [path for path in STATIC.rglob("*") if path.is_file() and path.suffix != ".LICENSE"]
    assert [path.name for path in files if path.name not in used] == []


def test_every_font_comes_with_its_licence() -> None:
    for font in (STATIC / "fonts").glob("*.woff2"):
        family = font.stem.removesuffix("-italic")
        assert "SIL Open Font License" in (STATIC / "fonts" / f"{family}.LICENSE").read_text(encoding="utf-8")


def test_every_page_has_one_title_and_names_its_language(world: World) -> None:
    owner = world.owner()
    titles = []
    for path in ("/", "/rate", "/owner", "/owner/raters", "/owner/settings", "/owner/export"):
        page = owner.get(path).text if path != "/" else world.nobody().get(path).text
        assert page.startswith('<!doctype html>\n<html lang="en" dir="ltr">')
        titles += re.findall(r"<title>([^<]+)</title>", page.split("<body")[0])
        assert page.count("<h1") >= 1
    assert len(set(titles)) == 6


@for_each(
    [
        (templating.share(0.7264, 1), "72.6 %"),
        (templating.share(None), "–"),
        (catalogue.number(1234567, "en"), "1,234,567"),
        (templating.seconds(59_400), "59 s"),
        (templating.seconds(92_000), "1 min 32 s"),
        (templating.seconds(None), "–"),
        (templating.moment(0), "1970-01-01 00:00"),
        (templating.ago(None, 0), "never"),
        (templating.ago(0, 59_000), "just now"),
        (templating.ago(0, 60_000), "1 minute ago"),
        (templating.ago(0, 7_200_000), "2 hours ago"),
        (templating.ago(0, 3 * 86_400_000), "3 days ago"),
        (templating.ago(5_000, 0), "just now"),
        (templating.plural(1, "vote"), "1 vote"),
        (templating.plural(1200, "vote"), "1,200 votes"),
        (templating.spaced("both_bad"), "both bad"),
    ]
)
def test_numbers_and_times_in_words(told: str, expected: str) -> None:
    assert told.replace("\N{NARROW NO-BREAK SPACE}", " ") == expected
