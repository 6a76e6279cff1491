"""A live conversation in a browser: by keyboard alone, on the smallest screen, with models that are slow, hostile or
gone."""

import threading
from collections.abc import Callable, Sequence

import pytest
from playwright.sync_api import Page, Route, expect
from scripted_chat import Scripted, Step, saying
from tiers import long_except

from tutelage.data.records import Message, Messages, ToolCall
from tutelage.data.transport import Unanswered
from tutelage.people import Presentation, Study, list_questions, list_votes, present, set_languages
from tutelage.people.answers import Correction
from tutelage.people.store.conversations import LiveModels, set_live_models
from tutelage.people.web import streams
from tutelage.rollout.tools.builtin import load_tools

from .sites import Requests, Site, press, saved, shown, until
from .test_accessibility import faults

Visit = Callable[..., Page]
OPENINGS = ("Why is the sky blue?", "How do planes fly?", "What is a whale, and is it a fish?")
HOSTILE = (
    "<img src=x onerror=alert(1)>", "<script>alert(2)</script>", "</div></main><h1 id=screen>taken over</h1>",
    "[click](javascript:alert(3))", '<a href="javascript:alert(4)" onclick=alert(5)>x</a>',
    "![i](https://evil.test/pixel.png)", "<style>body{display:none}</style>", "&lt;b&gt; ]]> --> `<b>` \u2028 \u202e",
)  # fmt: skip


def talking(site: Site, models: Scripted, **more: object) -> Study:
    """A study in which raters talk to these two models."""
    study = site.study(pairs=0)
    site.models = models
    live = LiveModels("SECRET-ONE", "SECRET-TWO", openings=OPENINGS, **more)  # type: ignore[arg-type]
    set_live_models(site.store, study.id, live)
    return study


def models(one: object, two: object) -> Scripted:
    return Scripted.of(**{"SECRET-ONE": one, "SECRET-TWO": two})  # type: ignore[arg-type]


def asked(page: Page) -> None:
    """Wait until it is the rater's turn to write."""
    expect(page.locator("#talk")).to_be_visible()
    expect(page.locator("#message")).to_be_focused()


def open_talk(page: Page, site: Site, study: Study) -> None:
    site.sign_in(page, study)
    page.goto(f"{site.url}/rate")
    asked(page)


def test_a_whole_conversation_by_keyboard_on_the_smallest_screen_in_the_dark(site: Site, visit: Visit) -> None:
    def rich(word: str) -> Callable[[Messages], list[Step]]:
        return lambda messages: [
            f"# {word}\n\n",
            0.02,
            "Some *text* and `code`. ",
            0.02,
            f"Said: {messages[-1].content}",
        ]

    study = talking(site, models(rich("Alpha"), rich("Beta")), turns=2)
    page = visit(width=360, height=740, dark=True)
    open_talk(page, site, study)
    assert faults(page) == []
    press(page, "Escape 2")  # a suggestion, changed before it is sent
    expect(page.locator("#message")).to_be_focused()
    opening = page.input_value("#message")
    assert opening in OPENINGS
    page.keyboard.type(" Really?")
    press(page, "Enter")
    first = shown(page)
    assert [text.split("\n")[0] for text in sorted(first.texts)] == ["Alpha", "Beta"]
    assert page.locator("#responses em").all_inner_texts() == ["text", "text"]
    expect(page.locator("#prompt")).to_contain_text(f"{opening} Really?")
    assert faults(page) == []
    press(page, "7 Enter")
    asked(page)
    expect(page.locator("#talk-step")).to_have_text("Turn 2 of 2")
    assert page.locator("#talk-messages .turn").count() == 2
    assert page.locator("#talk-messages").inner_text().count(first.texts[1].split("\n")[0]) == 1  # the better one
    assert faults(page) == []
    page.keyboard.type("And then?")
    page.reload()  # a message that was not sent survives
    asked(page)
    assert page.input_value("#message") == "And then?"
    press(page, "Enter")
    second = shown(page, first.question)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    press(page, "1 Enter")
    asked(page)
    expect(page.locator("#talk-title")).to_have_text("Begin a conversation")
    saved(page)
    questions = list_questions(site.store, study.id)
    assert [len(question.messages) for question in questions] == [1, 3]
    assert questions[1].messages[1].content.startswith(f"# {first.texts[1].split()[0]}")
    votes = list_votes(site.store, study.id)
    assert [vote.displayed["choice"] for vote in votes] == ["right", "left"]
    assert second.texts != first.texts


