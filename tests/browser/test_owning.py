"""An owner in a real browser: looking, excluding, adjudicating, inviting, exporting."""

import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, Route, expect
from tiers import long_except

from tutelage.people import Answer, Plan, add_rater, list_votes, next_assignment, open_study, submit

from .sites import Site, go, open_rating, press, ready, saved, shown
from .test_accessibility import faults

Visit = Callable[..., Page]


def answer_all(site: Site, rater: int, choice: str) -> int:
    """Let a rater answer whatever is asked; how often that was."""
    count = 0
    while (question := next_assignment(site.store, rater)) is not None:
        said = choice if choice != "first" else ("left" if question.left.startswith("first") else "right")
        submit(site.store, question.id, Answer(said, 2))  # type: ignore[arg-type]
        count += 1
    return count


def test_an_owner_excludes_a_rater_and_exports(site: Site, visit: Visit, tmp_path: Path) -> None:
    study = site.study(pairs=10, plan=Plan(overlap=3, gold_rate=0, repeat_rate=0))
    for name in ("anna", "berta"):
        answer_all(site, add_rater(site.store, study.id, name).id, "first")
    answer_all(site, add_rater(site.store, study.id, "lefty").id, "left")
    page = visit()
    site.sign_in(page, study, "boss", role="owner")
    page.goto(f"{site.url}/owner/raters")
    page.click("text=lefty")
    expect(page.locator("#preview")).to_contain_text("Excluding removes 10 votes")
    expect(page.locator("#preview")).to_contain_text("→ 100.0")
    page.fill("#reason", "always left")
    page.click("text=Exclude lefty")
    expect(page.locator("h1")).to_contain_text("excluded")
    go(page, "Results", "Export")
    expect(page.locator("#reconciliation")).to_have_text("30 judgements = 20 used + 10 excluded")
    with page.expect_download() as download:
        page.click("#download")
    download.value.save_as(tmp_path / "export.zip")
    files = zipfile.ZipFile(tmp_path / "export.zip")
    manifest = json.loads(files.read("manifest.json"))
    assert manifest["judgements"]["total"] == 30
    assert manifest["judgements"]["used"] == 20
    assert manifest["judgements"]["excluded"] == 10
    rows = [json.loads(line) for line in files.read("preferences.jsonl").decode().splitlines()]
    assert len(rows) == 10
    assert all(row["chosen"].startswith("first") for row in rows)

    page.goto(f"{site.url}/owner/raters")
    page.click("text=lefty")
    page.click("text=Take back into account")
    go(page, "Results", "Export")
    expect(page.locator("#reconciliation")).to_contain_text("30 used")


def test_an_owner_adjudicates_on_the_raters_screen(site: Site, visit: Visit) -> None:
    study = site.study(pairs=3, plan=Plan(overlap=2, gold_rate=0, repeat_rate=0))
    answer_all(site, add_rater(site.store, study.id, "anna").id, "first")
    answer_all(site, add_rater(site.store, study.id, "otto").id, "left")
    page = visit()
    site.sign_in(page, study, "boss", role="owner")
    page.goto(f"{site.url}/owner/items?by=added")
    page.click(".items a >> nth=1")
    page.click("text=Adjudicate")
    texts = shown(page).texts
    press(page, "1 Enter" if texts[0].startswith("second") else "7 Enter")
    page.wait_for_url("**/owner/items/i1")
    expect(page.locator("tbody .tag", has_text="adjudication")).to_be_visible()
    (vote,) = [vote for vote in list_votes(site.store, study.id) if vote.chosen_by == "owner"]
    assert (vote.item, vote.rater, vote.verdict, vote.strength) == ("i1", "boss", "b", 3)


def test_figures_keep_themselves_up_to_date(site: Site, visit: Visit) -> None:
    study = site.study(pairs=5)
    page = visit(hurried=True)
    site.sign_in(page, study, "boss", role="owner")
    page.goto(f"{site.url}/owner")
    expect(page.locator("#live")).to_contain_text("0 of 5 items done")
    answer_all(site, add_rater(site.store, study.id, "anna").id, "left")
    expect(page.locator("#live")).to_contain_text("4 of 5 items done")  # one in ten gets a second rater


