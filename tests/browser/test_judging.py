"""A rater in a real browser: every answer arrives exactly once, as it was given, whatever happens on the way."""

import re
import statistics
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect
from tiers import long_except

from tutelage.people import Answer, add_rater, list_votes, next_assignment, release, start_session, submit
from tutelage.people.store import assignments
from tutelage.people.store.access import end_session

from .sites import QUIET, Requests, Shown, Site, open_rating, press, ready, saved, shown, until
from .test_accessibility import faults

Visit = Callable[..., Page]
CRITERIA = ("clear", "accurate")


def as_given(vote: object) -> tuple[object, ...]:
    """The displayed part of a vote."""
    said = vote.displayed  # type: ignore[attr-defined]
    return said["choice"], said.get("strength", 0), dict(said.get("criteria", {})), vote.flags, vote.reason  # type: ignore[attr-defined]


def test_ten_judgements_by_keyboard_alone_and_every_accident(site: Site, visit: Visit, tmp_path: Path) -> None:
    study = site.study(pairs=16, criteria=CRITERIA)
    page = visit()
    answers = Requests(page, "**/rate/answers")
    page.goto(site.invitation(study))
    expect(page.locator("#name")).to_be_focused()
    page.keyboard.type("Anna")
    page.keyboard.press("Enter")
    page.wait_for_url("**/welcome")
    page.keyboard.press("Tab")
    expect(page.locator("main button")).to_be_focused()
    page.keyboard.press("Enter")
    page.wait_for_url("**/rate")

    work = [
        ("1 Enter", ("left", 3, {}, (), "")),
        ("7 Enter", ("right", 3, {}, (), "")),
        ("0 Enter", ("tie", 0, {}, (), "")),
        ("x Enter", ("both_bad", 0, {}, (), "")),
        ("s 2 Enter", ("skip", 0, {}, (), "The prompt makes no sense to me")),
        ("2 f 1 5 Escape Enter", ("left", 2, {}, ("harmful", "cut_off"), "")),
        ("6 n W h y ! Escape Enter", ("right", 2, {}, (), "Why!")),
        ("c 1 2 5 Enter", ("right", 1, {"clear": "left", "accurate": "tie"}, (), "")),
        ("5 3 Enter", ("left", 1, {}, (), "")),
        ("4 n o k Control+Enter", ("tie", 0, {}, (), "ok")),
    ]
    seen: list[Shown] = []
    for keys, _ in work:
        seen.append(shown(page, seen[-1].question if seen else ""))
        press(page, keys)
    eleventh = shown(page, seen[-1].question)

    press(page, "u")  # the tenth again, with its answer in the form
    assert shown(page, eleventh.question) == seen[9]
    expect(page.locator("#editing")).to_be_visible()
    expect(page.locator("#reason")).to_have_value("ok")
    press(page, "6 Enter")
    assert shown(page, seen[9].question) == eleventh
    saved(page)

    answers.answer = Requests.lose
    press(page, "1 Enter")  # the eleventh, into the void
    twelfth = shown(page, eleventh.question)
    expect(page.locator("#save")).to_have_text(re.compile("Offline, 1 answer kept here"))
    written_by_another_tab = "dispatchEvent(new StorageEvent('storage')), document.querySelector('#save').textContent"
    assert "Offline, 1 answer kept here" in page.evaluate(written_by_another_tab)

    def take_but_not_tell(route: Route) -> None:
        route.fetch()
        route.abort("connectionreset")

    answers.answer = take_but_not_tell
    press(page, "7 Enter")  # the server gets it, but the browser is not told
    shown(page, twelfth.question)
    expect(page.locator("#save")).to_have_text(re.compile("Offline"))
    answers.answer = Requests.let
    page.reload()
    thirteenth = shown(page)
    saved(page)
    assert thirteenth.question not in {each.question for each in [*seen, eleventh, twelfth]}

    given = [answer for _, answer in work]
    changed = ("right", 2, {}, (), "ok")
    expected = [*given, changed, ("left", 3, {}, (), ""), ("right", 3, {}, (), "")]
    votes = list_votes(site.store, study.id, every_revision=True)
    assert [as_given(vote) for vote in votes] == expected
    assert [vote.revision for vote in votes] == [1] * 10 + [2] + [1] * 2
    assert [vote.latest for vote in votes] == [True] * 9 + [False] + [True] * 3
    displayed = [*seen, seen[9], eleventh, twelfth]
    for vote, screen in zip(votes, displayed, strict=True):
        responses = ("first", "second")
        assert [text.split()[0] for text in screen.texts] == [responses[side] for side in vote.sides]
        assert (vote.active_ms or 0) <= (vote.wall_ms or 0)
    exported = site.exported(study, tmp_path / "export")
    assert [(row["key"], row["displayed"]["choice"], row["reason"], row["latest"]) for row in exported] == [
        (vote.key, vote.displayed["choice"], vote.reason, vote.latest) for vote in votes
    ]


