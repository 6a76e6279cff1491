"""Texts that attack whoever looks at them, in a real browser: nothing runs, nothing is loaded, nothing is sent."""

from collections.abc import Callable
from urllib.parse import urlsplit

from people.web.test_render import PROBES as EVERY_PROBE
from playwright.sync_api import Page

from tutelage.people import Answer, add_rater, list_votes, next_assignment, submit

from .sites import Site, open_rating, press, saved, shown

Visit = Callable[..., Page]
PROBES = [probe for probe in EVERY_PROBE if "\0" not in probe]
"""A zero character is refused before anything is stored."""


class Watch:
    """Notes whatever a page does that it should not do."""

    def __init__(self, page: Page, site: Site) -> None:
        self.site = urlsplit(site.url).netloc
        self.found: list[str] = []
        page.on("dialog", lambda dialog: (self.found.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self._request(request.url))
        page.on("popup", lambda popup: self.found.append(f"popup {popup.url}"))
        page.on("console", lambda message: self._console(message.text))

    def _request(self, url: str) -> None:
        if urlsplit(url).netloc != self.site and not url.startswith("data:image/svg+xml"):
            self.found.append(f"request {url}")

    def _console(self, text: str) -> None:
        if "Content Security Policy" in text:
            self.found.append(text)


ACTIVE = ":is(script, img, iframe, object, embed, form, input:not([type=radio]), style, link, svg)"
NO_HANDLERS = """() => [...document.querySelectorAll("#responses *, #prompt *")].every((element) =>
    element.getAttributeNames().every((name) =>
        !name.startsWith("on") && name !== "style" && (name !== "id" || element.id.startsWith("response-"))))"""


def assert_still_whole(page: Page) -> None:
    """The page's own parts are there once, and nothing of the texts has become one of them."""
    assert page.locator("#screen").count() == 1
    assert page.evaluate("[...document.scripts].every((s) => s.id === 'words' || s.src.startsWith(location.origin))")
    assert page.locator(f"#responses {ACTIVE}").count() == 0
    assert page.evaluate(NO_HANDLERS)


def test_hostile_texts_do_nothing_to_a_rater(site: Site, visit: Visit) -> None:
    half = (len(PROBES) + 1) // 2
    study = site.study([(one, other) for one, other in zip(PROBES[:half], [*PROBES[half:], "x"], strict=False)])
    page = visit()
    watch = Watch(page, site)
    site.sign_in(page, study)
    seen = ""
    for number in range(len(PROBES) // 2):
        question = open_rating(page, site) if not seen else shown(page, seen)
        assert_still_whole(page)
        press(page, "m")  # as they were written
        assert_still_whole(page)
        press(page, "m 4 Enter")
        seen = question.question
        if number % 25 == 24:
            page.wait_for_selector("#pause:not([hidden])")
            press(page, "Enter")
    assert watch.found == []


def test_hostile_texts_do_nothing_to_an_owner(site: Site, visit: Visit) -> None:
    study = site.study(
        [(PROBES[0], probe) for probe in PROBES[1:25]], question=PROBES[0], guidelines="\n\n".join(PROBES[1:20])
    )
    rater = add_rater(site.store, study.id, "<img src=x onerror=alert(1)>").id
    while (question := next_assignment(site.store, rater)) is not None:
        submit(site.store, question.id, Answer("left", 1, reason=PROBES[1]))
    page = visit()
    watch = Watch(page, site)
    site.sign_in(page, study, "boss", role="owner")
    for path in ("", "/raters", f"/raters/{rater}", "/items?by=added", "/items/i3", "/settings", "/history", "/export"):
        page.goto(f"{site.url}/owner{path}")
        assert page.locator("main :is(script, img, iframe, object, embed)").count() == 0
        assert page.locator("[onerror], [onload], [onclick], [style]").count() == 0
    assert watch.found == []


def test_a_hostile_name_or_question_does_nothing_to_a_rater(site: Site, visit: Visit) -> None:
    study = site.study(
        question=PROBES[1], criteria=('"><script>alert(1)</script>', "' onfocus=alert(1) x='"), name=PROBES[2]
    )
    page = visit()
    watch = Watch(page, site)
    page.goto(site.invitation(study))
    page.fill("#name", "<b>anna</b>")
    page.click("text=Start")
    page.click("text=agree")
    shown(page)
    press(page, "c 1 2 3 Enter")
    assert_still_whole(page)
    assert watch.found == []


def test_the_policy_would_stop_what_the_sanitiser_lets_through(site: Site, visit: Visit) -> None:
    """The second line of defence on its own: markup that got into a page all the same neither runs nor loads."""
    study = site.study()
    page = visit()
    site.sign_in(page, study)
    open_rating(page, site)
    blocked: list[str] = []
    page.on("console", lambda message: blocked.append(message.text))
    stopped = page.evaluate(
        """() => new Promise((resolve) => {
            const stopped = [];
            document.addEventListener("securitypolicyviolation", (event) => {
                if (stopped.push(event.violatedDirective) === 4) resolve(stopped);
            });
            document.querySelector("#prompt").innerHTML =
                "<img src=x onerror='window.ran = 1'><img src='https://evil.test/b.png'><p style='color: red'>x</p>";
            const script = document.createElement("script");
            script.textContent = "window.ran = 2";
            document.body.append(script);
        })"""
    )
    assert set(stopped) == {"img-src", "style-src-attr", "script-src-attr", "script-src-elem"}
    assert page.evaluate("window.ran") is None


SPELT = "\u0645\u06cc\u200c\u0634\u0648\u062f \U0001f468\u200d\U0001f467"
INVISIBLE = f"a\u202eb\u200bc\u2066d\u200de\u00adf\U000e0041g {SPELT}\x1b h"


def test_invisible_characters_are_shown_in_every_form_of_a_text(site: Site, visit: Visit) -> None:
    """Formatted by the server, as written and word by word by the page, with the same numbers."""
    study = site.study([(INVISIBLE, "x")], spans=("odd",))
    page = visit()
    site.sign_in(page, study)
    place = open_rating(page, site).texts.index("x") ^ 1
    text = page.locator("#responses .text").nth(place)
    formatted = text.locator(".invisible").all_inner_texts()
    assert formatted == ["U+202E", "U+200B", "U+2066", "U+200D", "U+00AD", "U+E0041", "U+001B"]
    press(page, "m")
    assert text.locator(".invisible").all_inner_texts() == formatted
    whole = text.inner_text()
    press(page, "m e")
    assert text.locator(".invisible").all_inner_texts() == formatted
    assert text.inner_text() == whole
    text.locator(".word").last.click()
    press(page, "1 Enter 4 Enter")
    saved(page)
    (vote,) = list_votes(site.store, study.id)
    (span,) = vote.spans
    assert (span.start, span.end) == (len(INVISIBLE) - 1, len(INVISIBLE))
