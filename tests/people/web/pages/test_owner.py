"""The owner's pages: what they show is what the votes say, and what they change can be changed back."""

import csv
import io
import json
import re
import zipfile
from collections.abc import Mapping
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
from offenders import for_each

from tutelage.people import (
    Answer,
    Item,
    Plan,
    Store,
    add_items,
    add_rater,
    change_rater,
    count_notices,
    create_invite,
    create_study,
    get_rater,
    include,
    label_study,
    list_events,
    list_invites,
    list_questions,
    list_raters,
    list_votes,
    open_study,
    submit,
)
from tutelage.people.mail import MailServer
from tutelage.people.selection import Selection
from tutelage.people.store.events import list_exports
from tutelage.people.store.studies import list_versions
from tutelage.people.web.pages.owner import exports
from tutelage.people.web.pages.owner.items import item_address

from ...worlds import asked, better, raters_of, work
from ..conftest import URL, Browser, World, add_known, make_study

PAGES = ["", "/inbox", "/history", "/raters", "/items", "/models", "/settings", "/invitations", "/export"]


@pytest.fixture
def judged(lite: Store, monkeypatch: pytest.MonkeyPatch) -> World:
    """Three raters of eight items: two who know, one who always says left. Statistics are computed while a page waits,
    as they are on a machine that is not busy."""
    monkeypatch.setattr("tutelage.people.statistics.cache.PROMPT_SECONDS", 1_000.0)
    study = make_study(lite, 8, Plan(overlap=3, gold_rate=0, repeat_rate=0), criteria=("clear",))
    careful = raters_of(lite, study, 2)
    work(lite, careful, lambda question: Answer(better(question).choice, 2, active_ms=20_000))
    spammer = add_rater(lite, study.id, "lefty")
    work(
        lite, [spammer.id], lambda question: Answer("left", 3, active_ms=900, reason="=1+1 <script>", flags=("broken",))
    )
    return World(lite, study)


@for_each(PAGES)
def test_every_page_opens_on_an_empty_study_and_on_a_full_one(page: str, world: World, judged: World) -> None:
    for each in (world, judged):
        reply = each.owner().get(f"/owner{page}")
        assert reply.status_code == 200
        assert "<h1" in reply.text
        text = re.sub(r"</?(?!strong|span|a\b|b\b|bdi)[^>]*>", " ", reply.text)
        joined = re.findall(r"\S+[a-z0-9%]\.[A-Z][a-z]+", re.sub(r"<[^>]*>", "", text))
        assert joined == []  # sentences without a space between them


@pytest.fixture
def world(lite: Store) -> World:
    return World(lite, make_study(lite, 0, name="empty"))


def test_the_statistics_are_those_of_the_votes(judged: World) -> None:
    page = judged.owner().get("/owner").text
    votes = list_votes(judged.store, judged.study.id)
    pairs = equal = 0
    for one in votes:
        for other in votes:
            if one.item == other.item and one.id < other.id:
                pairs, equal = pairs + 1, equal + (one.verdict == other.verdict)
    assert f"<strong>{100 * equal / pairs:.1f}\N{NARROW NO-BREAK SPACE}%</strong>" in page
    assert "8<span> of 8 items done" in page
    assert ">24<" in page.replace("</p>", "<")
    for name in ("hh-rlhf", "InstructGPT", "MT-bench"):
        assert name in page


def test_the_table_of_raters_shows_what_stands_out(judged: World) -> None:
    page = judged.owner().get("/owner/raters").text
    assert page.index("lefty") < page.index("rater 0")
    lefty = next(rater for rater in list_raters(judged.store, judged.study.id) if rater.name == "lefty")
    assert f"/owner/raters/{lefty.id}" in page


def test_excluding_does_what_its_preview_says_and_can_be_undone(judged: World) -> None:
    owner = judged.owner()
    lefty = next(rater for rater in list_raters(judged.store, judged.study.id) if rater.name == "lefty")
    before = label_study(judged.store, judged.study.id, Selection())
    page = owner.get(f"/owner/raters/{lefty.id}").text
    fields = {"scope": "rater", "name": "lefty", "reason": "always left", "page": f"/owner/raters/{lefty.id}"}
    reply = owner.form("/owner/exclusions", fields)
    assert reply.headers["location"] == f"/owner/raters/{lefty.id}"
    after = label_study(judged.store, judged.study.id, Selection())
    assert after.fates["excluded"] == 8
    changed = sum(
        (one.label.p_first > 0.5) != (other.label.p_first > 0.5)
        for one, other in zip(before.rows, after.rows, strict=True)
    )
    assert "removes 8 votes" in page
    assert f"changes {changed} label" in page
    excluded = owner.get(f"/owner/raters/{lefty.id}").text
    assert "always left" in excluded
    assert "returns 8 votes" in excluded
    assert "100.0\N{NARROW NO-BREAK SPACE}%" in owner.get("/owner").text  # the two careful raters agree
    owner.form("/owner/exclusions", {"scope": "rater", "name": "lefty", "back": "yes", "page": "/owner"})
    assert label_study(judged.store, judged.study.id, Selection()).fates == before.fates
    assert get_rater(judged.store, lefty.id).excluded is None