@pytest.mark.parametrize("scale", long_except([3], [1, 2, 3]))
def test_every_point_of_the_bar_arrives_as_it_was_clicked(site: Site, visit: Visit, tmp_path: Path, scale: int) -> None:
    points = [("left", s) for s in range(scale, 0, -1)] + [("tie", 0)] + [("right", s) for s in range(1, scale + 1)]
    study = site.study(pairs=len(points) + 1, scale=scale)
    page = visit()
    site.sign_in(page, study)
    before = ""
    for number in range(len(points)):
        before = open_rating(page, site).question if not before else shown(page, before).question
        page.locator(".point").nth(number).click()
        page.click("#submit")
    shown(page, before)
    page.locator(".quiet").nth(0).click()
    page.click("#submit")
    expect(page.locator("#pause")).to_be_visible()
    saved(page)
    expected = [*points, ("both_bad", 0)]
    for votes in (
        [(v.displayed["choice"], v.displayed.get("strength", 0)) for v in list_votes(site.store, study.id)],
        [(r["displayed"]["choice"], r["displayed"]["strength"]) for r in site.exported(study, tmp_path / "e")],
    ):
        assert votes == expected


def test_every_other_widget_arrives_as_it_was_clicked(site: Site, visit: Visit, tmp_path: Path) -> None:
    study = site.study(pairs=8, criteria=CRITERIA)
    page = visit()
    site.sign_in(page, study)
    first = open_rating(page, site)
    flags = page.locator("#flags input")
    names = [flags.nth(number).get_attribute("value") for number in range(flags.count())]
    page.click("#open-flags")
    for number in range(len(names)):
        page.locator("#flags .chip").nth(number).click()
    for row, chip in ((0, 2), (1, 0), (1, 1)):  # the second row twice: the last click counts
        page.locator("#criteria fieldset").nth(row).locator(".chip").nth(chip).click()
    page.click("#open-reason")
    page.fill("#reason", "two\nlines, and ünïcode 🙂")
    page.locator(".point").first.click()
    page.click("#submit")
    second = shown(page, first.question)
    reasons = page.locator("#skip-panel input")
    page.locator(".quiet").nth(1).click()
    page.locator("#skip-panel .chip").last.click()
    page.click("#open-reason")
    page.fill("#reason", "and more")
    page.click("#submit")
    shown(page, second.question)
    saved(page)
    told = reasons.last.get_attribute("value")
    votes = list_votes(site.store, study.id)
    expected = [
        ("left", 3, {"clear": "right", "accurate": "tie"}, tuple(names), "two\nlines, and ünïcode 🙂"),
        ("skip", 0, {}, (), f"{told} — and more"),
    ]
    assert [as_given(vote) for vote in votes] == expected
    rows = site.exported(study, tmp_path / "export")
    said = [
        (r["displayed"]["choice"], r["displayed"].get("criteria", {}), tuple(r["flags"]), r["reason"]) for r in rows
    ]
    assert said == [(choice, criteria, flags, reason) for choice, _, criteria, flags, reason in expected]
    press(page, "u")  # the form shows again what was said
    assert shown(page).question == second.question
    expect(page.locator("#skip-panel input").last).to_be_checked()
    expect(page.locator("#reason")).to_have_value("and more")
    press(page, "Escape Escape u u")
    assert shown(page).question == first.question
    assert page.locator("#flags input:checked").count() == len(names)


