"""Better responses and marked words in a real browser: they arrive as they were given, by key, mouse and finger."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tiers import long_except

from tutelage.data.records import CompletionRecord, Message, Prompt, user
from tutelage.people import Item, Study, add_items, exclude, list_questions, list_votes
from tutelage.people.answers import Correction, Span

from .sites import Site, open_rating, press, ready, saved, shown, until
from .test_accessibility import faults

Visit = Callable[..., Page]
TEXTS = [("The whale is the *largest* fish \U0001f433 of all.", "Whales sing, and are mammals.")] * 8
CATEGORIES = ("fact", "tone")


def asking(site: Site, texts: Any = TEXTS, **more: Any) -> Study:
    return site.study(texts, **{"corrections": True, "spans": CATEGORIES, **more})


def place_of(page: Page, begin: str) -> int:
    """The place of the response that begins so."""
    texts = page.locator("#responses .text").all_inner_texts()
    return [text.startswith(begin) for text in texts].index(True)


def marked(text: str, words: str, category: str, response: int = 0) -> Span:
    start = text.index(words)
    return Span(response, start, start + len(words), category)


def test_all_by_keyboard_through_a_reload_and_without_a_network(site: Site, visit: Visit, tmp_path: Path) -> None:
    study = asking(site)
    page = visit()
    site.sign_in(page, study)
    first = open_rating(page, site)
    whale = place_of(page, "The whale")
    press(page, ("7" if whale else "1") + " w")  # begins with the better one
    expect(page.locator("#correction")).to_be_focused()
    expect(page.locator("#correction")).to_have_value(TEXTS[0][0])
    press(page, "Control+Enter")
    second = shown(page, first.question)  # without a change there is nothing to send
    whale = place_of(page, "The whale")
    press(page, "1 w")
    page.keyboard.press("Control+A")
    page.keyboard.type("The whale is the largest animal \U0001f433.")
    press(page, "Escape e")
    expect(page.locator(".word").first).to_be_focused()
    if whale:
        page.locator(".words").nth(whale).locator(".word").first.focus()
    press(page, "ArrowRight ArrowRight ArrowRight ArrowRight")
    expect(page.locator(".word:focus")).to_have_text("*")
    press(page, "Shift+ArrowRight Shift+ArrowRight Shift+ArrowRight 1")  # *largest* fish
    expect(page.locator("#palette-hint")).to_have_text("“*largest* fish” is marked: fact.")
    press(page, "End Space ArrowLeft Space 2")  # all .
    press(page, "Home 1 Delete")
    press(page, "Enter")  # ends marking, and sends nothing
    expect(page.locator("#palette")).to_be_hidden()
    expect(page.locator("#ask")).to_be_focused()
    assert page.locator("#responses em").inner_text() == "largest"  # formatted again
    page.reload()
    assert shown(page) == second
    expect(page.locator("#correction")).to_have_value("The whale is the largest animal \U0001f433.")
    expect(page.locator("#spans li")).to_have_count(2)
    ready(page)
    page.context.set_offline(True)
    press(page, "Enter")
    third = shown(page, second.question)
    expect(page.locator("#save")).to_contain_text("1 answer kept here")
    expect(page.locator("#correction-panel")).to_be_hidden()
    page.context.set_offline(False)
    saved(page)
    press(page, "u")
    expect(page.locator("#editing")).to_be_visible()
    expect(page.locator("#correction")).to_have_value("The whale is the largest animal \U0001f433.")
    press(page, "Escape")
    shown(page, second.question)
    press(page, "x w")  # neither is good
    expect(page.locator("#correction")).to_have_value("")
    page.keyboard.type("Anew.")
    press(page, "Control+Enter")
    shown(page, third.question)
    press(page, "x w 2")  # in the group of starts a digit chooses one
    saved(page)
    votes = list_votes(site.store, study.id)
    text = TEXTS[0][0]
    edited = [Correction("The whale is the largest animal \U0001f433.", side) for side in (0, 1)]
    assert [vote.correction for vote in votes] == [None, votes[1].correction, Correction("Anew.")]
    assert votes[1].correction == edited[votes[1].sides[0]]
    assert votes[1].spans == (marked(text, "*largest* fish", "fact"), marked(text, "all.", "tone"))
    rows = site.exported(study, tmp_path / "export")
    assert [row["correction"] and row["correction"]["text"] for row in rows] == [
        None, "The whale is the largest animal \U0001f433.", "Anew.",
    ]  # fmt: skip
    assert [[span["category"] for span in row["spans"]] for row in rows] == [[], ["fact", "tone"], []]


def test_by_mouse_and_by_finger(site: Site, visit: Visit) -> None:
    study = asking(site)
    page = visit()
    site.sign_in(page, study)
    first = open_rating(page, site)
    mammals = place_of(page, "Whales")
    page.click("#open-spans")
    words = page.locator(".words").nth(mammals).locator(".word")
    one, other = words.filter(has_text="Whales").bounding_box(), words.filter(has_text="sing").bounding_box()
    assert one is not None
    assert other is not None
    page.mouse.move(one["x"] + 4, one["y"] + 8)
    page.mouse.down()
    page.mouse.move(other["x"] + other["width"] - 4, other["y"] + 8, steps=4)
    page.mouse.up()
    page.click("[data-category=tone]")
    words.filter(has_text="are").click()
    words.filter(has_text="mammals").click()
    page.click("[data-category=fact]")
    words.filter(has_text="and").click()
    words.filter(has_text="and").click()  # taken back
    page.click("#palette-unmark")
    expect(page.locator("#palette-hint")).to_have_text("Choose the words first.")
    page.click("#palette-done")
    expect(page.locator("#spans q")).to_have_text(["Whales sing", "are mammals"])
    page.locator("#spans button").first.click()
    page.locator(".point").first.click()
    page.click("#submit")
    shown(page, first.question)

    phone = visit(width=360, height=740, has_touch=True)
    site.sign_in(phone, study, "berta")
    question = open_rating(phone, site)
    mammals = place_of(phone, "Whales")
    phone.locator("#open-correction").tap()
    phone.locator("#correction-starts .chip").nth(2).tap()
    phone.locator("#correction").fill("Neu: zwei\nZeilen")
    phone.locator("#open-spans").tap()
    phone.locator(".words").nth(mammals).locator(".word").first.tap()
    phone.locator("[data-category=fact]").tap()
    for button in phone.locator("#palette button").all():
        box = button.bounding_box()
        assert box is not None
        assert box["height"] >= 44
    assert phone.evaluate("document.documentElement.scrollWidth") <= 360
    phone.locator("#palette-done").tap()
    phone.locator(".quiet").first.tap()
    phone.locator("#submit").tap()
    shown(phone, question.question)
    saved(phone)
    saved(page)
    anna, berta = list_votes(site.store, study.id)
    text = TEXTS[0][1]
    assert anna.spans == (marked(text, "are mammals", "fact", 1),)
    assert berta.spans == (marked(text, "Whales", "fact", 1),)
    assert berta.correction == Correction("Neu: zwei\nZeilen")


def test_words_of_a_trace_are_marked_in_its_whole_text(site: Site, visit: Visit) -> None:
    """Each response has one list of words, however many steps it has; the steps are back afterwards."""
    study = asking(site, [("Short one.", "Whales sing.")])
    steps = ((Message("assistant", "First look."),), (Message("assistant", "Then say."),))
    trace = CompletionRecord("trace", "p", "First look. Then say.", "m", steps=steps)
    plain = CompletionRecord("plain", "p", "Whales sing.", "m")
    add_items(site.store, study.id, [Prompt("p", user("What?"))], [trace, plain], [Item("t", "p", ("trace", "plain"))])
    exclude(site.store, study.id, "item", list_questions(site.store, study.id)[0].key, "not asked here")
    page = visit()
    site.sign_in(page, study)
    open_rating(page, site)
    expect(page.locator("#responses .trace-step")).to_have_count(2)
    press(page, "1 e")
    expect(page.locator("#responses [role=listbox]")).to_have_count(2)
    for words in ("say", "sing"):
        page.locator("#responses .word", has_text=words).focus()
        press(page, "Space 1")
    press(page, "Enter")
    expect(page.locator("#responses .trace-step")).to_have_count(2)
    expect(page.locator("#responses .trace")).to_be_visible()
    expect(page.locator("#responses [role=listbox]")).to_have_count(0)
    press(page, "Enter")
    until(lambda: bool(list_votes(site.store, study.id)))
    (vote,) = list_votes(site.store, study.id)
    assert set(vote.spans) == {marked(trace.text, "say", "fact"), marked(plain.text, "sing", "fact", 1)}


def test_what_is_not_sent_is_said_and_kept(site: Site, visit: Visit) -> None:
    study = asking(site)
    page = visit()
    site.sign_in(page, study)
    first = open_rating(page, site)
    press(page, "1 w")
    page.keyboard.press("Home")
    page.keyboard.type("More. ")
    page.locator("#correction-starts .chip").nth(1).click()  # another start has a text of its own
    texts = TEXTS[0] if place_of(page, "Whales") else TEXTS[0][::-1]
    expect(page.locator("#correction")).to_have_value(texts[1])
    page.locator("#correction").fill(texts[0])
    press(page, "Control+Enter")
    expect(page.locator("#hint")).to_contain_text("without a change")
    page.reload()
    shown(page)
    page.locator("#correction-starts .chip").nth(0).click()
    expect(page.locator("#correction")).to_have_value(re.compile("More. "))
    press(page, "Escape e 1 Escape s")
    expect(page.locator("#correction-said")).to_have_text("It is not sent with “Can’t judge”.")
    expect(page.locator("#spans-said")).to_be_visible()
    press(page, "1 Enter")
    shown(page, first.question)
    saved(page)
    (vote,) = list_votes(site.store, study.id)
    assert (vote.verdict, vote.correction, vote.spans) == ("skip", None, ())


@pytest.mark.parametrize("kind", long_except(["ranking"], ["ranking", "likert"]))
def test_other_kinds_of_questions_have_the_same(site: Site, visit: Visit, kind: str) -> None:
    more = {"scale": 5} if kind == "likert" else {}
    study = asking(site, [("one 1", "two 2", "three 3")] * 2, kind=kind, **more)
    page = visit()
    site.sign_in(page, study)
    first = open_rating(page, site)
    three = place_of(page, "three")
    press(page, "1 2 3 w")
    if kind == "ranking":
        expect(page.locator("#correction")).to_have_value(first.texts[0])  # that of rank 1
    press(page, "Escape")
    page.locator("#correction-starts .chip").nth(three).click()
    page.locator("#correction").fill("three and more")
    press(page, "Escape e")
    page.locator(".words").nth(three).locator(".word").nth(1).click()
    press(page, "2 Enter Enter")
    shown(page, first.question)
    saved(page)
    (vote,) = list_votes(site.store, study.id)
    assert vote.correction == Correction("three and more", 2)
    assert vote.spans == (Span(2, 6, 7, "tone"),)


def test_a_study_that_does_not_ask_has_nothing_of_it(site: Site, visit: Visit) -> None:
    study = asking(site, corrections=False, spans=())
    page = visit()
    site.sign_in(page, study)
    open_rating(page, site)
    press(page, "w e")
    for name in ("#open-correction", "#open-spans", "#palette", "#correction-panel"):
        assert page.locator(name).count() == 0


def test_it_has_no_serious_fault(site: Site, visit: Visit) -> None:
    hostile = "<img src=x onerror=alert(1)> " + "word " * 60 + "x" * 90
    study = asking(site, [(hostile, "b")] * 2, spans=("wrong fact", "does not follow from the above", "tone"))
    page = visit(width=360)
    site.sign_in(page, study)
    open_rating(page, site)
    press(page, "1 w")
    page.keyboard.type("More ")
    press(page, "Escape e 1 ArrowRight 2 ArrowRight ArrowRight Shift+ArrowDown")
    assert faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    press(page, "Enter")
    assert faults(page) == []