@for_each(["https://evil.test", "//evil.test", "/\\evil.test", "/owner/\\..", "", "/rate"])
def test_an_exclusion_leads_nowhere_else(page: str, judged: World) -> None:
    reply = judged.owner().form(
        "/owner/exclusions", {"scope": "item", "name": "ITEM-KEY/c0", "reason": "x", "page": page}
    )
    assert reply.headers["location"] == "/owner"


def test_an_exclusion_needs_a_reason_and_something_to_exclude(judged: World) -> None:
    owner = judged.owner()
    for fields in (
        {"scope": "rater", "name": "lefty", "reason": " "},
        {"scope": "rater", "name": "nobody", "reason": "x"},
        {"scope": "judgement", "name": "1; DROP TABLE", "reason": "x"},
        {"scope": "study", "name": "tutoring", "reason": "x"},
        {},
    ):
        assert owner.form("/owner/exclusions", fields).status_code == 400
    assert label_study(judged.store, judged.study.id, Selection()).fates.get("excluded", 0) == 0


def test_an_item_shows_every_vote_as_it_was_displayed(judged: World) -> None:
    owner = judged.owner()
    page = owner.get(item_address("ITEM-KEY/c3")).text
    votes = list_votes(judged.store, judged.study.id, item="ITEM-KEY/c3")
    assert len(votes) == 3
    rows = page.split("<tbody>")[1].split("</tbody>")[0]
    for vote in votes:
        assert vote.rater in rows
    assert rows.count("left, much better") == 1
    assert "=1+1 &lt;script&gt;" in rows
    assert "<script>" not in rows
    assert "old-model" in page
    assert "new-model" in page


@pytest.mark.parametrize("key", ["a/b", "ü?&#<>\"' x", "..", "a\\b"])
def test_items_of_any_name_have_a_page(lite: Store, key: str) -> None:
    from tutelage.data.records import CompletionRecord, Prompt, user

    study = create_study(lite, "odd")
    texts = [CompletionRecord("x", "p", "one", "m"), CompletionRecord("y", "p", "two", "n")]
    add_items(lite, study.id, [Prompt("p", user("Q"))], texts, [Item(key, "p", ("x", "y"))])
    owner = World(lite, study).owner()
    assert f'href="{item_address(key)}"' in owner.get("/owner/items?by=added").text
    if key != "..":  # every client resolves two dots before it asks
        assert owner.get(item_address(key)).status_code == 200


def test_adjudicating_decides_the_label_and_changes_no_vote(judged: World) -> None:
    owner = judged.owner()
    before = list_votes(judged.store, judged.study.id)
    question = owner.json("/rate/next", {"item": "ITEM-KEY/c0"}).json()["question"]
    side = "left" if question["responses"][0]["text"].startswith("bad") else "right"
    assert owner.answer(question, side).status_code == 200
    assert list_votes(judged.store, judged.study.id)[: len(before)] == before
    labelled = label_study(judged.store, judged.study.id, Selection())
    (row,) = [row for row in labelled.rows if row.question.key == "ITEM-KEY/c0"]
    assert row.preference.chosen.startswith("bad")
    assert row.preference.p_chosen == 1
    assert "adjudication" in owner.get(item_address("ITEM-KEY/c0")).text


def test_orders_and_pages_of_items(judged: World) -> None:
    owner = judged.owner()
    for query in (
        "by=disagreement",
        "by=doubt",
        "by=added",
        "by=added&page=2",
        "by=nothing",
        "page=-1",
        "page=x",
        "page=99999999999",
    ):
        assert owner.get(f"/owner/items?{query}").status_code == 200
    assert owner.get("/owner/items?by=added").text.count('href="/owner/items/') == 8
    assert owner.get("/owner/items?by=added&page=2").text.count('href="/owner/items/') == 8  # there is one page


def keys_on(page: str) -> set[str]:
    """The numbers of the items that a page of items lists."""
    return set(re.findall(r'name="item" value="ITEM-KEY/c(\d+)"', page))