@pytest.mark.parametrize("scale", long_except([7], [5, 7]))
def test_ratings_arrive_as_they_were_given(site: Site, visit: Visit, tmp_path: Path, scale: int) -> None:
    texts = [[f"text {place}" for place in "abc"]] * 3
    study = site.study(texts, kind="likert", scale=scale, criteria=("clear", "correct"))
    page = visit()
    site.sign_in(page, study)
    first = open_rating(page, site)
    press(page, "Enter")
    expect(page.locator("#hint")).to_contain_text("every response a rating on every criterion")
    expect(page.locator("#order")).to_have_text(f"0 of 6 ratings given; 1 is worst, {scale} is best.")
    press(page, f"5 4 3 2 1 {scale}")
    expect(page.locator("#order")).to_have_text("Everything is rated.")
    press(page, "Enter")
    second = shown(page, first.question)
    given = ((1, 2), (3, 4), (5, 1))
    for place, ratings in enumerate(given):
        rows = page.locator(".response").nth(place).locator("[data-rating]")
        for row, rating in enumerate(ratings):
            rows.nth(row).locator(".chip").nth(rating - 1).click()
    page.click("#undo")
    expect(page.locator("#editing")).to_be_visible()
    assert page.locator(".response").first.locator("input:checked").first.input_value() == "5"
    press(page, "Escape")
    assert shown(page, first.question) == second
    page.click("#submit")
    shown(page, second.question)
    press(page, "s 1 Enter")
    expect(page.locator("#pause")).to_be_visible()
    saved(page)
    votes = list_votes(site.store, study.id)
    assert [vote.verdict for vote in votes] == ["rated", "rated", "skip"]
    assert votes[0].displayed["ratings"] == {"clear": [5, 3, 1], "correct": [4, 2, scale]}
    assert votes[1].displayed["ratings"] == {"clear": [1, 3, 5], "correct": [2, 4, 1]}
    for vote, screen in zip(votes[:2], (first, second), strict=True):
        for name in ("clear", "correct"):
            rated = {f"text {'abc'[n]}": vote.content["ratings"][name][n] for n in range(3)}  # type: ignore[index]
            assert [rated[text] for text in screen.texts] == vote.displayed["ratings"][name]  # type: ignore[index]
    assert len(site.exported(study, tmp_path / "export")) == 3


def test_verdicts_on_the_criteria_of_each_prompt_arrive_as_they_were_given(site: Site, visit: Visit) -> None:
    study = site.study([[f"text {place}" for place in "abc"]] * 2, kind="checklist", scale=2)
    page = visit()
    site.sign_in(page, study)
    first = open_rating(page, site)
    press(page, "Enter")
    expect(page.locator("#hint")).to_contain_text("every criterion of every response")
    expect(page.locator("#order")).to_have_text("0 of 6 criteria decided.")
    press(page, "1 2 3 1 2 2")
    expect(page.locator("#order")).to_have_text("Everything is decided.")
    press(page, "Enter")
    shown(page, first.question)
    page.click("#undo")
    expect(page.locator("#editing")).to_be_visible()
    checked = page.locator(".response input:checked")
    given = ["met", "unmet", "unsure", "met", "unmet", "unmet"]
    assert [checked.nth(place).input_value() for place in range(6)] == given
    press(page, "Enter")
    saved(page)
    (vote,) = [vote for vote in list_votes(site.store, study.id) if vote.latest]
    names = list(vote.displayed["verdicts"])  # type: ignore[call-overload]
    assert names[1] == "__proto__"
    assert names[0].startswith("Is right about")
    assert vote.displayed["verdicts"] == {names[0]: given[::2], names[1]: given[1::2]}


def test_practice_with_ratings_says_which_response_is_better(site: Site, visit: Visit) -> None:
    study = site.study([("good", "bad")], kind="likert", scale=5, pool="training")
    page = visit()
    site.sign_in(page, study, training=True)
    texts = open_rating(page, site).texts
    press(page, " ".join("5" if text == "bad" else "1" for text in texts) + " Enter")
    expect(page.locator("#lesson-title")).to_have_text(f"We would say: {'AB'[texts.index('good')]} is better")


