"""The rater's screen in other languages, from right to left too."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tutelage.people import Answer, add_rater, next_assignment, set_languages, submit
from tutelage.people.languages.catalogue import ENGLISH, LANGUAGES, script_words, translations

from .sites import Site, open_rating, press, shown
from .test_accessibility import faults
from .translated import translated

Visit = Callable[..., Page]
APART = """() => {
    const boxes = [...document.querySelectorAll(".aside span, #undo, #submit")].map((e) => e.getBoundingClientRect());
    const clash = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
    return boxes.every((a, i) => boxes.every((b, j) => i === j || !clash(a, b)));
}"""
"""Whether no two of the buttons below the bar overlap."""
FORMS = """([words, counts]) => {
    const plurals = new Intl.PluralRules(document.documentElement.lang);
    return counts.map((n) => words.forms[plurals.select(n)] ?? words.last);
}"""


def test_a_vote_in_arabic_by_keyboard_on_a_phone(site: Site, visit: Visit, tmp_path: Path) -> None:
    study = translated(site.store, "ar")
    page = visit(width=360, height=740, locale="ar")
    site.sign_in(page, study)
    first = open_rating(page, site)
    assert page.evaluate("[document.documentElement.lang, document.documentElement.dir]") == ["ar", "rtl"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    expect(page.locator("#ask")).to_have_text("أي الإجابتين أفضل؟")
    press(page, "c 1 3 7")  # criteria: A, then B; B is much better
    assert page.locator(".point input:checked").get_attribute("value") == "right-3"
    page.locator(".point input:checked").focus()
    press(page, "ArrowRight")  # towards A, which stands on the right
    assert page.locator(".point input:checked").get_attribute("value") == "right-2"
    press(page, "ArrowLeft ArrowLeft")
    assert page.locator("[name=verdict]:checked").get_attribute("value") == "both_bad-0"  # beyond the bar
    press(page, "ArrowRight")
    expect(page.locator("#said")).to_have_text("B أفضل بكثير")
    press(page, "f 5")
    assert faults(page) == []
    page.keyboard.press("Escape")
    press(page, "Enter")
    second = shown(page, first.question)
    press(page, "s 2 Escape Enter")
    shown(page, second.question)
    expect(page.locator("#save")).to_have_text("محفوظ")
    expect(page.locator("#progress-text")).to_have_text(re.compile("^تقييم واحد · المتبقي: نحو"))
    votes = site.exported(study, tmp_path / "out")
    assert [vote["displayed"]["choice"] for vote in votes] == ["right", "skip"]
    assert votes[0]["displayed"]["strength"] == 3
    assert votes[0]["flags"] == ["cut_off"]
    assert sorted(votes[0]["criteria"].values()) == ["a", "b"]
    assert votes[1]["reason"] == "The prompt makes no sense to me"


def test_the_sides_are_mirrored_and_texts_keep_their_own_direction(site: Site, visit: Visit) -> None:
    study = translated(site.store, "de", more=("ar",))
    page = visit(locale="ar", extra_http_headers={"accept-language": "ar"})
    site.sign_in(page, study)
    open_rating(page, site)
    lefts = page.evaluate("[...document.querySelectorAll('.response')].map((e) => e.getBoundingClientRect().left)")
    assert lefts[0] > lefts[1]  # A stands on the right
    of_texts = "[...document.querySelectorAll('.response .text')].map((e) => getComputedStyle(e).direction)"
    assert page.evaluate(of_texts) == ["ltr", "ltr"]  # German
    page.click("#open-guidelines")
    page.click("#guidelines button[value=de]")
    expect(page.locator("html")).to_have_attribute("dir", "ltr")
    shown(page)
    expect(page.locator("#submit")).to_contain_text("Weiter")


def test_prompts_and_responses_keep_their_direction_on_an_owners_pages(site: Site, visit: Visit) -> None:
    study = translated(site.store, "de", full=False)
    for name, better in (("anna", 0), ("bert", 0), ("cem", 1)):
        rater = add_rater(site.store, study.id, name).id
        while (question := next_assignment(site.store, rater)) is not None:
            submit(site.store, question.id, Answer("left" if question.order[0] == better else "right", 3))
    page = visit(locale="ar", extra_http_headers={"accept-language": "ar"})
    site.sign_in(page, study, "olga", role="owner")
    for address, texts in (("", ".items a"), ("/items", ".items a"), ("/export", "tbody td[dir]")):
        page.goto(f"{site.url}/owner{address}")
        assert page.evaluate("document.documentElement.dir") == "rtl"
        directions = page.locator(texts).evaluate_all("all => all.map((e) => getComputedStyle(e).direction)")
        assert directions
        assert set(directions) == {"ltr"}


@pytest.mark.parametrize("code", [code for code in LANGUAGES if code not in (ENGLISH, "ar")])
def test_every_language_has_room_on_a_phone(site: Site, visit: Visit, code: str) -> None:
    study = translated(site.store, "de")
    set_languages(site.store, study.id, (code,))
    page = visit(width=360, height=640)
    site.sign_in(page, study)
    open_rating(page, site)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate(APART)
    bar = page.locator("#verdict").bounding_box()
    assert bar is not None
    assert bar["height"] < 640 * 0.35


def test_scripts_and_pages_choose_the_same_form_for_every_number(visit: Visit) -> None:
    page = visit()
    counts = [*range(1_000), 1_000_000]
    for code in LANGUAGES:
        if code != ENGLISH:
            words = json.loads(json.dumps(script_words(code)))
            words["last"] = len(words["messages"]["%(count)s answered"]) - 1
            page.set_content(f'<html lang="{LANGUAGES[code].tag}"></html>')
            assert page.evaluate(FORMS, [words, counts]) == [translations(code).plural(n) for n in counts]
