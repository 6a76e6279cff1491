"""Live conversations over HTTP: what goes over the wire, and what does not."""

import json
from typing import Any

import httpx
import pytest
from offenders import for_each
from scripted_chat import Scripted, echoing, saying

from tutelage.data.transport import Unanswered
from tutelage.people import Plan, Store, add_rater, list_votes
from tutelage.people.store.conversations import LiveModels, set_live_models
from tutelage.people.web import streams

from ..conftest import Browser, World, make_study


@pytest.fixture
def world(lite: Store) -> World:
    """A site whose raters talk to models with names that no rater may be sent."""
    study = make_study(lite, 0, Plan(overlap=1, gold_rate=0.0, repeat_rate=0.0))
    set_live_models(lite, study.id, LiveModels("old-model", "new-model", turns=2, openings=("Why *me*?",)))
    models = Scripted.of(**{"old-model": echoing("One **says**"), "new-model": echoing("Two says")})
    return World(lite, study, models=models)


def say(
    browser: Browser, text: str = "Hello <b>you</b>", conversation: int | None = None, **more: Any
) -> httpx.Response:
    return browser.json("/rate/messages", {"conversation": conversation, "text": text, "key": f"key of {text}", **more})


def heard(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = response.text.split("\n\n")
    return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]


def test_a_turn_from_the_message_to_the_next(world: World) -> None:
    browser = world.rater()
    reply = browser.next()
    assert reply["question"] is None
    assert reply["talk"] == {
        "conversation": None, "turn": 1, "turns": 2, "messages": [], "openings": ["Why *me*?"], "writing": None,
    }  # fmt: skip
    sent = say(browser).json()
    assert sent["messages"][0]["html"] == '<p dir="ltr">Hello &lt;b&gt;you&lt;/b&gt;</p>\n'
    assert browser.next()["talk"]["writing"] == sent["turn"]
    events = heard(browser.get(f"/rate/turns/{sent['turn']}"))
    assert events[-1] == {"ready": True}
    html = {event["side"]: event["html"] for event in events if "html" in event}
    question = browser.next()["question"]
    assert [html[place] for place in (0, 1)] == [response["html"] for response in question["responses"]]
    assert any("<strong>says</strong>" in text for text in html.values())
    assert browser.answer(question).status_code == 200
    talk = browser.next()["talk"]
    assert (talk["conversation"], talk["turn"]) == (sent["conversation"], 2)
    assert talk["messages"][1] == {"role": "assistant", **question["responses"][0]}
    assert browser.json(f"/rate/conversations/{sent['conversation']}/end", {}).json() == {"ended": True}
    assert browser.next()["talk"]["conversation"] is None


def test_a_turn_is_its_raters_alone(world: World) -> None:
    browser, other = world.rater(), world.rater()
    sent = say(browser).json()
    for stranger in (other, world.owner()):
        assert stranger.get(f"/rate/turns/{sent['turn']}").status_code == 404
        assert stranger.json(f"/rate/conversations/{sent['conversation']}/end", {}).status_code == 400
        assert say(stranger, "Me too", sent["conversation"]).status_code == 400
    assert world.nobody().get(f"/rate/turns/{sent['turn']}").status_code == 401
    assert browser.get(f"/rate/turns/{sent['turn']}").status_code == 200
    for odd in ("0", "x", "-1", "9" * 20):
        assert browser.get(f"/rate/turns/{odd}").status_code == 404
    assert browser.get("/rate/turns/%00").status_code == 400


def test_nothing_is_said_before_consent(world: World) -> None:
    browser = world.browser_of(add_rater(world.store, world.study.id, "new"))
    assert say(browser).status_code == 403
    assert browser.get("/rate/turns/1").status_code == 403
    assert "You talk to two language models" in browser.get("/welcome").text


@for_each(
    [
        ({"text": " "}, "The message is empty"),
        ({"text": 3}, "'text' must be text"),
        ({"text": "a\0b"}, "'text' must be text"),
        ({"text": "x" * 20_001}, "at most 20,000"),
        ({"key": ""}, "idempotency key"),
        ({"key": 7}, "'key' must be text"),
        ({"conversation": "1"}, "'conversation' must be a whole number"),
        ({"conversation": 10**20}, "'conversation' must be a whole number"),
    ]
)
def test_a_message_that_cannot_be_is_refused_in_a_sentence(data: dict[str, Any], sentence: str, world: World) -> None:
    response = say(world.rater(), **data)
    assert response.status_code == 400
    assert sentence in response.json()["error"]


def test_a_failure_names_no_model_to_the_rater_and_every_model_to_the_owner(
    lite: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "WAIT", 0.0)
    study = make_study(lite, 0)
    set_live_models(lite, study.id, LiveModels("old-model", "new-model"))
    gone = saying(Unanswered("The model old-model at http://old-model:1 did not answer"))
    world = World(lite, study, models=Scripted.of(**{"old-model": gone, "new-model": gone}))
    browser = world.rater()
    assert heard(browser.get(f"/rate/turns/{say(browser).json()['turn']}"))[-1] == {"failed": streams.SILENT}
    owner = world.owner()
    inbox = owner.get("/owner/inbox?kind=model").text
    assert "old-model: The model old-model at http://old-model:1 did not answer" in inbox
    assert "new-model: " in inbox
    assert "Raters talk to old-model and new-model, for 4 turns at most" in owner.get("/owner/settings").text


def test_an_owner_adjudicates_a_turn_like_any_other_item(world: World) -> None:
    browser, owner = world.rater(), world.owner()
    sent = say(browser).json()
    browser.get(f"/rate/turns/{sent['turn']}")
    browser.answer(browser.next()["question"], "tie")
    (vote,) = list_votes(world.store, world.study.id)
    assert 'id="talk"' in owner.get("/rate").text
    assert 'id="talk"' not in owner.get(f"/rate?item={vote.item}").text
    question = owner.json("/rate/next", {"item": vote.item}).json()["question"]
    assert owner.answer(question).status_code == 200
    assert "old-model" in owner.get(f"/owner/items/{vote.item}").text


def test_a_study_without_models_has_nothing_of_all_this(lite: Store) -> None:
    world = World(lite, make_study(lite, 1))
    browser = world.rater()
    assert 'id="talk"' not in browser.get("/rate").text
    assert browser.next()["talk"] is None
    assert "models" in say(browser).json()["error"]