def test_a_ranking_arrives_as_it_was_given(site: Site, visit: Visit, tmp_path: Path) -> None:
    study = site.study([[f"text {place}" for place in "abcd"]] * 3, kind="ranking")
    page = visit()
    site.sign_in(page, study)
    first = open_rating(page, site)
    press(page, "Enter")
    expect(page.locator("#hint")).to_contain_text("Give every response a rank")
    press(page, "2 1 4 2")
    expect(page.locator("#order")).to_have_text("B  >  A = D  >  C")
    press(page, "Enter")
    second = shown(page, first.question)
    for place, rank in enumerate((3, 3, 1, 2)):
        page.locator(".response").nth(place).locator(".chip").nth(rank - 1).click()
    page.locator(".response").nth(0).locator(".chip").nth(0).click()
    page.click("#submit")
    third = shown(page, second.question)
    press(page, "x Enter")
    expect(page.locator("#pause")).to_be_visible()
    saved(page)
    votes = list_votes(site.store, study.id)
    assert [tuple(vote.displayed.get("ranking", ())) for vote in votes] == [(2, 1, 4, 2), (1, 3, 1, 2), ()]
    assert [vote.verdict for vote in votes] == ["ranked", "ranked", "both_bad"]
    for vote, screen in zip(votes[:2], (first, second), strict=True):
        ranked = {f"text {'abcd'[index]}": vote.content["ranking"][index] for index in range(4)}
        assert [ranked[text] for text in screen.texts] == list(vote.displayed["ranking"])  # type: ignore[call-overload]
    assert third.question not in (first.question, second.question)
    assert len(site.exported(study, tmp_path / "export")) == 3


def test_a_draft_survives_a_reload(site: Site, visit: Visit) -> None:
    study = site.study(pairs=4, criteria=CRITERIA)
    page = visit()
    site.sign_in(page, study)
    before = open_rating(page, site)
    press(page, "c 3 1 6 f 2 Escape n h a l f")
    page.reload()
    assert shown(page) == before
    expect(page.locator("#reason")).to_have_value("half")
    assert page.locator("#criteria input:checked").count() == 2
    press(page, "Escape Enter")
    shown(page, before.question)
    saved(page)
    (vote,) = list_votes(site.store, study.id)
    assert as_given(vote) == ("right", 2, {"clear": "right", "accurate": "left"}, ("personal_data",), "half")


def test_nothing_is_sent_by_mistake(site: Site, visit: Visit) -> None:
    study = site.study(pairs=4)
    page = visit()
    site.sign_in(page, study)
    first = open_rating(page, site)
    press(page, "Enter Enter")
    expect(page.locator("#hint")).to_contain_text("Choose a verdict first")
    press(page, "s Enter")
    expect(page.locator("#hint")).to_contain_text("Say why")
    ready(page)
    press(page, "5 Enter Enter Enter")
    second = shown(page, first.question)
    expect(page.locator("#hint")).to_be_visible()
    saved(page)
    assert len(list_votes(site.store, study.id)) == 1
    press(page, "u 1 Escape")  # looked at, not changed
    assert shown(page, "").question == second.question
    press(page, "? 1 Escape")  # digits do nothing behind a dialog
    assert page.locator("[name=verdict]:checked").count() == 0
    press(page, "?")
    page.uncheck("#keys-on")
    press(page, "Escape 7")
    assert page.locator("[name=verdict]:checked").count() == 0
    assert [vote.displayed["choice"] for vote in list_votes(site.store, study.id)] == ["right"]