@for_each(
    [
        ("", 8),
        ("text=QUESTION%203", 1),
        ("text=good", 8),
        ("text=user", 0),  # a word of the record, not of the prompt
        ("text=%25", 0),
        ("text=_", 0),
        ("text=c5", 1),
        ("state=done", 8),
        ("state=open", 0),
        ("state=excluded", 0),
        ("flag=broken", 8),
        ("flag=any", 8),
        ("flag=harmful", 0),
        ("skipped=yes", 0),
        ("model=old-model", 8),
        ("model=old", 0),
        ("pool=gold", 0),
        ("round=1", 8),
        ("round=2", 0),
        ("rater=99", 0),
        ("rater=x&round=x&pool=x&state=x", 8),
    ]
)
def test_items_are_found_by_what_is_asked_of_them(query: str, count: int, judged: World) -> None:
    page = judged.owner().get(f"/owner/items?by=added&{query}").text
    assert len(keys_on(page)) == count
    assert f'id="found">{count} item' in page


def test_the_colours_of_votes_have_a_legend_where_votes_have_sides(judged: World, lite: Store) -> None:
    assert 'aria-label="Colours of the bars"' in judged.owner().get("/owner/items").text
    ranks = World(lite, create_study(lite, "ranks", kind="ranking"))
    assert "Colours of the bars" not in ranks.owner().get("/owner/items").text


def test_a_search_knows_what_was_answered_by_whom(judged: World) -> None:
    owner = judged.owner()
    lefty = next(each for each in list_raters(judged.store, judged.study.id) if each.name == "lefty")
    include = {"action": "exclude", "reason": "a look", "item": ["ITEM-KEY/c1", "ITEM-KEY/c2"]}
    assert owner.form("/owner/items", include).status_code == 303
    assert keys_on(owner.get("/owner/items?state=excluded").text) == {"1", "2"}
    assert len(keys_on(owner.get(f"/owner/items?rater={lefty.id}").text)) == 8
    disagreed = keys_on(owner.get("/owner/items?state=disagreed").text)
    votes = list_votes(judged.store, judged.study.id)
    assert disagreed == {str(n) for n in range(8) if len({v.verdict for v in votes if v.item == f"ITEM-KEY/c{n}"}) > 1}


def test_many_items_are_changed_at_once_or_none(judged: World) -> None:
    owner = judged.owner()
    before = list_questions(judged.store, judged.study.id)
    some = ["ITEM-KEY/c1", "ITEM-KEY/c2"]
    for wrong, field in (
        ({"action": "exclude", "item": some, "reason": " "}, "reason"),
        ({"action": "exclude", "reason": "x"}, "items"),
        ({"action": "exclude", "item": [*some, "no such item"], "reason": "x"}, "items"),
        ({"action": "overlap", "item": some, "overlap": "101"}, "overlap"),
        ({"action": "delete", "item": some, "reason": "x"}, "action"),
    ):
        refused = owner.form("/owner/items", wrong)
        assert refused.status_code == 400
        assert f'id="{field}-problem"' in refused.text
    assert list_questions(judged.store, judged.study.id) == before
    owner.form("/owner/items", {"action": "overlap", "item": some, "overlap": "5", "by": "added"})
    assert sorted(q.target for q in list_questions(judged.store, judged.study.id)) == [3] * 6 + [5] * 2
    reply = owner.form("/owner/items", {"action": "exclude", "all": "yes", "text": "Question 3", "reason": "x"})
    assert reply.headers["location"] == "/owner/items?text=Question+3"
    assert [q.key for q in list_questions(judged.store, judged.study.id) if q.excluded] == ["ITEM-KEY/c3"]
    owner.form("/owner/items", {"action": "include", "all": "yes"})
    assert not [q for q in list_questions(judged.store, judged.study.id) if q.excluded]


def names_on(page: str) -> list[str]:
    """The raters that a page of raters lists, in order."""
    return re.findall(r'aria-label="Tick ([^"]+)"', page)


@for_each(
    [
        ("", ["lefty", "rater 0", "rater 1"]),
        ("text=RATER", ["rater 0", "rater 1"]),
        ("shown=flagged", []),
        ("shown=human&by=name", ["lefty", "rater 0", "rater 1"]),
        ("shown=llm", []),
        ("shown=paused", []),
        ("by=time", ["lefty", "rater 0", "rater 1"]),
        ("by=reliability", ["lefty", "rater 0", "rater 1"]),
        ("shown=x&by=x&page=9", ["lefty", "rater 0", "rater 1"]),
    ]
)
def test_raters_are_found_and_ordered(query: str, names: list[str], judged: World) -> None:
    assert names_on(judged.owner().get(f"/owner/raters?{query}").text) == names


