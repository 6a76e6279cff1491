"""The earlier turns of a long conversation: part of the question, and one key away."""

from collections.abc import Callable
from itertools import product

import pytest
from playwright.sync_api import Locator, Page, expect
from scripted_chat import Scripted, saying
from tiers import long_except

from tutelage.data.records import CompletionRecord, Message, Prompt
from tutelage.people import (
    Item,
    Presentation,
    Study,
    add_items,
    create_study,
    list_questions,
    list_votes,
    set_languages,
)
from tutelage.people.kinds import KINDS
from tutelage.people.store.conversations import LiveModels, set_live_models

from .sites import QUIET, Site, is_narrow, open_rating, press, saved, shown
from .test_accessibility import faults

Visit = Callable[..., Page]
TURNS = 13
ASKED = {"likert": Presentation(scale=5, criteria=("helpful",)), "checklist": Presentation(scale=2)}
VERDICTS = {"pair": "7", "ranking": "1 2", "likert": "4 4", "checklist": "1 2", "steps": "0", "thumbs": "7"}
CHOICES = {
    "pair": "right",
    "ranking": "ranked",
    "likert": "rated",
    "checklist": "judged",
    "steps": "judged",
    "thumbs": "right",
}


def dialogue(site: Site, kind: str, turns: int = TURNS) -> Study:
    """A study with two questions about the last turn of a long conversation."""
    asked = ASKED.get(kind, Presentation())
    study = create_study(site.store, "dialogues", kind=kind, plan=QUIET, presentation=asked)
    roles = ("user", "assistant")
    messages = tuple(Message(roles[n % 2], f"Turn {n}. {'Word ' * 60}") for n in range(turns))  # type: ignore[arg-type]
    prompts = [Prompt(f"p{n}", messages, data={"rubric": ["Is kind"]}) for n in range(2)]
    sides, texts = "a" if kind == "steps" else "ab", [f"Part {n}. {'More. ' * 40}" for n in range(2)]
    steps = tuple((Message("assistant", text),) for text in texts) if kind == "steps" else ()
    completions = [
        CompletionRecord(f"p{n}{side}", f"p{n}", "\n\n".join(texts), "model", steps=steps)
        for n in range(2)
        for side in sides
    ]
    items = [Item(f"i{n}", f"p{n}", tuple(f"p{n}{side}" for side in sides)) for n in range(2)]
    add_items(site.store, study.id, prompts, completions, items)
    return study


def in_sight(place: Locator) -> bool:
    """Whether the beginning of it is between the bar above and the verdict below."""
    return bool(
        place.evaluate("""(element) => {
            const { top } = element.getBoundingClientRect();
            const edge = (selector, side) => document.querySelector(selector).getBoundingClientRect()[side];
            return top >= edge(".bar", "bottom") && top < edge("#verdict", "top");
        }""")
    )


FEW = [("pair", "wide"), ("ranking", "phone"), ("steps", "arabic")]
"""Each look, with kinds whose texts lie side by side, below each other, and step by step."""


@pytest.mark.parametrize(("kind", "look"), long_except(FEW, product(sorted(KINDS), ["wide", "phone", "arabic"])))
def test_the_key_opens_them_and_leads_back(site: Site, visit: Visit, kind: str, look: str) -> None:
    study = dialogue(site, kind)
    if look == "arabic":
        set_languages(site.store, study.id, ("ar",))
    page = visit(width=1280 if look == "wide" else 360, height=700, dark=look == "phone")
    site.sign_in(page, study)
    first = open_rating(page, site)
    turns = page.locator("#prompt .turn")
    assert [text.split(".")[0] for text in turns.locator(".text").all_text_contents()] == [
        f"Turn {n}" for n in range(TURNS)
    ]
    assert [turns.nth(n).is_visible() for n in range(TURNS)] == [False] * (TURNS - 1) + [True]
    expect(page.locator("#prompt summary")).to_contain_text(str(TURNS - 1))
    last = page.locator(".response").last
    last.scroll_into_view_if_needed()
    page.evaluate("scrollBy(0, 30)")
    before = page.evaluate("[scrollY, document.activeElement.id]")

    press(page, "h")
    assert all(turns.nth(n).is_visible() for n in range(TURNS))
    assert in_sight(page.locator("#prompt summary"))
    assert in_sight(turns.first)
    expect(page.locator("#prompt")).to_be_focused()  # where a screen reader reads on
    assert faults(page) == []
    assert is_narrow(page)
    press(page, "h")
    assert not turns.first.is_visible()
    assert page.evaluate("[scrollY, document.activeElement.id]") == before

    press(page, f"h {VERDICTS[kind]} Enter")  # they are in nobody's way
    shown(page, first.question)
    assert not turns.first.is_visible()
    saved(page)
    (vote,) = list_votes(site.store, study.id)
    assert vote.displayed["choice"] == CHOICES[kind]


def test_a_short_conversation_lies_open_and_a_question_alone_has_none(site: Site, visit: Visit) -> None:
    page = visit()
    site.sign_in(page, dialogue(site, "pair", turns=3))
    open_rating(page, site)
    turns = page.locator("#prompt .turn")
    assert [turns.nth(n).is_visible() for n in range(3)] == [True] * 3
    press(page, "h")
    assert [turns.nth(n).is_visible() for n in range(3)] == [False, False, True]
    press(page, "h m")
    assert page.locator("#prompt pre").count() == 3  # as they were written
    alone = visit()
    site.sign_in(alone, site.study(pairs=1, name="alone"), "berta")
    first = open_rating(alone, site)
    press(alone, "h 7")
    assert shown(alone) == first
    expect(alone.locator("[name=verdict]:checked")).to_have_count(1)


def test_the_key_is_among_the_keys(site: Site, visit: Visit) -> None:
    page = visit(width=360)
    site.sign_in(page, dialogue(site, "pair"))
    open_rating(page, site)
    press(page, "?")
    keys = page.locator("#keys dt").all_inner_texts()
    assert keys.count("h") == 1
    expect(page.locator("#keys")).to_contain_text("earlier turns of the conversation, and back")
    press(page, "h")  # nothing behind a dialogue moves
    assert not page.locator("#prompt .turn").first.is_visible()


def test_a_live_conversation_keeps_what_was_said_one_key_away(site: Site, visit: Visit) -> None:
    study = site.study(pairs=0)
    site.models = Scripted.of(**{"SECRET-ONE": saying("one"), "SECRET-TWO": saying("two")})
    set_live_models(site.store, study.id, LiveModels("SECRET-ONE", "SECRET-TWO", turns=3))
    page = visit(width=360, dark=True)
    site.sign_in(page, study)
    page.goto(f"{site.url}/rate")
    question = ""
    for number in range(3):
        expect(page.locator("#message")).to_be_focused()
        page.keyboard.type(f"Message {number}")
        press(page, "Enter")
        question = shown(page, question).question
        if number < 2:
            press(page, "7 Enter")
    first = page.locator("#prompt .turn").first
    assert not first.is_visible()
    press(page, "h")
    expect(first).to_be_visible()
    expect(first).to_contain_text("Message 0")
    assert page.locator("#prompt .turn").count() == 5
    assert faults(page) == []
    assert is_narrow(page)
    press(page, "h 1 Enter")
    expect(page.locator("#talk-title")).to_have_text("Begin a conversation")
    saved(page)
    assert [len(asked.messages) for asked in list_questions(site.store, study.id)] == [1, 3, 5]