def test_practice_a_pause_and_the_end(site: Site, visit: Visit) -> None:
    study = site.study(pairs=26)
    site.add(study, [("first, of course", "second at best")], pool="training", start=100)
    page = visit()
    site.sign_in(page, study, training=True)
    question = open_rating(page, site)
    press(page, "1 Enter" if question.texts[0].startswith("second") else "7 Enter")
    expect(page.locator("#lesson-title")).to_have_text(re.compile("We would say: [AB] is better"))
    expect(page.locator("#lesson em")).to_have_text("First")
    assert page.locator("#responses .text").all_inner_texts() == list(question.texts)  # still there to learn from
    assert sorted(page.locator(".mark").all_inner_texts()) == ["our choice", "your choice"]
    assert not page.locator("#verdict").is_visible()
    press(page, "1 x f")  # nothing left to choose
    assert page.locator("#flags").is_hidden()
    press(page, "Enter")
    expect(page.locator("#pause-title")).to_have_text(re.compile("Stopped for now"))

    other = visit()
    site.sign_in(other, study, "berta", training=True)
    question = open_rating(other, site)
    expect(other.locator("#progress-text")).to_have_text("Practice: 0 of 1")
    press(other, "7 Enter" if question.texts[0].startswith("second") else "1 Enter")
    expect(other.locator("#lesson-title")).to_have_text(re.compile("Yes: [AB] is better"))
    expect(other.locator("#progress-text")).to_have_text("0 answered · about 25 left")
    press(other, "Enter")
    expect(other.locator("#pause-title")).to_have_text("The practice is over")
    press(other, "Enter")
    seen = shown(other, question.question).question
    for number in range(25):
        press(other, "4 Enter")
        if number < 24:
            seen = shown(other, seen).question
    expect(other.locator("#pause-title")).to_have_text("Time for a break")
    press(other, "Enter")
    shown(other, seen)
    press(other, "4 Enter")
    expect(other.locator("#pause-title")).to_have_text("That is all for now")
    expect(other.locator("#progress-text")).to_have_text("26 answered")
    expect(other.locator("#pause-text")).to_contain_text("everything there is to answer")
    saved(other)
    assert sum(vote.rater == "berta" for vote in list_votes(site.store, study.id)) == 27


def test_when_the_session_is_over_the_answer_waits_for_its_rater(site: Site, visit: Visit) -> None:
    study = site.study(pairs=4)
    page = visit()
    number = site.sign_in(page, study)
    first = open_rating(page, site)
    (cookie,) = page.context.cookies()
    end_session(site.store, str(cookie["value"]))
    press(page, "2 Enter")
    expect(page.locator("#notice")).to_contain_text("personal link")
    expect(page.locator("#save")).to_contain_text("1 answer kept here")
    assert list_votes(site.store, study.id) == ()
    page.goto(f"{site.url}/return/{start_session(site.store, number)}")
    page.click("main button")
    page.wait_for_url("**/rate")
    shown(page, first.question)
    saved(page)
    assert [vote.displayed["choice"] for vote in list_votes(site.store, study.id)] == ["left"]


def test_a_server_that_is_away_loses_nothing_and_is_never_the_end(site: Site, visit: Visit) -> None:
    study = site.study(pairs=8)
    page = visit()
    site.sign_in(page, study)
    seen = [open_rating(page, site).question]
    ready(page)
    page.context.set_offline(True)
    for key in "123":
        press(page, f"{key} Enter")
        seen.append(shown(page, seen[-1]).question)  # fetched ahead
    press(page, "5 Enter")
    expect(page.locator("#pause-title")).to_have_text("The server cannot be reached")
    expect(page.locator("#save")).to_contain_text("4 answers kept here")
    page.context.set_offline(False)
    seen.append(shown(page, seen[-1]).question)  # by itself
    saved(page)
    assert len(set(seen)) == 5
    votes = list_votes(site.store, study.id)
    assert [str(vote.assignment) for vote in votes] == seen[:4]
    assert [vote.displayed["strength"] for vote in votes] == [3, 2, 1, 1]


def test_what_lies_ready_too_long_is_asked_for_again(site: Site, visit: Visit) -> None:
    """After a long lunch others have answered what was reserved here: nobody is asked in vain."""
    study = site.study(pairs=8)
    page = visit()
    rater = site.sign_in(page, study)
    first = open_rating(page, site).question
    ready(page)
    assert held(site, rater) == 4
    release(site.store, rater)
    other = add_rater(site.store, study.id, "berta").id
    for _ in range(4):
        question = next_assignment(site.store, other)
        assert question is not None
        submit(site.store, question.id, Answer("tie"))
    page.evaluate("() => { const now = Date.now; Date.now = () => now() + 660_000; }")
    press(page, "2 Enter")
    until(lambda: page.get_attribute("#screen", "data-question") not in (None, first))
    until(lambda: len(list_votes(site.store, study.id)) == 5)
    second, votes = page.get_attribute("#screen", "data-question"), list_votes(site.store, study.id)
    assert second is not None
    assert int(second) > max(vote.assignment for vote in votes)  # reserved now, not one of those that lay ready


def held(site: Site, rater: int) -> int:
    with site.store.read() as connection:
        return len(assignments.held_assignments(connection, rater))


