"""From a platform's link to its code, over HTTP: what the address may hold, and who is told what."""

import re
from dataclasses import replace
from itertools import product
from urllib.parse import quote

from offenders import for_each

from tutelage.people import list_questions, list_raters, set_overlap, set_state
from tutelage.people.export import export_study
from tutelage.people.recruitment import Recruitment
from tutelage.people.store.visits import entry_of, list_visits, recruit

from ...worlds import places_of
from ..conftest import Browser, World, add_known

PROLIFIC = Recruitment("prolific", code="DONE", screened_code="OUT", answers=2, places=1)


def entry(world: World, recruitment: Recruitment = PROLIFIC) -> str:
    """The link without its query."""
    recruit(world.store, world.study.id, recruitment)
    return entry_of(world.store, world.study.id).partition("?")[0]


def person(name: str = "5f3a", session: str = "s1") -> str:
    return f"PROLIFIC_PID={name}&STUDY_ID=study&SESSION_ID={session}"


def come(world: World, link: str, query: str, *, agrees: bool = True) -> Browser:
    browser = world.nobody()
    reply = browser.form(f"{link}?{query}")
    assert reply.status_code == 303, reply.text
    found = re.match(rf"{browser.cookie}=([\w-]+); ", reply.headers["set-cookie"])
    assert found is not None
    browser.session = found[1]
    if agrees:
        browser.form("/welcome")
    return browser


def test_looking_takes_no_place_and_coming_does(world: World) -> None:
    link = entry(world)
    for _ in range(2):
        page = world.nobody().get(f"{link}?{person()}")
        assert page.status_code == 200
        assert "2 answers" in page.text
    assert places_of(world.store, world.study) == 0
    come(world, link, person())
    assert places_of(world.store, world.study) == 1
    full = world.nobody().form(f"{link}?{person('other')}")
    assert full.status_code == 409
    assert "places" in full.text


@for_each(
    product(
        [
            "",
            "PROLIFIC_PID=a",
            "PROLIFIC_PID=&STUDY_ID=&SESSION_ID=",
            person("x" * 10_240),
            person(quote("<script>alert(1)</script>")),
            person("%ff%fe"),
            person("%ED%A0%80"),
            person("{{%25PROLIFIC_PID%25}}"),
            person(quote("'; DROP TABLE visit; --")),
            person(quote("../../etc")),
            person(quote("\N{ARABIC-INDIC DIGIT THREE}")),
        ],
        ["get", "form"],
    )
)
def test_a_bad_address_gets_a_page_that_says_so(query: str, method: str, world: World) -> None:
    link = entry(world)
    reply = getattr(world.nobody(), method)(f"{link}?{query}")
    assert reply.status_code == 400
    assert "Prolific" in reply.text
    assert "<script>alert" not in reply.text
    assert len(reply.text) < 5_000
    assert list_visits(world.store, world.study.id) == ()


def test_an_unknown_link_is_404_and_a_preview_lets_nobody_in(world: World) -> None:
    assert world.nobody().get("/enter/nothing?workerId=a").status_code == 404
    link = entry(world, Recruitment("mturk"))
    preview = world.nobody().get(f"{link}?assignmentId=ASSIGNMENT_ID_NOT_AVAILABLE&hitId=h")
    assert preview.status_code == 200
    assert "preview" in preview.text
    assert "<form" not in preview.text
    assert world.nobody().form(f"{link}?assignmentId=ASSIGNMENT_ID_NOT_AVAILABLE").status_code == 400


def test_the_last_answer_leads_to_the_code_and_back(world: World) -> None:
    link = entry(world)
    browser = come(world, link, person())
    first = browser.next()
    told = first["progress"]
    assert (told["answered"], told["quota"], first["finish"]) == (0, 2, "")
    browser.answer(first["question"])
    assert "DONE" not in browser.get("/finish").text
    last = browser.next()["question"]
    ahead = browser.next([last["id"]])
    assert (ahead["question"], ahead["finish"]) == (None, "")  # the last answer is not given yet
    browser.answer(last)
    assert browser.next()["finish"] == "/finish"
    page = browser.get("/finish").text
    assert 'value="DONE"' in page
    assert 'href="https://app.prolific.com/submissions/complete?cc=DONE"' in page
    again = world.nobody().form(f"{link}?{person()}")
    assert again.headers["location"] == "/finish"
    assert world.nobody().form(f"{link}?{person(session='s2')}").status_code == 409


def test_failed_practice_gets_its_own_code_and_no_notice(world: World) -> None:
    add_known(world.store, world.study, "training", 1)
    browser = come(world, entry(world), person())
    question = browser.next()["question"]
    good = question["responses"][0]["text"].startswith("good")
    browser.answer(question, "right" if good else "left")
    assert browser.next()["finish"] == "/finish"
    page = browser.get("/finish").text
    assert "cc=OUT" in page
    assert "DONE" not in page
    assert places_of(world.store, world.study) == 0
    assert "failed practice" not in world.owner().get("/owner/inbox").text


def test_leaving_gives_the_place_back_and_no_code(world: World) -> None:
    link = entry(world)
    browser = come(world, link, person())
    browser.answer(browser.next()["question"])
    page = browser.form("/leave")
    assert "place went back" in page.text
    assert "DONE" not in page.text
    assert "/return/" not in page.text
    assert places_of(world.store, world.study) == 0
    back = come(world, link, person(session="s2"))
    told = back.next()["progress"]
    assert (told["answered"], told["quota"]) == (1, 2)
    back.answer(back.next()["question"])
    assert "DONE" in back.form("/leave").text  # everything is answered: leaving does not cost the code
    assert len(list_raters(world.store, world.study.id)) == 1


def test_a_paused_study_lets_nobody_in(world: World) -> None:
    link = entry(world)
    set_state(world.store, world.study.id, "paused")
    assert world.nobody().form(f"{link}?{person()}").status_code == 409


def test_identifiers_are_in_no_export_nor_on_the_raters_page(world: World, tmp_path: object) -> None:
    from pathlib import Path

    browser = come(world, entry(world), person("5f3aPERSON", "sessionPERSON"))
    browser.answer(browser.next()["question"])
    folder = Path(str(tmp_path)) / "export"
    export_study(world.store, world.study.id, folder)
    assert not [path.name for path in folder.iterdir() if b"PERSON" in path.read_bytes()]
    owner = world.owner()
    rater = list_raters(world.store, world.study.id)[0]
    for page in (f"/owner/raters/{rater.id}", "/owner/raters", "/owner/history", "/owner/recruiting"):
        assert "PERSON" not in owner.get(page).text
    assert "5f3aPERSON" in owner.form("/owner/recruiting/payments").text


def test_a_visit_ends_where_nothing_is_left_and_says_so(world: World) -> None:
    """Of six questions for two raters each."""
    link = entry(world, replace(PROLIFIC, answers=9, places=None))
    browser = come(world, link, person())
    while (reply := browser.next())["question"]:
        browser.answer(reply["question"])
    assert reply["finish"] == "/finish"
    page = " ".join(browser.get("/finish").text.split())
    assert "You gave 6 answers, and all of them are kept. There is nothing left to ask you." in page
    assert "DONE" in page
    come(world, link, person("5f3b", "s2"))
    set_overlap(world.store, world.study.id, 1, [q.key for q in list_questions(world.store, world.study.id)])
    late = world.nobody().form(f"{link}?{person('5f3c', 's3')}")
    assert late.status_code == 409
    assert "no question left for you" in late.text