def test_many_raters_are_changed_at_once(judged: World) -> None:
    owner = judged.owner()
    raters = {rater.name: rater for rater in list_raters(judged.store, judged.study.id)}
    both = [raters["rater 0"].id, raters["lefty"].id]
    for wrong, field in (
        ({"action": "pause", "reason": "x"}, "raters"),
        ({"action": "pause", "rater": both}, "reason"),
        ({"action": "exclude", "rater": both, "reason": ""}, "reason"),
        ({"action": "quota", "rater": both, "quota": "many"}, "quota"),
        ({"action": "", "rater": both}, "action"),
    ):
        refused = owner.form("/owner/raters", wrong)
        assert refused.status_code == 400
        assert f'id="{field}-problem"' in refused.text
    assert list_raters(judged.store, judged.study.id)[:3] == tuple(raters.values())[:3]
    owner.form("/owner/raters", {"action": "pause", "rater": both, "reason": "a talk first"})
    owner.form("/owner/raters", {"action": "quota", "rater": both, "quota": "30"})
    found = {rater.name: (rater.state, rater.quota) for rater in list_raters(judged.store, judged.study.id)}
    assert found["rater 0"] == found["lefty"] == ("paused", 30)
    assert found["rater 1"] == ("active", None)
    owner.form("/owner/raters", {"action": "active", "rater": both})
    owner.form("/owner/raters", {"action": "exclude", "rater": both, "reason": "one <room>"})
    excluded = {rater.name: rater.excluded for rater in list_raters(judged.store, judged.study.id)}
    assert (excluded["lefty"], excluded["rater 0"], excluded["rater 1"]) == ("one <room>", "one <room>", None)
    owner.form("/owner/raters", {"action": "include", "rater": both})
    assert get_rater(judged.store, both[0]).excluded is None


def test_the_page_of_a_rater_lists_the_votes_with_what_was_asked(judged: World) -> None:
    owner = judged.owner()
    lefty = next(rater for rater in list_raters(judged.store, judged.study.id) if rater.name == "lefty")
    page = owner.get(f"/owner/raters/{lefty.id}").text
    rows = page.split('id="votes"')[1]
    assert rows.count("left, much better") == 8
    for number in range(8):
        assert f"Question {number}?" in rows
    assert "=1+1 &lt;script&gt;" in rows
    assert "Question 3?" not in owner.get(f"/owner/raters/{lefty.id}?said=skipped").text.split('id="votes"')[1]
    assert "Question 3?" in owner.get(f"/owner/raters/{lefty.id}?said=flagged").text.split('id="votes"')[1]


def test_a_missing_reason_is_told_beside_its_field(judged: World) -> None:
    owner = judged.owner()
    for scope, name in (("rater", "lefty"), ("item", "ITEM-KEY/c3")):
        refused = owner.form("/owner/exclusions", {"scope": scope, "name": name, "reason": " "})
        assert refused.status_code == 400
        assert 'id="reason-problem"' in refused.text
        assert 'aria-describedby="reason-problem"' in refused.text


def test_mistakes_in_the_settings_are_told_beside_their_field_and_nothing_is_lost(judged: World) -> None:
    owner = judged.owner()
    fields = {
        "overlap": "4", "policy": "random", "gold_rate": "0.4", "repeat_rate": "0.3", "training_pass": "0.5",
        "lease_seconds": "60",
    }  # fmt: skip
    refused = owner.form("/owner/settings/plan", fields)
    assert refused.status_code == 400
    assert "Known answers (40\u202f%) and questions asked again (30\u202f%)" in refused.text
    assert "gold_rate 0.4" not in refused.text
    assert 'name="overlap" type="number" min="1" max="100" required value="4"' in refused.text
    for name, value in (("overlap", "0"), ("lease_seconds", "9" * 30), ("repeat_rate", "nan"), ("policy", "x")):
        wrong = fields | {"repeat_rate": "0"} | {name: value}
        assert f'id="{name}-problem"' in owner.form("/owner/settings/plan", wrong).text
    assert owner.form("/owner/settings/plan", fields | {"gold_rate": "5 %", "repeat_rate": "0"}).status_code == 303
    assert open_study(judged.store).plan.gold_rate == 0.05
    lost = owner.form("/owner/settings/question", {"question": "", "scale": "3", "guidelines": "My *rules*"})
    assert 'id="question-problem"' in lost.text
    assert "My *rules*" in lost.text


def test_no_address_fills_a_form(judged: World) -> None:
    owner = judged.owner()
    for path in ("settings?question=planted&guidelines=planted", "invitations?note=planted&names=planted"):
        page = owner.get(f"/owner/{path}").text
        assert "planted" not in re.sub(r'name="to" value="[^"]*"', "", page)  # but the way back to this address