def test_an_invitation_made_in_the_browser_lets_somebody_in(site: Site, visit: Visit) -> None:
    study = site.study(pairs=3)
    page = visit()
    site.sign_in(page, study, "boss", role="owner")
    page.goto(f"{site.url}/owner/invitations")
    page.fill("#note", "the students")
    page.click("text=Make the link")
    expect(page.locator("#link")).to_have_value(re.compile(f"^{re.escape(site.url)}/join/"))
    link = page.input_value("#link")
    guest = visit()
    guest.goto(link)
    guest.fill("#name", "Zoë")
    guest.click("text=Start")
    guest.click("text=agree")
    shown(guest)
    press(guest, "1 Enter")
    saved(guest)
    assert [vote.rater for vote in list_votes(site.store, study.id)] == ["Zoë"]
    guest.click("#leave")
    expect(guest.locator("h1")).to_have_text("Goodbye, Zoë")
    expect(guest.locator("#link")).to_have_value(re.compile(f"^{re.escape(site.url)}/return/"))
    link = guest.input_value("#link")
    assert "Mail" in guest.inner_text("#mail")
    assert guest.get_attribute("#mail", "href") == (
        f"mailto:?subject=My%20link%20to%20tutoring&body={quote(link, safe='')}%0D%0A"
    )
    elsewhere = visit(width=360)
    elsewhere.goto(link)
    elsewhere.click("text=Continue")
    shown(elsewhere)
    press(elsewhere, "2 Enter")
    saved(elsewhere)
    assert [vote.rater for vote in list_votes(site.store, study.id)] == ["Zoë", "Zoë"]


def test_a_note_and_a_flag_reach_the_owner_who_closes_them_by_keyboard(site: Site, visit: Visit) -> None:
    study = site.study(pairs=4)
    rater = visit()
    site.sign_in(rater, study, "anna")
    rater.goto(f"{site.url}/rate")
    first = shown(rater)
    press(rater, "g")
    rater.fill("#note-text", "May I use a dictionary?")
    press(rater, "Tab Enter")
    expect(rater.locator("#note-said")).to_have_text("Sent. Thank you!")
    press(rater, "Escape 2 f 1 n")
    rater.keyboard.type("It tells how to pick locks.")
    press(rater, "Control+Enter")
    shown(rater, first.question)
    saved(rater)
    page = visit()
    site.sign_in(page, study, "boss", role="owner")
    page.goto(f"{site.url}/owner")
    expect(page.locator("nav summary .count")).to_have_text("2")
    page.click(".waiting >> text=Flags")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator("tbody tr")).to_contain_text("It tells how to pick locks.")
    page.goto(f"{site.url}/owner/inbox")
    expect(page.locator("[data-tick-all]")).to_be_enabled()
    page.focus("[data-tick-all]")
    press(page, "Enter Tab Enter")
    expect(page.locator("main")).to_contain_text("There are no open notices here.")
    expect(page.locator("nav summary .count")).to_have_count(0)


def test_items_are_found_ticked_and_excluded_together(site: Site, visit: Visit) -> None:
    study = site.study(pairs=30)
    page = visit()
    site.sign_in(page, study, "boss", role="owner")
    page.goto(f"{site.url}/owner/items?by=added")
    expect(page.locator("#found")).to_have_text("30 items, page 1 of 2.")
    scripts: list[Route] = []
    page.route("**/static/owner.js", lambda route: scripts.append(route))
    page.fill("#text", "question 2")
    press(page, "Enter")
    expect(page.locator("#found")).to_have_text("11 items.")  # 2 and 20 to 29
    expect(page.locator("[data-tick-all]")).to_be_disabled()  # until the script that ticks is there
    scripts[0].continue_()
    page.click("[data-tick-all]")
    page.uncheck("[name=item] >> nth=0")
    page.fill("#act-reason", "off the subject")
    page.click("text=Apply to the ticked items")
    expect(page.locator(".items .out")).to_have_count(10)
    assert page.input_value("#text") == "question 2"
    page.click("text=Apply to all 11")  # the reason is missing
    expect(page.locator("#reason-problem")).to_be_visible()


