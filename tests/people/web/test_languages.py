"""The language of a page: what the study offers, what the rater chose, what the browser asks for."""

import json
from pathlib import Path

import pytest

from tutelage.people import Presentation, Store, create_invite, present, set_languages
from tutelage.people.export import export_study
from tutelage.people.web.languages import accepted

from ..worlds import Clock
from .conftest import Browser, World, make_study


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("", [""]),
        ("de-CH, en;q=0.5", ["de", "en"]),
        ("en;q=0.5,ar", ["ar", "en"]),
        ("zh-Hant-TW;q=0.9, *;q=0.1, es;q=0", ["zh", "*"]),
        ("de;q=often, en;q=", []),
    ],
)
def test_a_header_is_read_best_first(header: str, found: list[str]) -> None:
    assert list(accepted(header)) == found


def speaks(browser: Browser, path: str, *wanted: str, choice: str = "") -> str:
    """The opening tag of the page."""
    headers = browser.headers(**({"accept-language": ",".join(wanted)} if wanted else {}))
    if choice:
        headers["cookie"] = "; ".join(filter(None, (headers.get("cookie"), f"tutelage_language={choice}")))
    return browser.client.get(path, headers=headers).text.splitlines()[1]


GERMAN, ARABIC, ENGLISH = (
    '<html lang="de" dir="ltr">',
    '<html lang="ar" dir="rtl">',
    '<html lang="en" dir="ltr">',
)


def test_the_study_the_rater_and_the_browser_decide_in_this_order(world: World) -> None:
    rater = world.rater()
    assert speaks(rater, "/rate", "ar") == ENGLISH  # the only language offered
    set_languages(world.store, world.study.id, ("de", "ar"))
    assert speaks(rater, "/rate") == GERMAN
    assert speaks(rater, "/rate", "en", "ar;q=0.5") == ARABIC
    assert speaks(rater, "/rate", "ar", choice="de") == GERMAN
    assert speaks(rater, "/rate", "ar", choice="es") == ARABIC  # not offered here
    owner = world.owner()
    assert speaks(owner, "/owner") == ENGLISH
    assert speaks(owner, "/owner", "ar") == ARABIC  # in any language, whatever raters are offered
    assert speaks(owner, "/owner", "ar", choice="de") == GERMAN
    assert speaks(owner, "/owner", "tlh") == ENGLISH


def test_pages_of_links_are_in_a_language_of_their_study(world: World) -> None:
    set_languages(world.store, world.study.id, ("ar",))
    link = f"/join/{create_invite(world.store, world.study.id)}"
    assert speaks(world.nobody(), link, "de") == ARABIC
    refused = world.nobody().form(link, {"name": "\u0007"})
    assert refused.status_code == 400
    assert "القابلة للطباعة" in refused.text
    assert speaks(world.nobody(), "/", "de") == GERMAN  # of no study: any language that there is
    assert speaks(world.nobody(), "/nowhere", "de") == GERMAN


def test_a_choice_is_remembered_by_the_browser_and_leads_back(world: World) -> None:
    reply = world.nobody().form("/language", {"language": "ar", "to": "/join/x?a=b"})
    assert (reply.status_code, reply.headers["location"]) == (303, "/join/x?a=b")
    assert reply.headers["set-cookie"].startswith("tutelage_language=ar; Path=/;")
    assert world.nobody().form("/language", {"language": "tlh", "to": "/"}).status_code == 400


@pytest.mark.parametrize(
    "place", ["https://evil.test/", "//evil.test", "/\\evil.test", "", "javascript:alert(1)"]
)
def test_a_choice_leads_nowhere_else(world: World, place: str) -> None:
    reply = world.nobody().form("/language", {"language": "de", "to": place})
    assert reply.headers["location"] == "/"


def test_a_choice_is_offered_where_there_is_one(world: World) -> None:
    rater = world.rater()
    assert 'action="/language"' not in rater.get("/rate").text
    set_languages(world.store, world.study.id, ("de", "zh"))
    page = rater.get("/rate").text
    assert page.count('name="language"') == 2
    assert '<button name="language" value="zh" lang="zh-Hans" dir="ltr">简体中文</button>' in page
    assert 'value="de" lang="de" dir="ltr" aria-current="true"' in page


def test_the_standard_question_and_consent_are_in_the_language_and_own_words_as_written(world: World) -> None:
    set_languages(world.store, world.study.id, ("de",))
    rater = world.rater()
    welcome = rater.get("/welcome").text
    assert "Welche Antwort ist besser?" in welcome
    assert "Sie sind frei." in welcome
    assert '<div class="text" dir="auto"><h3>Rules</h3>' in welcome
    present(world.store, world.study.id, Presentation("Which one is kinder?"))
    page = rater.get("/rate").text
    assert "Which one is kinder?" in page
    assert "Richtlinien" in page


def test_refusals_are_in_the_language_of_the_rater(world: World) -> None:
    set_languages(world.store, world.study.id, ("de",))
    rater = world.rater()
    assert rater.json("/rate/conversations/99/end", {}).status_code in (400, 404)
    late = world.client.post(
        "/rate/notes", json={"text": "x"}, headers=rater.headers(**{"x-csrf-token": "0"})
    )
    assert late.json()["error"].startswith("Diese Seite ist zu alt")
    for _ in range(6):
        question = rater.next()["question"]
        rater.answer(question)
    assert rater.next()["why"] == "Sie haben alles beantwortet, was es zu beantworten gibt. Vielen Dank!"


def test_what_is_stored_and_exported_does_not_depend_on_the_language(folder: Path) -> None:
    """The same people say the same in three languages; every file but the study's own description is the same."""
    files = []
    for code in ("en", "de", "ar"):
        from tutelage.people import open_store

        with_clock = open_store(folder / code / "study.sqlite", clock=Clock())
        try:
            files.append(_said(with_clock, code, folder / code / "out"))
        finally:
            with_clock.close()
    assert files[0] == files[1] == files[2]


def _said(store: Store, code: str, out: Path) -> dict[str, object]:
    study = make_study(store, 3, criteria=("clear",))
    set_languages(store, study.id, (code,))
    rater = World(store, study).rater("anna")
    for choice, more in (
        ("left", {"strength": 2, "criteria": {"clear": "right"}}),
        ("tie", {"flags": ["broken"]}),
        ("skip", {"reason": "I do not know enough about this"}),
    ):
        question = rater.next()["question"]
        assert rater.answer(question, choice, **{"key": choice, **more}).status_code == 200
    export_study(store, study.id, out)
    votes = [json.loads(line) for line in (out / "votes.jsonl").read_text().splitlines()]
    vague = (
        "created",
        "sides",
        "displayed",
        "verdict",
        "criteria",
        "item",
    )  # chance: the secret is the study's own
    return {
        "votes": [{name: value for name, value in vote.items() if name not in vague} for vote in votes],
        "choices": [vote["displayed"]["choice"] for vote in votes],
    }


def test_owners_set_the_languages(world: World) -> None:
    owner = world.owner()
    owner.form("/owner/settings/languages", {"language": "ar", "others": ["en", "ar"]})
    assert speaks(world.rater(), "/rate") == ARABIC
    page = owner.get("/owner/settings").text
    assert '<option value="ar" lang="ar" selected>' in page
    assert 'name="others" value="en" checked' in page
    refused = owner.form("/owner/settings/languages", {"language": "tlh"})
    assert refused.status_code == 400
    assert "no language" in refused.text