def test_the_inbox_is_read_closed_and_opened_again(judged: World) -> None:
    owner = judged.owner()
    page = owner.get("/owner/inbox").text
    assert page.count("=1+1 &lt;script&gt;") == 8
    lefty = next(rater for rater in list_raters(judged.store, judged.study.id) if rater.name == "lefty")
    assert f'href="/owner/raters/{lefty.id}"' in page
    assert f'href="{item_address("ITEM-KEY/c3")}"' in page
    assert 'href="/owner/inbox?kind=flag">Flags <span class="count">8</span>' in owner.get("/owner").text
    numbers = re.findall(r'form="close-form" name="notice" value="(\d+)"', page)
    owner.form("/owner/inbox", {"notice": numbers[:3], "kind": "flag"})
    assert count_notices(judged.store, judged.study.id)["flag"] == 5
    closed = owner.get("/owner/inbox?kind=flag&closed=yes").text
    assert closed.count("Open again") == 3
    owner.form("/owner/inbox/reopen", {"notice": numbers[0]})
    assert count_notices(judged.store, judged.study.id)["flag"] == 6
    owner.form("/owner/inbox", {"all": "yes", "kind": "skip"})
    assert count_notices(judged.store, judged.study.id)["flag"] == 6
    owner.form("/owner/inbox", {"all": "yes"})
    assert count_notices(judged.store, judged.study.id) == {}
    for wrong in ("", "x", "1" * 40):
        assert owner.form("/owner/inbox/reopen", {"notice": wrong}).status_code == 404
    evil = owner.form("/owner/inbox", {"notice": numbers[0], "page": "//evil.test"})
    assert evil.headers["location"] == "/owner/inbox"


def test_a_note_of_a_rater_reaches_the_inbox(judged: World) -> None:
    browser = judged.rater("berta")
    assert browser.json("/rate/notes", {"text": "What about <b>code</b>?"}).status_code == 200
    assert browser.json("/rate/notes", {"text": " "}).status_code == 400
    assert browser.json("/rate/notes", {}).status_code == 400
    assert "What about &lt;b&gt;code&lt;/b&gt;?" in judged.owner().get("/owner/inbox?kind=note").text


def test_a_rater_who_sends_many_notes_has_to_wait(world: World) -> None:
    one, other = world.rater("one"), world.rater("other")
    replies = [one.json("/rate/notes", {"text": f"note {number}"}) for number in range(11)]
    assert [reply.status_code for reply in replies] == [200] * 10 + [429]
    assert 0 < int(replies[-1].headers["retry-after"]) <= 600
    assert other.json("/rate/notes", {"text": "one more"}).status_code == 200
    assert count_notices(world.store, world.study.id)["note"] == 11


def test_the_question_is_versioned(judged: World) -> None:
    owner = judged.owner()
    fields = {
        "question": "Which is kinder?",
        "scale": "2",
        "criteria": "warm\n\n warm \nplain",
        "guidelines": "Be\r\nkind",
    }
    assert owner.form("/owner/settings/question", fields).status_code == 303
    study = open_study(judged.store)
    assert (study.version, study.presentation.criteria, study.presentation.guidelines) == (
        2,
        ("warm", "plain"),
        "Be\nkind",
    )
    owner.form("/owner/settings/question", fields)  # nothing changed: no new version
    assert len(list_versions(judged.store, study.id)) == 2
    page = owner.get("/owner/settings").text
    assert "Version 2: Which is kinder?" in page
    assert "Version 1: Which response is better?" in page
    for wrong in ({"question": " "}, {"scale": "4"}, {"scale": ""}):
        assert owner.form("/owner/settings/question", fields | wrong).status_code == 400


def test_the_plan_may_change_at_any_time(judged: World) -> None:
    owner = judged.owner()
    fields: dict[str, Any] = {
        "overlap": "4", "policy": "random", "gold_rate": "0.1", "repeat_rate": "0", "training_pass": "0.5",
        "lease_seconds": "60",
    }  # fmt: skip
    assert owner.form("/owner/settings/plan", fields).status_code == 303
    assert open_study(judged.store).plan == Plan(4, "random", 0.1, 0.0, 0.5, 60)
    for wrong in (
        {"overlap": "0"},
        {"overlap": "two"},
        {"policy": "best"},
        {"gold_rate": "0.9"},
        {"gold_rate": "nan"},
        {"lease_seconds": ""},
    ):
        assert owner.form("/owner/settings/plan", fields | wrong).status_code == 400, wrong
    assert open_study(judged.store).plan == Plan(4, "random", 0.1, 0.0, 0.5, 60)


def test_the_study_is_paused_and_opened_again(judged: World) -> None:
    owner, rater = judged.owner(), judged.rater()
    owner.form("/owner/settings/state", {"state": "paused"})
    assert rater.next()["question"] is None
    assert "paused" in owner.get("/owner").text
    owner.form("/owner/settings/state", {"state": "open"})
    assert owner.form("/owner/settings/state", {"state": "deleted"}).status_code == 400
    assert open_study(judged.store).state == "open"