def test_the_next_pair_is_there_at_once(site: Site, visit: Visit) -> None:
    """From the key to the new question on the page, in the page's own clock: 100 ms at the median on a machine that has
    nothing else to do. On a busy one two empty frames of the page take longer as well, and the limit with them."""
    study = site.study(pairs=24, plan=QUIET)
    page = visit()
    site.sign_in(page, study)
    seen = open_rating(page, site).question
    page.evaluate(
        """() => {
            window.times = [];
            let pressed = 0;
            addEventListener("keydown", (event) => { if (event.key === "Enter") pressed = performance.now(); }, true);
            new MutationObserver(() => requestAnimationFrame(() => window.times.push(performance.now() - pressed)))
                .observe(document.querySelector("#screen"), { attributeFilter: ["data-question"] });
        }"""
    )
    for _ in range(15):
        expect(page.locator("#screen")).not_to_have_attribute("data-ready", "0")  # nobody reads faster
        press(page, "4 Enter")
        seen = shown(page, seen).question
    times = page.evaluate("() => new Promise((resolve) => requestAnimationFrame(() => resolve(window.times)))")
    print(f"\nEnter to next pair: median {statistics.median(times):.0f} ms, slowest {max(times):.0f} ms")
    assert len(times) == 15
    empty = page.evaluate(
        """async () => {
            const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
            const times = [];
            for (let n = 0; n < 15; n += 1) {
                const began = performance.now();
                await frame();
                await frame();
                times.push(performance.now() - began);
            }
            return times;
        }"""
    )
    assert statistics.median(times) < max(300, 5 * statistics.median(empty))


def test_questions_lie_ready_again_once_answers_that_were_long_on_their_way_have_come(site: Site, visit: Visit) -> None:
    """A rater holds five questions at most, and answers that have not arrived count among them."""
    study = site.study(pairs=12)
    page = visit(hurried=True)
    site.sign_in(page, study)
    answers, asked = Requests(page, "**/rate/answers"), Requests(page, "**/rate/next")
    waiting: list[Route] = []
    answers.answer = waiting.append
    given: list[object] = []

    def note(route: Route) -> None:
        response = route.fetch()
        given.append(response.json()["question"])
        route.fulfill(response=response)

    asked.answer = note
    seen = open_rating(page, site).question
    ready(page)
    for left in (3, 2, 1, 0):
        press(page, "4 Enter")
        seen = shown(page, seen).question
        ready(page, left)
    until(lambda: page.evaluate("true") and given[-1] is None)
    answers.answer = Requests.let
    waiting[0].continue_()
    ready(page)
    assert shown(page).question == seen


def test_nothing_before_the_first_answer_is_changed(site: Site, visit: Visit) -> None:
    """The key of an earlier answer does nothing where there is none, and the question is asked once."""
    study = site.study(pairs=3)
    page = visit()
    site.sign_in(page, study)
    first = open_rating(page, site).question
    press(page, "u 1 Enter")
    second = shown(page, first).question
    press(page, "2 Enter")
    assert shown(page, second).question not in (first, second)
    saved(page)
    assert [vote.revision for vote in list_votes(site.store, study.id)] == [1, 1]


def test_an_earlier_answer_is_changed_while_the_next_question_is_on_its_way(site: Site, visit: Visit) -> None:
    study = site.study(pairs=3)
    page = visit()
    site.sign_in(page, study)
    waiting: list[Route] = []
    holds = [False, True]  # the first request goes through, and later ones once this is changed

    def hold(route: Route) -> None:
        if holds.pop(0) if len(holds) > 1 else holds[0]:
            waiting.append(route)
        else:
            route.continue_()

    Requests(page, "**/rate/next").answer = hold
    first = open_rating(page, site).question
    press(page, "1 Enter")
    expect(page.locator("#screen")).to_have_attribute("aria-busy", "true")
    press(page, "u")
    expect(page.locator("#editing")).to_be_visible()
    holds[0] = False
    waiting[0].continue_()
    ready(page, 1)  # the next question has come, and the one after it
    expect(page.locator("#editing")).to_be_visible()
    press(page, "7 Enter")
    assert shown(page, first).question != first
    expect(page.locator("#editing")).to_be_hidden()
    saved(page)
    votes = list_votes(site.store, study.id)
    assert [(vote.displayed["choice"], vote.revision) for vote in votes] == [("right", 2)]


