"""The page to chat on: agreement, thumbs, a better version, a choice between two answers, and for everybody."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tiers import long_except

import tutelage as tt
from tutelage.data.records import CompletionRecord, Prompt, user
from tutelage.people import Item, add_items, create_study, list_questions, list_votes, open_store, open_study
from tutelage.people.store.studies import set_languages

from .sites import QUIET, Site, open_rating, press, saved, shown
from .test_accessibility import faults

Visit = Callable[..., Page]


@pytest.fixture(scope="module")
def served(tiny_model: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server of a tiny model with a study, whose pages are also in Arabic."""
    folder = tmp_path_factory.mktemp("use")
    with closing(open_store(folder / "study.sqlite")) as store:
        study = create_study(store, "use", kind="thumbs")
        set_languages(store, study.id, ("en", "ar"))
    with tt.serve(model=tiny_model("llama"), port=0, name="tutor", max_new_tokens=12, feedback=str(folder)) as server:
        yield server.url, folder


def said(folder: Path) -> list[tuple[str, int]]:
    """The verdict of each vote, and the number of responses that it is about."""
    with closing(open_store(folder / "study.sqlite")) as store:
        study = open_study(store)
        places = {question.key: len(question.texts) for question in list_questions(store, study.id)}
        return [(vote.verdict, places[vote.item]) for vote in list_votes(store, study.id)]


def ask(page: Page, text: str) -> None:
    page.locator("#message").fill(text)
    page.keyboard.press("Enter")
    expect(page.locator("#log")).not_to_have_attribute("aria-busy", "true")
    expect(page.locator(".turn.model").last.locator(".text")).not_to_be_empty()


def agree(page: Page, url: str) -> None:
    page.goto(url)
    page.locator("#agree").click()
    expect(page.locator("#ask")).to_be_hidden()


def test_a_user_says_what_an_answer_is_worth(served: tuple[str, Path], visit: Visit) -> None:
    url, folder = served
    page = visit()
    before = len(said(folder))
    agree(page, url)
    ask(page, "What is light?")
    turn = page.locator(".turn.model")
    turn.locator(".down").click()
    expect(turn.locator(".down")).to_have_attribute("aria-pressed", "true")
    turn.locator(".up").click()
    expect(turn.locator(".up")).to_have_attribute("aria-pressed", "true")
    expect(turn.locator(".down")).to_have_attribute("aria-pressed", "false")
    turn.locator(".improve").click()
    turn.locator("textarea").fill("A **wave**.")
    turn.locator(".edit .primary").click()
    expect(turn.locator("strong")).to_have_text("wave")
    turn.locator(".again").click()
    expect(turn.locator(".prefer").first).to_be_visible()
    turn.locator(".prefer").last.click()
    expect(turn.locator(".answer")).to_have_count(1)
    places = [place for _, place in said(folder)[before:]]
    assert places == [1, 2, 2]
    assert said(folder)[before] == ("a", 1)
    ask(page, "And sound?")  # the conversation goes on
    expect(page.locator(".again:visible")).to_have_count(1)

    page.locator("#open-terms").click()
    page.locator("#forget").click()
    expect(page.locator("#terms-said")).not_to_be_empty()
    with closing(open_store(folder / "study.sqlite")) as store:
        names = {vote.rater for vote in list_votes(store, open_study(store).id)[before:]}
    assert all(name.startswith("forgotten") for name in names)


SLOW = """
  const real = window.fetch;
  window.asked = [];
  window.fetch = (path, options) => {
    if (path !== "/v1/chat/completions") return real(path, options);
    window.asked.push(JSON.parse(options.body).messages.map((each) => each.content));
    if (window.asked.length > 1) return real(path, options);
    const body = new ReadableStream({
      start(controller) {
        const chunk = {choices: [{delta: {content: "the beginning"}}]};
        controller.enqueue(new TextEncoder().encode(`data: ${JSON.stringify(chunk)}\\n\\n`));
        options.signal.addEventListener("abort", () => controller.error(new DOMException("", "AbortError")));
      },
    });
    return Promise.resolve(new Response(body));
  };
"""
"""The first answer never ends."""