@pytest.mark.parametrize("width", long_except([360], [360, 1280]))
def test_labels_of_actions_stay_beside_their_fields(site: Site, visit: Visit, width: int) -> None:
    study = site.study(pairs=3)
    page = visit(width=width)
    add_rater(site.store, study.id, "anna")
    site.sign_in(page, study, "boss", role="owner")
    for name in ("items", "raters"):
        page.goto(f"{site.url}/owner/{name}")
        labels = page.locator("#act .actions label")
        assert labels.count() == 3
        for label in labels.all():
            beside = label.evaluate("""(label) => {
                const [one, other] = [label, label.control].map((each) => each.getBoundingClientRect());
                return one.top < other.bottom && other.top < one.bottom;
            }""")
            assert beside, label.inner_text()


def test_votes_from_a_file_are_mapped_looked_at_and_imported(site: Site, visit: Visit, tmp_path: Path) -> None:
    study = site.study(pairs=1)
    file = tmp_path / "votes.csv"
    file.write_text(
        "question,response_1,response_2,label,annotator\nSay hello,hi,<i>hello</i>,1,anna\nSay hi,a,b,2,otto\n"
    )
    page = visit(width=360, dark=True)
    site.sign_in(page, study, "boss", role="owner")
    page.goto(f"{site.url}/owner/import")
    (tmp_path / "notes.txt").write_text("no table")
    expect(page.locator("#file")).to_be_enabled()  # by the script that sends it
    page.set_input_files("#file", tmp_path / "notes.txt")
    expect(page.locator("#file-said")).to_contain_text("notes.txt is of no kind that can be read here")
    page.set_input_files("#file", file)
    expect(page.locator("#outcome")).to_have_text("0 votes by 0 raters (0 of them new) on 0 items.")
    for word, meaning in (("1", "a"), ("2", "b")):
        page.get_by_label(f"Meaning of {word}").select_option(f"{word}={meaning}")
    page.click("text=Look again")
    expect(page.locator("#outcome")).to_have_text("2 votes by 2 raters (2 of them new) on 2 items.")
    expect(page.locator("main")).to_contain_text("<i>hello</i>")
    assert faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert list_votes(site.store, study.id) == ()
    page.click("text=Import 2 votes")
    expect(page.locator("#report")).to_contain_text("2 new votes by 2 new raters on 2 new items")
    assert sorted(vote.rater for vote in list_votes(site.store, study.id)) == ["anna", "otto"]


def test_a_change_of_the_question_reaches_raters_at_their_next_question(site: Site, visit: Visit) -> None:
    study = site.study(pairs=6)
    rater = visit()
    site.sign_in(rater, study, "anna")
    first = open_rating(rater, site)
    ready(rater)
    page = visit()
    site.sign_in(page, study, "boss", role="owner")
    page.goto(f"{site.url}/owner/settings")
    page.fill("#question", "Which is funnier?")
    page.fill("#criteria", "funny\nkind")
    page.click("text=Save as a new version")
    expect(page.locator("h2", has_text="What raters see")).to_contain_text("version 2")
    press(rater, "1 Enter")
    ahead = shown(rater, first.question)  # it had been fetched before the change
    saved(rater)  # the reply to the first answer names the version
    press(rater, "2 Enter")
    rater.wait_for_selector("text=Which is funnier?")
    shown(rater, ahead.question)
    assert rater.locator("#criteria fieldset").count() == 2
    press(rater, "c 1 3 7 Enter")
    saved(rater)
    votes = list_votes(site.store, study.id)
    assert [vote.version for vote in votes] == [1, 1, 2]
    assert votes[2].displayed["criteria"] == {"funny": "left", "kind": "right"}
    assert open_study(site.store).version == 2


def test_a_name_without_a_space_leaves_room_for_the_other_columns(site: Site, visit: Visit) -> None:
    study = site.study(pairs=1)
    answer_all(site, add_rater(site.store, study.id, "E" * 80).id, "left")
    page = visit()
    site.sign_in(page, study, "boss", role="owner")
    for path in ("/raters", "/items/i0"):
        page.goto(f"{site.url}/owner{path}")
        for table in page.locator(".scroll").all():
            assert table.evaluate("(e) => e.scrollWidth <= e.clientWidth"), path
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