def test_nothing_is_asked_once_leave_was_pressed(site: Site, visit: Visit) -> None:
    """The server ends the session before the browser has the page that follows: a question that is fetched ahead in
    between would be refused, with an error in the console."""
    study = site.study(pairs=3)
    page = visit()
    errors: list[str] = []
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    questions, leaving = Requests(page, "**/rate/next"), Requests(page, "**/leave")
    site.sign_in(page, study)
    open_rating(page, site)
    ready(page, 2)
    asked: list[str] = []
    held: list[Route] = []
    questions.answer, leaving.answer = lambda route: asked.append(route.request.url), held.append
    page.evaluate("""() => {
        const leave = document.querySelector("#leave");
        leave.form.addEventListener("submit", () => dispatchEvent(new Event("online")));  // time to fetch one more
        setTimeout(() => leave.click());
    }""")
    until(lambda: page.wait_for_timeout(20) is None and len(held) == 1)
    assert asked == []  # it would have come before
    held[0].continue_()
    expect(page.locator("h1")).to_contain_text("Goodbye")
    assert errors == []


def test_practice_is_answered_once_however_often_enter_is_pressed(site: Site, visit: Visit) -> None:
    study = site.study([("first", "second")], pool="training")
    page = visit()
    site.sign_in(page, study, training=True)
    waiting: list[Route] = []
    Requests(page, "**/rate/answers").answer = waiting.append
    open_rating(page, site)
    press(page, "1 Enter Enter Enter")
    until(lambda: page.evaluate("true") and len(waiting) == 1)  # looking at the page lets its requests through
    waiting[0].continue_()
    expect(page.locator("#lesson")).to_be_visible()
    saved(page)
    assert len(waiting) == 1
    assert len(list_votes(site.store, study.id, every_revision=True)) == 1


def test_the_bar_and_its_words_say_the_same_of_what_is_left(site: Site, visit: Visit) -> None:
    """With a network and without one, with answers that say nothing and answers that are changed."""
    study = site.study(pairs=6)
    page = visit()
    answers = Requests(page, "**/rate/answers")
    site.sign_in(page, study)
    question = open_rating(page, site).question

    def told(words: str, value: int, most: int) -> None:
        expect(page.locator("#progress-text")).to_have_text(words)
        bar = page.locator("#progress")
        assert [bar.evaluate(f"bar => bar.{name}") for name in ("value", "max")] == [value, most]

    told("0 answered · about 6 left", 0, 6)
    press(page, "1 Enter")
    question = shown(page, question).question
    told("1 answered · about 5 left", 1, 6)
    press(page, "s 1 Enter")  # no answer, but a question less
    question = shown(page, question).question
    saved(page)
    told("1 answered · about 4 left", 1, 5)
    press(page, "u 1 Enter")  # an answer after all
    shown(page)
    saved(page)
    told("2 answered · about 4 left", 2, 6)
    ready(page)
    answers.answer = Requests.lose
    press(page, "1 Enter")
    question = shown(page, question).question
    told("3 answered · about 3 left", 3, 6)
    press(page, "u s 1 Enter")  # and one that says nothing in the end
    shown(page)
    told("2 answered · about 3 left", 2, 5)
    answers.answer = Requests.let
    page.reload()
    shown(page)
    saved(page)
    page.reload()
    shown(page)
    told("2 answered · about 3 left", 2, 5)


def test_whoever_is_asked_for_more_than_there_is_is_thanked_and_not_kept_waiting(site: Site, visit: Visit) -> None:
    study = site.study(pairs=2, plan=replace(QUIET, overlap=2))
    page = visit()
    site.sign_in(page, study, quota=5)
    question = open_rating(page, site).question
    expect(page.locator("#progress-text")).to_have_text("0 answered · about 2 left")
    press(page, "1 Enter")
    shown(page, question)
    slow = add_rater(site.store, study.id, "slow")
    assert next_assignment(site.store, slow.id) is not None  # somebody else holds what this rater has answered
    press(page, "1 Enter")
    expect(page.locator("#pause-text")).to_contain_text("with 2 of 5 answers you are done")
    expect(page.locator("#pause-text")).to_contain_text("Thank you!")
    expect(page.locator("#progress-text")).to_have_text("2 answered")