def test_a_rater_is_paused_and_limited(judged: World) -> None:
    owner, browser = judged.owner(), judged.rater("berta")
    rater = next(each for each in list_raters(judged.store, judged.study.id) if each.name == "berta")
    owner.form(f"/owner/raters/{rater.id}", {"state": "paused", "quota": "", "why": "a talk first"})
    assert "paused" in browser.next()["why"]
    assert list_events(judged.store, judged.study.id, action="rater_paused")[0].detail["why"] == "a talk first"
    owner.form(f"/owner/raters/{rater.id}", {"state": "active", "quota": "7"})
    assert get_rater(judged.store, rater.id).quota == 7
    assert owner.form(f"/owner/raters/{rater.id}", {"state": "active", "quota": "-1"}).status_code == 400
    for number in ("0", "999", "x", "1" * 30):
        assert owner.get(f"/owner/raters/{number}").status_code == 404


def test_an_invitation_is_made_shown_once_and_withdrawn(judged: World) -> None:
    owner = judged.owner()
    page = owner.form("/owner/invitations", {"role": "rater", "uses": "3", "days": "2", "note": "class <4b>"}).text
    link = page.split(f'value="{URL}/join/')[1].split('"')[0]
    assert judged.nobody().get(f"/join/{link}").status_code == 200
    listed = owner.get("/owner/invitations").text
    assert link not in listed
    assert "class &lt;4b&gt;" in listed
    (invite,) = list_invites(judged.store, judged.study.id)
    assert (invite.max_uses, invite.role) == (3, "rater")
    owner.form("/owner/invitations/withdraw", {"invite": invite.id})
    assert judged.nobody().form(f"/join/{link}", {"name": "late"}).status_code == 400
    for wrong in ({"uses": "0"}, {"uses": "1e3"}, {"days": "0"}, {"days": "9999"}):
        assert owner.form("/owner/invitations", {"uses": "1", "days": "1"} | wrong).status_code == 400


def test_the_overview_tells_of_quotas_that_the_items_cannot_fill(lite: Store) -> None:
    site = World(lite, make_study(lite, 4))
    owner, anna = site.owner(), add_rater(lite, site.study.id, "anna", quota=4)
    assert "The quotas of the raters" not in owner.get("/owner").text
    change_rater(lite, anna.id, state="active", quota=9)
    assert "The quotas of the raters ask for 9 answers more, and the items take 4:" in owner.get("/owner").text


def test_a_personal_link_brings_a_rater_back(judged: World) -> None:
    owner = judged.owner()
    rater = list_raters(judged.store, judged.study.id)[0]
    page = owner.form(f"/owner/raters/{rater.id}/link").text
    link = page.split(f'value="{URL}/return/')[1].split('"')[0]
    assert rater.name in judged.nobody().get(f"/return/{link}").text


def test_a_personal_link_is_mailed(lite: Store, mailbox: tuple[str, list[EmailMessage]]) -> None:
    url, came = mailbox
    site = World(lite, make_study(lite), mail=MailServer(url, "study@x.org"))
    rater, owner = add_rater(lite, site.study.id, "Zoë"), site.owner()
    address = f"/owner/raters/{rater.id}"
    sent = owner.form(f"{address}/mail", {"email": "zoe@x.org"})
    assert "A link was mailed to zoe@x.org." in sent.text
    link = next(line for line in came[0].get_content().splitlines() if line.startswith(URL))
    assert "Zoë" in site.nobody().get(link.removeprefix(URL)).text
    assert link not in sent.text
    assert "by e-mail, used 0 times" in owner.get(address).text
    for wrong, complaint in (("zoe", "is no e-mail address"), ("zoe@gone.example", "550 no such user")):
        refused = owner.form(f"{address}/mail", {"email": wrong})
        assert refused.status_code == 400
        assert complaint in refused.text.split('id="email-problem"')[1]
        assert f'value="{wrong}"' in refused.text
    boss = next(each for each in list_raters(lite, site.study.id) if each.role == "owner")
    assert owner.form(f"/owner/raters/{boss.id}/mail", {"email": "b@x.org"}).status_code == 400
    assert len(came) == 1


def test_a_server_without_mail_offers_none(judged: World) -> None:
    owner, rater = judged.owner(), list_raters(judged.store, judged.study.id)[0]
    assert 'name="email"' not in owner.get(f"/owner/raters/{rater.id}").text
    assert owner.form(f"/owner/raters/{rater.id}/mail", {"email": "a@x.org"}).status_code == 404
    assert list_invites(judged.store, judged.study.id, rater=rater.id) == ()


