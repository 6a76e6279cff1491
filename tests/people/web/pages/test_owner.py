"""The owner's pages: what they show is what the votes say, and what they change can be changed back."""

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tutelage.people import (
    Answer,
    Plan,
    Store,
    add_rater,
    create_invite,
    get_rater,
    include,
    label_study,
    list_events,
    list_invites,
    list_raters,
    list_votes,
    open_study,
    submit,
)
from tutelage.people.selection import Selection
from tutelage.people.store.exports import list_exports, list_versions
from tutelage.people.web.pages.owner import exports
from tutelage.people.web.pages.owner.items import item_address

from ...worlds import asked, better, raters_of, work
from ..conftest import Browser, World, add_known, make_study

PAGES = ["", "/history", "/raters", "/items", "/models", "/settings", "/invitations", "/export"]


@pytest.fixture
def judged(lite: Store, monkeypatch: pytest.MonkeyPatch) -> World:
    """Three raters of eight items: two who know, one who always says left. Figures are computed while a page waits, as
    they are on a machine that is not busy."""
    monkeypatch.setattr("tutelage.people.web.figures.keeping.PROMPT_SECONDS", 1_000.0)
    study = make_study(lite, 8, Plan(overlap=3, gold_rate=0, repeat_rate=0), criteria=("clear",))
    careful = raters_of(lite, study, 2)
    work(lite, careful, lambda question: Answer(better(question).choice, 2, active_ms=20_000))
    spammer = add_rater(lite, study.id, "lefty")
    work(
        lite,
        [spammer.id],
        lambda question: Answer("left", 3, active_ms=900, reason="=1+1 <script>", flags=("broken",)),
    )
    return World(lite, study)


@pytest.mark.parametrize("page", PAGES)
def test_every_page_opens_on_an_empty_study_and_on_a_full_one(world: World, judged: World, page: str) -> None:
    for each in (world, judged):
        reply = each.owner().get(f"/owner{page}")
        assert reply.status_code == 200
        assert "<h1" in reply.text


@pytest.fixture
def world(lite: Store) -> World:
    return World(lite, make_study(lite, 0, name="empty"))


def test_the_figures_are_those_of_the_votes(judged: World) -> None:
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


@pytest.mark.parametrize(
    "page", ["https://evil.test", "//evil.test", "/\\evil.test", "/owner/\\..", "", "/rate"]
)
def test_an_exclusion_leads_nowhere_else(judged: World, page: str) -> None:
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
    from tutelage.people import Item, add_items, create_study

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
    assert owner.get("/owner/items?by=added&page=2").text.count('href="/owner/items/') == 0


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
    assert (
        list_events(judged.store, judged.study.id, action="rater_paused")[0].detail["why"] == "a talk first"
    )
    owner.form(f"/owner/raters/{rater.id}", {"state": "active", "quota": "7"})
    assert get_rater(judged.store, rater.id).quota == 7
    assert owner.form(f"/owner/raters/{rater.id}", {"state": "active", "quota": "-1"}).status_code == 400
    for number in ("0", "999", "x", "1" * 30):
        assert owner.get(f"/owner/raters/{number}").status_code == 404


def test_an_invitation_is_made_shown_once_and_withdrawn(judged: World) -> None:
    owner = judged.owner()
    page = owner.form(
        "/owner/invitations", {"role": "rater", "uses": "3", "days": "2", "note": "class <4b>"}
    ).text
    link = page.split('value="/join/')[1].split('"')[0]
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


def test_a_personal_link_brings_a_rater_back(judged: World) -> None:
    owner = judged.owner()
    rater = list_raters(judged.store, judged.study.id)[0]
    page = owner.form(f"/owner/raters/{rater.id}/link").text
    link = page.split('value="/return/')[1].split('"')[0]
    assert rater.name in judged.nobody().get(f"/return/{link}").text


def test_the_history_tells_who_did_what(judged: World) -> None:
    owner = judged.owner()
    owner.form(
        "/owner/exclusions", {"scope": "rater", "name": "lefty", "reason": "because <b>", "page": "/owner"}
    )
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
    owner.form(
        "/owner/exclusions", {"scope": "rater", "name": "lefty", "reason": "always left", "page": "/owner"}
    )
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


def test_nothing_of_a_download_stays_behind(
    judged: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    archive(judged.owner().form("/owner/export", {"kinds": "human"}))
    assert list(tmp_path.iterdir()) == []


def test_the_choices_of_the_form_are_those_of_the_export(judged: World) -> None:
    owner = judged.owner()
    page = owner.get("/owner/export?kinds=llm&ties=keep&min_votes=3&weights=yes&margins=yes&preview=1").text
    assert "24 judgements = 24 other kind" in page
    assert "--kinds llm --ties keep --min-votes 3 --weights --margins" in page
    for query in ("kinds=robot", "ties=half", "min_votes=x", "min_votes=0", "versions=x"):
        assert owner.get(f"/owner/export?{query}").status_code == 400


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


def test_a_large_study_is_exported_on_the_command_line(
    judged: World, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    """Figures after an answer, an exclusion and its return are those of the votes then: nothing stale is shown."""
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