def test_a_rater_without_a_quota_counts_up_to_a_break(site: Site, visit: Visit) -> None:
    study = site.study(pairs=40)
    page = visit()
    rater = site.sign_in(page, study)
    for _ in range(24):
        question = next_assignment(site.store, rater)
        assert question is not None
        submit(site.store, question.id, Answer("tie"))
    last = open_rating(page, site).question
    expect(page.locator("#progress-text")).to_have_text("24 answered · 24 of 25 until a break")
    press(page, "4 Enter")
    expect(page.locator("#pause-text")).to_contain_text("25 answers")
    press(page, "Enter")
    shown(page, last)
    expect(page.locator("#progress-text")).to_have_text("25 answered · about 15 left")


LONG = "\n\n".join(f"Paragraph {number} with [a link](https://example.org/{number})." for number in range(120))


@pytest.mark.parametrize("width", long_except([390], [390, 1280]))
def test_a_very_long_response_is_judged_once_it_was_opened(site: Site, visit: Visit, width: int) -> None:
    """By key, by its button, or by a focus in the hidden part; it can be skipped unread, and is open in a change."""
    study = site.study([(LONG, LONG)] * 4)
    page = visit(width=width)
    site.sign_in(page, study)
    question = open_rating(page, site).question
    folded, buttons = page.locator(".folded"), page.locator(".unfold")
    expect(folded).to_have_count(2)
    assert faults(page) == []
    press(page, "2 Enter")
    expect(page.locator("#hint")).to_contain_text("A")
    buttons.first.click()
    press(page, "Enter")
    expect(page.locator("#hint")).to_contain_text("B")
    page.locator("#responses .response").last.locator("a").last.focus()
    expect(folded).to_have_count(0)
    page.locator("#ask").focus()
    press(page, "Enter")
    question = shown(page, question).question
    press(page, "s 1 Enter")
    shown(page, question)
    press(page, "u u")
    expect(folded).to_have_count(0)
    press(page, "Escape")
    expect(folded).to_have_count(2)
    press(page, "o")
    expect(folded).to_have_count(0)
    saved(page)
    assert [vote.verdict for vote in list_votes(site.store, study.id)][1] == "skip"


@pytest.mark.parametrize(("width", "height"), long_except([(390, 780)], [(390, 780), (1280, 860), (640, 430)]))
def test_the_verdict_is_at_the_bottom_of_the_screen_whatever_the_length(
    site: Site, visit: Visit, width: int, height: int
) -> None:
    """For short texts and long ones, at the top and the bottom of the page; nothing in focus is behind it."""
    study = site.study([("short", "short"), (LONG[:2_000], LONG)])
    page = visit(width=width, height=height)
    site.sign_in(page, study)
    question = open_rating(page, site).question
    bottom = "document.querySelector('#verdict').getBoundingClientRect().bottom"
    for _ in range(2):
        press(page, "o")
        for place in ("0", "document.body.scrollHeight"):
            page.evaluate(f"scrollTo(0, {place})")
            assert abs(page.evaluate(bottom) - height) < 1
        page.locator("#open-reason").focus()
        clear = "document.activeElement.getBoundingClientRect().bottom"
        page.locator("#open-reason").evaluate("e => e.scrollIntoView({ block: 'nearest' })")
        assert page.evaluate(f"{clear} <= document.querySelector('#verdict').getBoundingClientRect().top")
        page.locator("#ask").focus()
        press(page, "4 Enter")
        if question:
            shown(page, question)
            question = ""


def test_what_is_left_is_rounded_to_what_is_known(site: Site, visit: Visit) -> None:
    page = visit()
    site.sign_in(page, site.study(pairs=1))
    open_rating(page, site)
    script = "async (counts) => { const { about } = await import('/static/progress.js'); return counts.map(about); }"
    exact = list(range(20))
    assert page.evaluate(script, exact) == exact
    counts = [20, 22, 23, 97, 98, 99, 100, 104, 106, 994, 996, 1_049, 1_234, 98_765]
    rounded = [20, 20, 25, 95, 100, 100, 100, 100, 110, 990, 1_000, 1_000, 1_200, 99_000]
    assert page.evaluate(script, counts) == rounded