def test_keys_count_from_the_moment_that_both_answers_stand_there(site: Site, visit: Visit) -> None:
    """The question about them takes a request more, which is held here until the keys were pressed."""
    study = talking(site, models(saying("one"), saying("two")))
    page = visit()
    requests = Requests(page, "**/rate/next")
    open_talk(page, site, study)
    waiting: list[Route] = []
    requests.answer = waiting.append
    page.keyboard.type("Hello")
    press(page, "Enter")
    until(lambda: page.evaluate("true") and len(waiting) == 1)  # looking at the page lets its requests through
    expect(page.locator("#responses .writing")).to_have_count(0)
    press(page, "6 n Escape Enter")
    requests.answer = Requests.let
    waiting[0].continue_()
    asked(page)
    saved(page)
    (vote,) = list_votes(site.store, study.id)
    assert (vote.displayed["choice"], vote.displayed["strength"]) == ("right", 2)


def test_hostile_text_in_pieces_does_nothing(site: Site, visit: Visit) -> None:
    """Some tags come whole and some in two, and the page is looked at while they stand there as they came."""
    halves = [half for part in HOSTILE for half in (part[: len(part) // 2], part[len(part) // 2 :])]
    said = "".join(HOSTILE)

    looked = threading.Event()

    def pausing(pieces: Sequence[str]) -> Callable[[Messages], list[Step]]:
        return lambda messages: [*(step for piece in pieces for step in (piece, 0.01)), looked]

    study = talking(site, models(pausing(halves), pausing(HOSTILE)))
    page = visit()
    asked_for: list[str] = []
    page.on("dialog", lambda dialog: asked_for.append(dialog.message))
    page.on("request", lambda request: asked_for.append(request.url) if site.url not in request.url else None)
    open_talk(page, site, study)
    page.keyboard.type(HOSTILE[0])
    press(page, "Enter")
    for card in (page.locator("#responses .text").first, page.locator("#responses .text").last):
        expect(card).to_have_text(said, use_inner_text=False)
        assert card.evaluate("(e) => [...e.childNodes].every((node) => node.nodeType === Node.TEXT_NODE)")
        assert card.text_content() == said
    assert page.locator("#responses .text.writing").count() == 2  # not complete yet
    looked.set()
    shown(page)
    places = page.locator("#responses, #prompt")
    dangerous = "script, img, iframe, style, object, a[href^=javascript], [onerror], [onclick], h1"
    assert places.locator(dangerous).count() == 0
    assert page.locator("#screen").count() == 1
    expect(places.first).to_contain_text("<img src=x onerror=alert(1)>")
    assert asked_for == []


def test_a_model_that_is_gone_is_told_and_tried_again(
    site: Site, visit: Visit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "WAIT", 0.0)
    gone = [Unanswered("The model SECRET-ONE is gone")]
    study = talking(site, models(lambda messages: gone or ["I am back"], saying("I was here")))
    page = visit(width=360)
    open_talk(page, site, study)
    page.keyboard.type("Hello")
    press(page, "Enter")
    expect(page.locator("#writing-said")).to_have_text(streams.SILENT)
    expect(page.locator("#again")).to_be_focused()
    assert faults(page) == []
    press(page, "1 6 x Enter")  # nothing to judge yet; Enter tries again
    expect(page.locator("#again")).to_be_focused()
    page.reload()
    expect(page.locator("#again")).to_be_focused()
    gone.clear()
    press(page, "Enter")
    assert sorted(shown(page).texts) == ["I am back", "I was here"]
    press(page, "x Enter")
    asked(page)
    page.locator("#talk .end-talk").click()
    expect(page.locator("#talk-title")).to_have_text("Begin a conversation")
    assert [vote.verdict for vote in list_votes(site.store, study.id)] == ["both_bad"]


def test_a_conversation_that_is_ended_while_it_is_written_comes_back_no_more(site: Site, visit: Visit) -> None:
    ended = threading.Event()
    both = models(saying("Slow ", ended, "indeed"), saying("Quick"))
    study = talking(site, both)
    page = visit()
    open_talk(page, site, study)
    page.keyboard.type("Hello")
    press(page, "Enter")
    expect(page.locator("#writing-said")).to_contain_text("is complete")
    page.locator("#writing .end-talk").click()
    asked(page)
    page.keyboard.type("Something else")
    ended.set()
    until(lambda: both("SECRET-ONE").ended == 1)
    page.evaluate("fetch('/rate/recent').then((reply) => reply.text())")  # whatever the server sent before is here
    expect(page.locator("#message")).to_be_focused()
    assert page.input_value("#message") == "Something else"
    assert list_questions(site.store, study.id) == ()


def test_an_earlier_answer_can_be_changed_and_a_lost_network_loses_nothing(site: Site, visit: Visit) -> None:
    study = talking(site, models(saying("Alpha"), saying("Beta")))
    page = visit()
    open_talk(page, site, study)
    assert faults(page) == []
    page.keyboard.type("Hello")
    press(page, "Enter")
    first = shown(page)
    press(page, "1 Enter")
    asked(page)
    assert faults(page) == []
    expect(page.locator("#talk-messages")).to_contain_text(first.texts[0])
    press(page, "Escape u")
    shown(page)
    press(page, "7 Enter")
    asked(page)
    expect(page.locator("#talk-messages")).to_contain_text(first.texts[1])
    page.context.set_offline(True)
    page.keyboard.type("And?")
    press(page, "Enter")
    expect(page.locator("#message-hint")).to_contain_text("sent again by itself")
    page.context.set_offline(False)
    shown(page, first.question)
    saved(page)
    messages = list_questions(site.store, study.id)[1].messages
    assert [message.content for message in messages] == ["Hello", first.texts[1], "And?"]


def test_two_tabs_show_the_same_turn_and_lose_nothing(site: Site, visit: Visit) -> None:
    """A message, a vote and an end in one tab move the other on, where an unsent message stays for the next turn."""
    study = talking(site, models(saying("Alpha"), saying("Beta")), turns=3)
    one = visit()
    open_talk(one, site, study)
    two = one.context.new_page()
    two.goto(f"{site.url}/rate")
    asked(two)
    two.keyboard.type("Something else")
    one.bring_to_front()
    one.fill("#message", "Hello")
    one.click("#send")
    question = shown(one)
    assert shown(two) == question
    press(one, "1 Enter")
    asked(one)
    expect(two.locator("#talk-step")).to_have_text("Turn 2 of 3")
    expect(two.locator("#message")).to_have_value("Something else")
    two.click("#send")
    second = shown(two, question.question)
    assert shown(one, question.question) == second
    press(two, "7 Enter")
    expect(one.locator("#talk-step")).to_have_text("Turn 3 of 3")
    saved(two)
    two.locator("#talk .end-talk").click()
    for page in (one, two):
        expect(page.locator("#talk-title")).to_have_text("Begin a conversation")
    messages = [each.messages[-1].content for each in list_questions(site.store, study.id)]
    assert messages == ["Hello", "Something else"]
    votes = list_votes(site.store, study.id, every_revision=True)
    assert [vote.displayed["choice"] for vote in votes] == ["left", "right"]


def test_of_two_messages_at_once_the_second_stays_for_the_next_turn(site: Site, visit: Visit) -> None:
    study = talking(site, models(saying("Alpha"), saying("Beta")), turns=3)
    one = visit()
    open_talk(one, site, study)
    two = one.context.new_page()
    sent = Requests(two, "**/rate/messages")
    two.goto(f"{site.url}/rate")
    asked(two)
    late = list[Route]()
    sent.answer = late.append
    two.keyboard.type("Something else")
    two.click("#send")
    until(lambda: two.evaluate("true") and len(late) == 1)
    one.bring_to_front()
    one.fill("#message", "Hello")
    one.click("#send")
    question = shown(one)
    assert shown(two) == question
    sent.answer = Requests.let
    two.bring_to_front()
    press(two, "1 Enter")
    expect(two.locator("#talk-step")).to_have_text("Turn 2 of 3")
    expect(two.locator("#message")).to_have_value("Something else")
    two.click("#send")
    shown(two, question.question)
    assert [each.messages[-1].content for each in list_questions(site.store, study.id)] == ["Hello", "Something else"]


def open_on_two_devices(site: Site, visit: Visit, study: Study) -> tuple[Page, Page]:
    """The same rater's page on a laptop and on a phone."""
    laptop, phone = visit(), visit(width=390)
    open_talk(laptop, site, study)
    phone.context.add_cookies(laptop.context.cookies())  # type: ignore[arg-type]
    phone.goto(f"{site.url}/rate")
    asked(phone)
    return laptop, phone


def test_a_conversation_that_two_devices_begin_at_once_loses_no_message(site: Site, visit: Visit) -> None:
    study = talking(site, models(saying("Alpha"), saying("Beta")), turns=3)
    laptop, phone = open_on_two_devices(site, visit, study)
    laptop.keyboard.type("Hello")
    press(laptop, "Enter")
    question = shown(laptop)
    phone.keyboard.type("Something else")
    phone.click("#send")
    expect(phone.locator("#message-hint")).to_contain_text("in another window")
    phone.reload()
    assert shown(phone) == question
    press(phone, "1 Enter")
    expect(phone.locator("#talk-step")).to_have_text("Turn 2 of 3")
    expect(phone.locator("#message")).to_have_value("Something else")


def test_a_conversation_that_went_on_on_another_device_is_shown_when_the_page_is_looked_at(
    site: Site, visit: Visit
) -> None:
    study = talking(site, models(saying("Alpha"), saying("Beta")))
    laptop, phone = open_on_two_devices(site, visit, study)
    phone.keyboard.type("Hello")
    phone.click("#send")
    question = shown(phone)
    laptop.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    assert shown(laptop) == question


def working(word: str, answer: str = "So it is 42.") -> Callable[[Messages], list[Step]]:
    """An answer that calculates, and says something hostile before and after."""

    def script(messages: Messages) -> list[Step]:
        if messages[-1].role != "tool":
            call = ToolCall("calculator", '{"expression": "6 * 7"}', "c1")
            return [f"{word} <img src=x onerror=alert(1)>", 0.02, call, ToolCall("<script>", '{"</p>": "<b>"}', "c2")]
        return [f"{word}: {answer}", 0.02, f"Said {messages[-2].content}"]

    return script


@pytest.mark.parametrize("language", long_except(["ar"], ["en", "ar"]))
def test_models_that_call_tools_by_keyboard_on_the_smallest_screen_in_the_dark(
    site: Site, visit: Visit, language: str
) -> None:
    with Site(site.store, tools=load_tools(["calculator"])) as own:
        study = talking(own, models(working("Alpha"), saying("Beta")), turns=2)
        present(own.store, study.id, Presentation(corrections=True))
        set_languages(own.store, study.id, (language,))
        page = visit(width=360, height=740, dark=True)
        requests = Requests(page, "**/rate/next")
        open_talk(page, own, study)
        waiting: list[Route] = []
        requests.answer = waiting.append
        page.keyboard.type("6 * 7?")
        press(page, "Enter")
        until(lambda: page.evaluate("true") and len(waiting) == 1)
        assert page.locator("#responses .card.result").first.inner_text().endswith("42")  # while the other is written
        assert page.locator("#responses .card").count() == 4
        requests.answer = Requests.let
        waiting[0].continue_()
        first = shown(page)
        alpha = next(place for place, text in enumerate(first.texts) if text.startswith("Alpha"))
        expect(page.locator("#responses .trace-step")).to_have_count(2)
        expect(page.locator("#prompt details.offered")).to_have_count(1)
        expect(page.locator("#responses .card.error")).to_have_count(1)
        assert page.locator("#question :is(img, script)").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.locator("details").evaluate_all("(all) => all.forEach((each) => (each.open = true))")
        assert faults(page) == []
        press(page, ("7" if alpha else "1") + " w")  # begins with the last step of the better one
        expect(page.locator("#correction")).to_be_focused()
        assert page.input_value("#correction").startswith("Alpha: So it is 42.")
        page.keyboard.press("Control+A")
        page.keyboard.type("It is 42.")
        assert faults(page) == []
        press(page, "Control+Enter")
        asked(page)
        expect(page.locator("#talk-messages .card")).to_have_count(4)
        expect(page.locator("#talk-messages .turn").last).to_contain_text("It is 42.")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert faults(page) == []
        saved(page)
    (vote,) = list_votes(own.store, study.id)
    (question,) = list_questions(own.store, study.id)
    place = next(place for place, each in enumerate(question.completions) if each.steps)
    assert vote.correction == Correction("It is 42.", place, 1)
    trace = [message for step in question.completions[place].steps for message in step if isinstance(message, Message)]
    assert [message.role for message in trace] == ["assistant", "tool", "tool", "assistant"]
    assert trace[1].content == "42"
    assert "there is no tool" in trace[2].content