def test_a_new_conversation_has_nothing_of_the_answer_that_it_interrupts(
    served: tuple[str, Path], visit: Visit
) -> None:
    page = visit()
    page.add_init_script(SLOW)
    agree(page, served[0])
    page.locator("#message").fill("What is light?")
    page.keyboard.press("Enter")
    expect(page.locator(".turn.model .text")).to_have_text("the beginning")
    page.locator("#restart").click()
    expect(page.locator(".turn")).to_have_count(0)
    ask(page, "And rain?")
    expect(page.locator(".turn")).to_have_count(2)
    assert page.evaluate("window.asked") == [["What is light?"], ["And rain?"]]


def test_without_agreement_one_can_chat_and_nothing_is_kept(served: tuple[str, Path], visit: Visit) -> None:
    url, folder = served
    page, before = visit(), said(folder)
    page.goto(url)
    page.locator("#decline").click()
    ask(page, "What is light?")
    expect(page.locator(".tools")).to_be_hidden()
    page.reload()
    expect(page.locator("#terms-state")).not_to_be_empty()
    expect(page.locator("#ask")).to_be_hidden()  # the refusal is remembered
    assert said(folder) == before


def test_a_key_is_asked_for(
    tiny_model: Callable[..., str], served: tuple[str, Path], visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUTELAGE_SERVE_KEY", "secret")
    with tt.serve(model=tiny_model("llama"), port=0, max_new_tokens=4, feedback=str(served[1])) as server:
        page = visit()
        page.goto(server.url)
        page.locator("#key").fill("wrong")
        page.locator("#gate .primary").click()
        expect(page.locator("#gate-problem")).to_be_visible()
        page.locator("#key").fill("secret")
        page.locator("#gate .primary").click()
        expect(page.locator("#ask")).to_be_visible()


@pytest.mark.parametrize("look", long_except(["phone", "arabic"], ["wide", "phone", "arabic"]))
def test_everybody_can_use_it(served: tuple[str, Path], visit: Visit, look: str) -> None:
    """By keyboard alone, on the smallest screen, by night and from right to left; axe-core finds no serious fault."""
    page = visit(
        width=1280 if look == "wide" else 360,
        height=740,
        dark=look == "phone",
        locale="ar" if look == "arabic" else "en",
    )
    page.goto(served[0])
    expect(page.locator("#ask")).to_be_visible()
    assert faults(page) == []
    page.locator("#agree").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#message")).to_be_focused()
    ask(page, "What is light?")
    assert page.locator("html").get_attribute("dir") == ("rtl" if look == "arabic" else "ltr")
    page.locator(".up").focus()
    page.keyboard.press("Space")
    expect(page.locator(".up")).to_have_attribute("aria-pressed", "true")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.locator(".improve")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".edit textarea")).to_be_focused()
    assert faults(page) == []
    page.keyboard.press("Escape")
    expect(page.locator(".improve")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".prefer").first).to_be_focused()
    assert faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator("#open-terms").click()
    assert faults(page) == []


@pytest.mark.parametrize("narrow", long_except([True], [False, True]))
def test_raters_are_asked_about_one_answer_or_two_on_the_same_page(site: Site, visit: Visit, narrow: bool) -> None:
    study = create_study(site.store, "use", kind="thumbs", plan=QUIET)
    completions = [CompletionRecord(name, "p", f"The {name} text.", "m") for name in ("first", "second")]
    items = [Item("one", "p", ("first",)), Item("two", "p", ("first", "second"))]
    add_items(site.store, study.id, [Prompt("p", user("Why?"))], completions, items)
    page = visit(width=360 if narrow else 1280, height=740)
    site.sign_in(page, study)
    seen = open_rating(page, site)
    for number in range(2):
        single = page.locator(".response").count() == 1
        expect(page.locator(".point:visible")).to_have_count(2 if single else 3)
        assert faults(page) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        press(page, "x 2 Enter" if single else "3 Enter")  # of a single answer, there is no "both bad"
        if number == 0:
            shown(page, seen.question)
    saved(page)
    votes = {vote.item: vote.displayed["choice"] for vote in list_votes(site.store, study.id)}
    assert votes == {"one": "good", "two": "right"}