def test_a_list_of_names_becomes_a_table_of_personal_links(judged: World) -> None:
    owner = judged.owner()
    fields = {"names": "Zoë\n\n RATER 0 \n=1+1\nzoë", "name_days": "30"}
    reply = owner.form("/owner/invitations/names", fields)
    assert reply.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(reply.text)))
    assert [row["name"] for row in rows] == ["Zoë", "rater 0", "'=1+1"]  # who is known is not made again
    names = [rater.name for rater in list_raters(judged.store, judged.study.id) if rater.role == "rater"]
    assert names == ["rater 0", "rater 1", "lefty", "Zoë", "=1+1"]
    for row in rows[:2]:
        assert row["link"].startswith(f"{URL}/return/")
        assert row["name"] in judged.nobody().get(row["link"].removeprefix(URL)).text


def test_a_list_with_a_name_that_is_none_makes_nobody(judged: World) -> None:
    owner = judged.owner()
    before = list_raters(judged.store, judged.study.id)
    boss = next(rater.name for rater in before if rater.role == "owner")
    for names in ("", "\n", "new\n" + "x" * 81, f"new\n{boss}", "\n".join(map(str, range(1_001)))):
        refused = owner.form("/owner/invitations/names", {"names": names, "name_days": "30"})
        assert refused.status_code == 400
        assert 'id="names-problem"' in refused.text
    assert owner.form("/owner/invitations/names", {"names": "new", "name_days": "0"}).status_code == 400
    assert list_raters(judged.store, judged.study.id) == before


def test_the_history_tells_who_did_what(judged: World) -> None:
    owner = judged.owner()
    owner.form("/owner/exclusions", {"scope": "rater", "name": "lefty", "reason": "because <b>", "page": "/owner"})
    page = owner.get("/owner/history").text
    assert "because &lt;b&gt;" in page
    assert "<b>" not in page.split("<tbody>")[1]


def test_the_leaderboard_ranks_the_better_model_first(judged: World) -> None:
    page = judged.owner().get("/owner/models").text
    assert page.index("new-model") < page.index("old-model")


def archive(reply: Any) -> Mapping[str, Any]:
    assert reply.headers["content-type"] == "application/zip"
    files = zipfile.ZipFile(io.BytesIO(reply.content))
    return {name: files.read(name).decode() for name in files.namelist()}


def test_a_download_holds_the_preview_and_accounts_for_every_vote(judged: World) -> None:
    owner = judged.owner()
    owner.form("/owner/exclusions", {"scope": "rater", "name": "lefty", "reason": "always left", "page": "/owner"})
    page = owner.get("/owner/export").text
    assert "24 judgements = 16 used + 8 excluded" in page
    files = archive(owner.form("/owner/export", {"kinds": "human", "ties": "drop", "min_votes": "1"}))
    manifest = json.loads(files["manifest.json"])
    judgements = manifest["judgements"]
    assert judgements["total"] == sum(count for name, count in judgements.items() if name != "total") == 24
    rows = [json.loads(line) for line in files["preferences.jsonl"].splitlines()]
    assert len(rows) == 8
    assert all(row["chosen"].startswith("good") for row in rows)
    assert "'=1+1" in files["votes.csv"]  # no spreadsheet takes it for a formula
    assert len(list_exports(judged.store, judged.study.id)) == 1
    assert "8 preferences of 24 judgements" in owner.get("/owner/export").text


