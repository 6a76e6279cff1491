"""The language of a page: what the study offers, what the rater chose, what the browser asks for."""

import ast
import json
import re
from html import unescape
from pathlib import Path
from typing import get_args

import pytest
from offenders import for_each

import tutelage.people
from tutelage.people import Presentation, Store, create_invite, create_study, present, set_languages
from tutelage.people.export import export_study
from tutelage.people.kinds import KINDS
from tutelage.people.languages import LANGUAGES, say
from tutelage.people.languages.catalogue import catalogue
from tutelage.people.recruitment import Recruitment
from tutelage.people.settings import NewToken, NewWebhook
from tutelage.people.store.api_tokens import create_token
from tutelage.people.store.raters import RaterState
from tutelage.people.store.studies import State as StudyState
from tutelage.people.store.visits import VisitState, recruit
from tutelage.people.store.webhooks import add_webhook
from tutelage.people.web.names import ACTIONS
from tutelage.people.web.templating import accepted

from ..worlds import Clock
from .conftest import Browser, World, make_study


@for_each(
    [
        ("", [""]),
        ("de-CH, en;q=0.5", ["de", "en"]),
        ("en;q=0.5,ar", ["ar", "en"]),
        ("zh-Hant-TW;q=0.9, *;q=0.1, es;q=0", ["zh", "*"]),
        ("de;q=often, en;q=", []),
    ]
)
def test_a_header_is_read_best_first(header: str, found: list[str]) -> None:
    assert list(accepted(header)) == found


def speaks(browser: Browser, path: str, *wanted: str, choice: str = "") -> str:
    """The opening tag of the page."""
    headers = browser.headers(**({"accept-language": ",".join(wanted)} if wanted else {}))
    if choice:
        headers["cookie"] = "; ".join(filter(None, (headers.get("cookie"), f"tutelage_language={choice}")))
    return browser.client.get(path, headers=headers).text.splitlines()[1]


GERMAN, ARABIC, ENGLISH = ('<html lang="de" dir="ltr">', '<html lang="ar" dir="rtl">', '<html lang="en" dir="ltr">')


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
    link = f"/join/{create_invite(world.store, world.study.id).secret}"
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


@for_each(["https://evil.test/", "//evil.test", "/\\evil.test", "", "javascript:alert(1)"])
def test_a_choice_leads_nowhere_else(place: str, world: World) -> None:
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
    assert '<div class="text" dir="auto"><h3 dir="ltr">Rules</h3>' in welcome
    present(world.store, world.study.id, Presentation("Which one is kinder?"))
    page = rater.get("/rate").text
    assert "Which one is kinder?" in page
    assert "Richtlinien" in page


def test_refusals_are_in_the_language_of_the_rater(world: World) -> None:
    set_languages(world.store, world.study.id, ("de",))
    rater = world.rater()
    assert rater.json("/rate/conversations/99/end", {}).status_code in (400, 404)
    late = world.client.post("/rate/notes", json={"text": "x"}, headers=rater.headers(**{"x-csrf-token": "0"}))
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
    vague = ("created", "sides", "displayed", "verdict", "criteria", "item")  # chance: the secret is the study's own
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


PAGES = (
    "", "/inbox", "/items", "/import", "/raters", "/invitations", "/recruiting", "/team", "/models", "/export",
    "/settings", "/consent", "/programs", "/history", "/sessions",
)  # fmt: skip


@pytest.mark.parametrize("code", ["de", "ar"])
def test_no_sentence_of_the_catalogue_is_in_english_on_owners_pages(world: World, code: str) -> None:
    rater, owner = world.rater(), world.owner()
    rater.answer(rater.next()["question"], flags=["cut_off"], reason="Write to ada@example.org.")
    recruit(world.store, world.study.id, Recruitment("mturk"))
    create_token(world.store, world.study.id, NewToken("trainer", ("read",)))
    add_webhook(world.store, world.study.id, NewWebhook("https://hooks.example.org/x", ("round",)))
    same = {str(message.string) for message in catalogue(code) if message.id}
    english = {
        message.id
        for message in catalogue(code)
        if isinstance(message.id, str) and " " in message.id and "%(" not in message.id and message.id not in same
    }
    assert len(english) > 500
    headers = owner.headers(**{"accept-language": code})
    for page in PAGES:
        reply = owner.client.get(f"/owner{page}", headers=headers)
        assert reply.status_code == 200, page
        shown = unescape(re.sub(r"<script.*?</script>", "", reply.text, flags=re.S))
        texts = {" ".join(text.split()) for text in re.split(r"<[^>]*>", shown)} | set(re.findall(r'"([^"]*)"', shown))
        assert texts & english <= {Presentation().question}, page  # in a field to edit, as it is stored


def test_what_is_wrong_with_a_form_is_told_in_the_language(world: World) -> None:
    owner = world.owner()
    for path, fields, told in (
        (
            "settings/plan",
            {
                "overlap": "2",
                "policy": "random",
                "gold_rate": "0.4",
                "repeat_rate": "0.3",
                "training_pass": "1",
                "lease_seconds": "60",
            },
            "(40\u00a0%)",
        ),
        ("invitations", {"uses": "0", "days": "3"}, "Zahl der Personen: „0“ geht nicht"),
        ("programs/tokens", {"name": "x", "days": ""}, "Ein Token ohne Recht ist nutzlos"),
        ("consent", {"votes": "keep", "retention_days": "0.5"}, "Zahl der Tage: „0.5“ geht nicht"),
        (
            "recruiting",
            {"platform": "x", "answers": "1", "minutes": "1", "pay": "1", "fee": "0", "seconds": "1"},
            "Plattform „x“ gibt es hier nicht",
        ),
    ):
        reply = owner.form(f"/owner/{path}", fields, **{"accept-language": "de"})
        assert reply.status_code == 400, path
        assert told in unescape(reply.text), path


def test_every_action_of_the_history_has_a_name() -> None:
    people = Path(tutelage.people.__file__).parent
    found = set()
    for path in people.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "record_event":
                found |= {node.args[4].value} if isinstance(node.args[4], ast.Constant) else set()
    assert len(found) > 25
    assert found <= ACTIONS.keys()
    for states, pattern in ((RaterState, "rater_{}"), (VisitState, "visit_{}"), (StudyState, "study_{}")):
        assert {pattern.format(state) for state in get_args(states)} - {"visit_active"} <= ACTIONS.keys()


@pytest.mark.parametrize("name", KINDS)
def test_a_study_asks_what_fits_its_kind_in_the_language_of_the_rater(lite: Store, name: str) -> None:
    asked = KINDS[name].traits.question
    study = create_study(lite, "study", kind=name)
    assert study.presentation.question == asked
    assert len({kind.traits.question for kind in KINDS.values()}) == len(KINDS)
    rater = World(lite, study).rater("Anna")
    for language in LANGUAGES:
        page = rater.get("/rate", **{"accept-language": language}).text
        assert f'<h1 id="ask" tabindex="-1">{asked}' in page  # the study is in English alone
    set_languages(lite, study.id, tuple(LANGUAGES))
    for language in LANGUAGES:
        page = rater.get("/rate", **{"accept-language": language}).text
        assert f'<h1 id="ask" tabindex="-1">{say(asked, language)}' in page
