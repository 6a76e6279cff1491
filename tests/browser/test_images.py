"""Images in questions of every kind, in a real browser: seen, looked at by key and by pointer, from this site alone."""

import re
from collections.abc import Callable, Sequence
from itertools import product

import pytest
from pictures import png
from playwright.sync_api import Page, expect
from tiers import long_except

from tutelage.data.images import image_file
from tutelage.data.records import CompletionRecord, Message, Prompt
from tutelage.people import Item, Study, add_items

from .sites import Site, is_narrow, open_rating, press
from .test_accessibility import faults
from .test_hostile_pages import Watch

Visit = Callable[..., Page]
WIDE, TALL = image_file(png(900, 300)), image_file(png(200, 700, shade=3))
LOADED = "(image) => image.complete && image.naturalWidth"


def image(words: str, name: str) -> str:
    return f"![{words}](images/{name})"


def study_of(site: Site, kind: str, responses: Sequence[str]) -> Study:
    """A study with a conversation about an image."""
    study = site.study(pairs=0, kind=kind, **({"scale": 7} if kind == "likert" else {}))
    asked = (
        Message("user", f"Look.\n\n{image('a wide field', WIDE.name)}"),
        Message("assistant", "I see."),
        Message("user", f"And this? {image('a tower', TALL.name)}"),
    )
    completions = [CompletionRecord(f"r{n}", "p", text, "SECRET-MODEL") for n, text in enumerate(responses)]
    items = [Item("i", "p", tuple(each.id for each in completions))]
    add_items(site.store, study.id, [Prompt("p", asked)], completions, items, images=(WIDE, TALL))
    return study


@pytest.mark.parametrize(
    ("width", "kind"),
    long_except([(1280, "pair"), (360, "ranking")], product([1280, 360], ["pair", "ranking", "likert"])),
)
def test_images_are_seen_in_every_kind_and_have_no_fault(site: Site, visit: Visit, kind: str, width: int) -> None:
    responses = [f"One {image('', TALL.name)}", image("a field again", WIDE.name), "Words alone."]
    study = study_of(site, kind, responses[: 2 if kind == "pair" else 3])
    page = visit(width=width)
    watch = Watch(page, site)
    site.sign_in(page, study)
    open_rating(page, site)
    pictures = page.locator("#prompt img, #responses img")
    expect(pictures).to_have_count(4)
    for number in range(4):
        pictures.nth(number).scroll_into_view_if_needed()
        assert pictures.nth(number).evaluate(LOADED)
        box = pictures.nth(number).bounding_box()
        assert box is not None
        assert box["width"] <= min(640, width)
        assert box["height"] <= 385
    assert is_narrow(page)
    assert faults(page) == []
    page.locator("#responses a.image").first.click()
    expect(page.locator("#viewer")).to_be_visible()
    expect(page.locator("#viewer-place")).to_have_text("3 of 4")
    assert page.locator("#viewer-frame img").evaluate(LOADED)
    assert is_narrow(page)
    assert faults(page) == []
    press(page, "Escape")
    expect(page.locator("#viewer")).not_to_be_visible()
    expect(page.locator("#responses a.image").first).to_be_focused()
    assert watch.found == []


def test_images_are_looked_at_with_keys_alone(site: Site, visit: Visit) -> None:
    study = study_of(site, "pair", [image("a field", WIDE.name), "Words."])
    page = visit()
    site.sign_in(page, study)
    open_rating(page, site)
    press(page, "i")
    title, place = page.locator("#viewer-title"), page.locator("#viewer-place")
    expect(title).to_have_text("Prompt: a wide field")
    press(page, "ArrowRight")
    expect(title).to_have_text("Prompt: a tower")
    press(page, "ArrowRight")
    expect(title).to_have_text(re.compile("Response [AB]: a field"))
    press(page, "ArrowRight ArrowLeft ArrowLeft")
    expect(place).to_have_text("2 of 3")
    press(page, "3")  # no vote while an image is looked at
    page.locator("#viewer-size").focus()
    press(page, "Enter")
    expect(page.locator("#viewer-size")).to_have_attribute("aria-pressed", "true")
    assert page.locator("#viewer-frame img").evaluate("(image) => image.clientHeight === image.naturalHeight")
    page.locator("#viewer-frame").focus()
    press(page, "ArrowRight")  # scrolls
    expect(place).to_have_text("2 of 3")
    press(page, "Escape")
    expect(page.locator("#viewer")).not_to_be_visible()
    assert page.locator("input[name=verdict]:checked").count() == 0
    press(page, "m")
    expect(page.locator("#responses img")).to_have_count(0)
    press(page, "m i Escape 4 Enter")
    expect(page.locator("#pause")).to_be_visible()


def test_a_pointer_enlarges_an_image_and_a_tab_of_its_own_has_it_too(site: Site, visit: Visit) -> None:
    study = study_of(site, "pair", [image("a tower", TALL.name), "Words."])
    page = visit(width=700, height=500)
    site.sign_in(page, study)
    open_rating(page, site)
    page.locator("#prompt a.image").last.click()
    picture = page.locator("#viewer-frame img")
    small = picture.evaluate("(image) => image.clientHeight")
    picture.click()
    assert picture.evaluate("(image) => image.clientHeight") == 700 > small
    picture.click()
    assert picture.evaluate("(image) => image.clientHeight") == small
    press(page, "Escape")
    with page.context.expect_page() as other:
        page.locator("#prompt a.image").last.click(modifiers=["Control"])
    expect(other.value).to_have_url(re.compile(f"/images/{TALL.name}$"))


def test_nothing_is_opened_where_no_image_is(site: Site, visit: Visit) -> None:
    study = site.study([("![x](https://evil.test/a.png)", "b")])
    page = visit()
    watch = Watch(page, site)
    site.sign_in(page, study)
    open_rating(page, site)
    press(page, "i")
    expect(page.locator("#viewer")).not_to_be_visible()
    expect(page.locator("#responses")).to_contain_text("[image, not loaded: x")
    assert watch.found == []