def test_nothing_of_a_download_stays_behind(judged: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    archive(judged.owner().form("/owner/export", {"kinds": "human"}))
    assert list(tmp_path.iterdir()) == []


def test_the_choices_of_the_form_are_those_of_the_export(judged: World) -> None:
    owner = judged.owner()
    page = owner.get("/owner/export?kinds=llm&ties=keep&min_votes=3&weights=yes&margins=yes&preview=1").text
    assert "24 judgements = 24 other kind" in page
    assert "--kinds llm --ties keep --min-votes 3 --weights --margins" in page
    for query in ("kinds=robot", "ties=half", "min_votes=x", "min_votes=0", "versions=x"):
        told = owner.get(f"/owner/export?{query}").text
        assert f'id="{query.partition("=")[0]}-problem"' in told
        assert 'id="download" disabled' in told


def test_versions_are_not_mixed_unasked(judged: World) -> None:
    owner = judged.owner()
    owner.form("/owner/settings/question", {"question": "Which is kinder?", "scale": "3"})
    owner.form("/owner/settings/plan", {
        "overlap": "4", "policy": "random", "gold_rate": "0", "repeat_rate": "0", "training_pass": "0.5",
        "lease_seconds": "60",
    })  # fmt: skip
    rater = judged.rater()
    rater.answer(rater.next()["question"])
    page = owner.get("/owner/export").text
    assert "versions 1, 2" in page
    assert owner.form("/owner/export", {"kinds": "human"}).status_code == 400
    assert "1 used" in owner.get("/owner/export?kinds=human&versions=2").text
    both = archive(owner.form("/owner/export", {"kinds": "human", "versions": ["1", "2"]}))
    assert json.loads(both["manifest.json"])["judgements"]["used"] == 25


def test_a_large_study_is_exported_on_the_command_line(judged: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exports, "TOO_MANY", 10)
    monkeypatch.setattr(exports, "FEW_ENOUGH", 5)
    page = judged.owner().get("/owner/export?preview=1").text
    assert "too large for a download" in page
    assert "tutelage collect export" in page


def test_known_answers_show_on_the_owners_pages_only(lite: Store) -> None:
    study = make_study(lite, 24, Plan(overlap=1, gold_rate=0.5, repeat_rate=0))
    add_known(lite, study, "gold", 24)
    world = World(lite, study)
    browser: Browser = world.rater("anna")
    while (question := browser.next()["question"]) is not None:
        side = "left" if question["responses"][0]["text"].startswith("good") else "right"
        browser.answer(question, side)
    rater = next(each for each in list_raters(lite, study.id) if each.name == "anna")
    assert rater.tallies.gold_seen == rater.tallies.gold_right > 0
    page = world.owner().get("/owner/raters").text
    assert f"{rater.tallies.gold_right} of {rater.tallies.gold_seen}" in page


def test_the_order_of_events_does_not_matter_for_what_is_seen(judged: World) -> None:
    """Statistics after an answer, an exclusion and its return are those of the votes then: nothing stale is shown."""
    owner = judged.owner()
    owner.get("/owner")
    extra = add_rater(judged.store, judged.study.id, "late")
    owner.form("/owner/settings/plan", {
        "overlap": "4", "policy": "random", "gold_rate": "0", "repeat_rate": "0", "training_pass": "0.5",
        "lease_seconds": "60",
    })  # fmt: skip
    submit(judged.store, asked(judged.store, extra.id).id, Answer("tie"))
    assert ">25<" in owner.get("/owner").text.replace("</p>", "<")
    include(judged.store, judged.study.id, "rater", "late")
    create_invite(judged.store, judged.study.id)
    assert ">25<" in owner.get("/owner").text.replace("</p>", "<")


def test_recruiting_is_set_on_its_page_and_shows_link_and_cost(world: World) -> None:
    owner = world.owner()
    assert 'id="cost"' not in owner.get("/owner/recruiting").text
    values = {
        "platform": "prolific", "code": "DONE", "screened_code": "OUT", "answers": "4", "places": "3", "minutes": "30",
        "pay": "12", "currency": "GBP", "fee": "25%", "seconds": "30", "return_url": "",
    }  # fmt: skip
    for field, bad in {
        "platform": "elsewhere", "code": "", "answers": "0", "places": "x", "minutes": "9" * 30, "pay": "nan",
        "fee": "-1", "seconds": "", "return_url": "javascript:alert(1)", "currency": "x" * 11,
    }.items():  # fmt: skip
        reply = owner.form("/owner/recruiting", values | {field: bad})
        assert reply.status_code == 400, field
        assert f'id="{field}-problem"' in reply.text
    assert owner.form("/owner/recruiting", values).status_code == 303
    page = owner.get("/owner/recruiting").text
    assert "PROLIFIC_PID={{%PROLIFIC_PID%}}" in page
    assert "Total GBP" in page
    assert "0 of 3 places taken" in page


def test_the_export_page_shows_what_looks_like_personal_data_and_can_leave_it_out(lite: Store) -> None:
    world = World(lite, make_study(lite))
    rater, owner = world.rater(), world.owner()
    rater.answer(rater.next()["question"], reason="Write to <ada@example.org>, or to ada@example.org.")
    page = owner.get("/owner/export").text
    assert "2 e-mail addresses" in page
    assert '</span> reason, <a href="/owner/items/ITEM-KEY%2Fc' in page
    assert "&lt;<mark>ada@example.org</mark>&gt;" in page
    assert "--redact" not in page
    asked = owner.get("/owner/export?redact=yes&preview=1").text
    assert "--redact" in asked
    assert '<input type="hidden" name="redact" value="yes">' in asked
    for fields, there in (({}, True), ({"redact": "yes"}, False)):
        reply = owner.form("/owner/export", fields)
        with zipfile.ZipFile(io.BytesIO(reply.content)) as archive:
            votes = archive.read("votes.jsonl").decode()
        assert ("ada@example.org" in votes) is there
        assert ("[email]" in votes) is not there
