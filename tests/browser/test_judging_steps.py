"""A rater judges the steps of traces in a real browser, by keyboard, on a phone and from right to left."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tiers import long_except

from tutelage.data.records import CompletionRecord, Message, Prompt, Step, ToolCall, user
from tutelage.people import Item, Presentation, Study, add_items, create_study, list_votes, next_assignment, submit
from tutelage.people.kinds.steps import first_wrong

from .sites import QUIET, Site, is_narrow, open_rating, press, saved, shown
from .test_accessibility import faults

Visit = Callable[..., Page]
HOSTILE = (
    '<img src=x onerror="document.title=1"><script>document.title = "taken"</script> [a](javascript:alert(1)) \u202e'
)
TOOL = json.dumps({"type": "function", "function": {"name": "search", "description": HOSTILE}})


def act(number: int, content: str = "", result: str = "42", **arguments: object) -> Step:
    call = ToolCall("search", json.dumps(arguments or {"query": HOSTILE}), f"c{number}")
    return Message("assistant", content, "I *think* so.", (call,)), Message("tool", result, call_id=call.id)


TRACE = (
    act(1, "First.", "\n".join(f"line {line} {HOSTILE}" for line in range(60))),
    act(2, "Then.", "error: no such page", page=2, exact=True),
    act(3, HOSTILE, HOSTILE),
    (Message("assistant", "The answer is **42**."),),
)


def study_of(site: Site, *, scale: int = 2, kind: str = "steps", traces: int = 3, **settings: Any) -> Study:
    shown_as = Presentation("Which steps are right?" if kind == "steps" else "Which is better?", scale)
    study = create_study(site.store, "traces", kind=kind, plan=QUIET, presentation=shown_as, **settings)
    prompts = [
        Prompt(f"p{n}", (Message("system", "Use the tools.", tools=(TOOL,)), *user(f"Question {n}?")))
        for n in range(traces)
    ]
    places = range(1 if kind == "steps" else 2)
    completions = [
        CompletionRecord(f"p{n}r{place}", f"p{n}", f"trace {place}", f"SECRET-{place}", steps=TRACE[place:])
        for n in range(traces)
        for place in places
    ]
    items = [Item(f"i{n}", f"p{n}", tuple(f"p{n}r{place}" for place in places)) for n in range(traces)]
    add_items(site.store, study.id, prompts, completions, items)
    return study


def labels(site: Site, study: Study) -> list[object]:
    return [vote.content.get("labels") for vote in list_votes(site.store, study.id)]


def test_the_first_wrong_step_by_keyboard_alone(site: Site, visit: Visit) -> None:
    study = study_of(site)
    page = visit()
    site.sign_in(page, study)
    first = open_rating(page, site)
    press(page, "Enter")
    expect(page.locator("#hint")).to_be_visible()  # nothing is judged yet
    press(page, "j 2 1")
    expect(page.locator("#order")).to_contain_text("Step 2")
    press(page, "r")
    page.keyboard.type("no such page")
    press(page, "Control+Enter")
    second = shown(page, first.question)
    press(page, "0 Enter")
    shown(page, second.question)
    press(page, "u u")  # back to the first answer, with what was given
    expect(page.locator(".trace-step").nth(1)).to_have_attribute("data-sign", "-1")
    expect(page.locator(".trace-step textarea").nth(1)).to_have_value("no such page")
    press(page, "j j j j 1 Enter")  # from the first step to the last one: the earlier ones are right now
    saved(page)
    assert sorted(labels(site, study), key=str) == [[1, 1, 1, -1], [1, 1, 1, 1]]
    reasons = [vote.content["reasons"] for vote in list_votes(site.store, study.id)]
    assert sorted(reasons, key=str) == [{"2": "no such page"}, {}]


def test_escape_leaves_a_reason_for_the_keys(site: Site, visit: Visit) -> None:
    study = study_of(site, traces=1)
    page = visit()
    site.sign_in(page, study)
    open_rating(page, site)
    press(page, "j 2 r")
    page.keyboard.type("fine")
    press(page, "Escape 0 Enter")
    saved(page)
    (vote,) = list_votes(site.store, study.id)
    assert vote.content == {"labels": [1, 1, 1, 1], "reasons": {"1": "fine"}}


@pytest.mark.parametrize("language", ["en", "ar"])
def test_no_button_of_a_step_covers_another_on_the_smallest_screen(site: Site, visit: Visit, language: str) -> None:
    study = study_of(site, scale=3, traces=1, languages=(language,))
    page = visit(width=360, height=740)
    site.sign_in(page, study)
    open_rating(page, site)
    boxes = [each.bounding_box() for each in page.locator(".step-answer").first.locator(".chip, .why").all()]
    assert len(boxes) == 4
    for place, one in enumerate(boxes):
        for other in boxes[:place]:
            assert one is not None
            assert other is not None
            beside = one["x"] + one["width"] <= other["x"] or other["x"] + other["width"] <= one["x"]
            below = one["y"] >= other["y"] + other["height"] or other["y"] >= one["y"] + one["height"]
            assert beside or below


def test_a_label_for_each_step_and_a_reload_keeps_them(site: Site, visit: Visit) -> None:
    study = study_of(site, scale=3)
    page = visit()
    site.sign_in(page, study)
    open_rating(page, site)
    press(page, "1 2")
    expect(page.locator("#order")).to_contain_text("2")
    page.reload()
    shown(page)
    expect(page.locator(".trace-step").first).to_have_attribute("data-sign", "-1")
    press(page, "0 Enter")
    saved(page)
    assert labels(site, study) == [[-1, 0, 1, 1]]


def test_practice_says_which_step_was_the_first_wrong_one(site: Site, visit: Visit) -> None:
    study = study_of(site, traces=1)
    practice = Item("practice", "p0", ("p0r0",), pool="training", gold="2", explanation="There is *no* such page.")
    add_items(site.store, study.id, [], [], [practice])
    page = visit()
    site.sign_in(page, study, training=True)
    open_rating(page, site)
    press(page, "2 2 1 Enter")
    expect(page.locator("#lesson-title")).to_contain_text("step 2")
    expect(page.locator("#lesson-text")).to_contain_text("There is no such page.")
    expect(page.locator(".trace-step").nth(1)).to_contain_text("our choice")
    assert faults(page) == []


def test_hostile_texts_of_models_and_tools_stay_text(site: Site, visit: Visit) -> None:
    study = study_of(site)
    page = visit()
    site.sign_in(page, study)
    open_rating(page, site)
    title = page.title()
    assert page.locator("#question :is(img, script), #question a[href^=javascript]").count() == 0
    assert page.locator(".card .invisible").count() > 0
    press(page, "m m")
    assert page.title() == title
    expect(page.locator(".card.error")).to_have_count(1)


@pytest.mark.parametrize("kind", long_except(["steps"], ["steps", "pair"]))
def test_traces_are_for_everybody(site: Site, visit: Visit, kind: str) -> None:
    study = study_of(site, kind=kind, scale=2, traces=1)
    for width in (1280, 360):
        page = visit(width=width)
        site.sign_in(page, study, f"anna {width}")
        open_rating(page, site)
        page.locator("details").evaluate_all("(all) => all.forEach((each) => (each.open = true))")
        assert faults(page) == []
        assert is_narrow(page)


def test_from_right_to_left_and_in_the_pages_of_owners(site: Site, visit: Visit) -> None:
    study = study_of(site, languages=("ar",), traces=1)
    page = visit(width=360)
    rater = site.sign_in(page, study)
    open_rating(page, site)
    assert is_narrow(page)
    assert faults(page) == []
    question = next_assignment(site.store, rater)
    assert question is not None
    submit(site.store, question.id, first_wrong(2, 4))
    owner = visit()
    site.sign_in(owner, study, "olga", role="owner")
    for path in ("/owner/items/i0", "/owner", "/owner/items?state=disagreed&by=disagreement"):
        owner.goto(f"{site.url}{path}")
        assert faults(owner) == []
