"""What the rater's screen is sent and sends."""

import json
from typing import Any

import pytest
from offenders import for_each

from tutelage.data.records import CompletionRecord
from tutelage.people import (
    Item,
    Plan,
    Presentation,
    Store,
    add_items,
    add_rater,
    create_study,
    find_rater,
    get_rater,
    list_raters,
    list_votes,
    present,
    set_state,
)
from tutelage.people.answers import FLAGS
from tutelage.people.web.call import LONGEST_BODY
from tutelage.people.web.client import RaterClient

from ...worlds import QUIET, better, records
from ..conftest import World, add_known, make_study


def test_a_question_holds_the_texts_and_nothing_else(world: World) -> None:
    question = world.rater().next()["question"]
    assert set(question) == {"id", "training", "messages", "responses", "criteria"}
    assert question["criteria"] == []
    assert all(set(text) == {"html", "text"} for text in question["responses"])
    assert [set(message) for message in question["messages"]] == [{"role", "html", "text"}]
    assert {text["text"].split()[0] for text in question["responses"]} == {"good", "bad"}


def test_an_answer_arrives_as_it_was_given(world: World) -> None:
    browser = world.rater("anna")
    question = browser.next()["question"]
    said = {
        "strength": 3,
        "criteria": {"clear": "left", "accurate": "tie"},
        "flags": ["harmful", "cut_off"],
        "reason": "Weil es 'so' ist → \U0001f642\nzweite Zeile",
        "active_ms": 1234,
        "wall_ms": 5678,
        "changes": 4,
        "client": "test",
    }
    reply = browser.answer(question, "right", **said)
    assert reply.json() | {"progress": 0, "version": 0} == {
        "revision": 1,
        "extra": False,
        "known": False,
        "feedback": None,
        "state": "active",
        "progress": 0,
        "version": 0,
    }
    (vote,) = list_votes(world.store, world.study.id)
    chosen = "ab"[vote.sides[1]]
    assert (vote.rater, vote.verdict, vote.strength) == ("anna", chosen, 3)
    assert vote.criteria == {"clear": "ab"[vote.sides[0]], "accurate": "tie"}
    assert (vote.flags, vote.reason, vote.client) == (("harmful", "cut_off"), said["reason"], "test")
    assert (vote.active_ms, vote.wall_ms, vote.changes) == (1234, 5678, 4)


def test_sending_again_is_sending_once(world: World) -> None:
    browser = world.rater()
    question = browser.next()["question"]
    first = browser.answer(question, "tie", key="same").json()
    again = browser.answer(question, "tie", key="same").json()
    assert (first["known"], again["known"], again["revision"]) == (False, True, 1)
    assert len(list_votes(world.store, world.study.id, every_revision=True)) == 1


def test_a_change_of_mind_is_a_revision(world: World) -> None:
    browser = world.rater()
    question = browser.next()["question"]
    browser.answer(question, "left")
    browser.next()
    assert browser.answer(question, "both_bad").json()["revision"] == 2
    every = list_votes(world.store, world.study.id, every_revision=True)
    assert [(vote.displayed["choice"], vote.latest) for vote in every] == [("left", False), ("both_bad", True)]


def test_what_was_answered_can_be_looked_at_again(world: World) -> None:
    browser = world.rater()
    given = []
    for choice in ("left", "tie", "right"):
        question = browser.next()["question"]
        browser.answer(question, choice, reason=f"because {choice}")
        given.append((question, choice))
    answers = browser.get("/rate/recent").json()["answers"]
    assert [(each["question"], each["answer"]["choice"]) for each in answers] == given[::-1]
    assert answers[0]["answer"] == {
        "choice": "right", "strength": 1, "criteria": {}, "flags": [], "reason": "because right", "correction": None,
        "spans": [],
    }  # fmt: skip


def test_answers_to_an_older_question_cannot_be_changed_unseen(world: World) -> None:
    browser = world.rater()
    browser.answer(browser.next()["question"])
    present(world.store, world.study.id, Presentation("Which is funnier?"))
    assert browser.get("/rate/recent").json()["answers"] == []


def test_some_may_be_fetched_ahead_but_not_hoarded(world: World) -> None:
    browser = world.rater()
    held = [browser.next()["question"]["id"]]
    assert browser.next()["question"]["id"] == held[0]  # a reload shows the same
    while len(held) < 5:
        held.append(browser.next(held)["question"]["id"])
    assert len(set(held)) == 5
    reply = browser.next(held)
    assert reply["question"] is None
    assert "open already" in reply["why"]


def test_what_was_reserved_under_an_older_question_is_exchanged(world: World) -> None:
    """Whatever else is on its way: a page that asks the new question never gets one that was reserved for the old."""
    browser = world.rater()
    on_its_way = browser.next()["question"]["id"]
    ready = [browser.next([on_its_way])["question"]["id"]]
    ready.append(browser.next([on_its_way, *ready])["question"]["id"])
    present(world.store, world.study.id, Presentation("Which is funnier?", criteria=("funny",)))
    question = browser.next([on_its_way])["question"]
    assert browser.answer(question, criteria={"funny": "left"}).json()["revision"] == 1
    assert browser.answer({"id": on_its_way}, criteria={"clear": "left"}).json()["extra"] is False
    assert [vote.version for vote in list_votes(world.store, world.study.id)] == [2, 1]


def test_the_end_is_told_from_an_error(world: World) -> None:
    browser = world.rater()
    while (reply := browser.next())["question"] is not None:
        assert reply["why"] == ""
        browser.answer(reply["question"])
    assert "everything there is to answer" in reply["why"]
    set_state(world.store, world.study.id, "paused")
    assert "paused" in browser.next()["why"]


def test_progress_is_told_with_the_quota(world: World) -> None:
    browser = world.browser_of(add_rater(world.store, world.study.id, "anna", quota=2, kind="simulated"))
    for answered in range(2):
        reply = browser.next()
        assert reply["progress"] == {"answered": answered, "quota": 2, "left": None, "practice": None}
        browser.answer(reply["question"], "skip", reason="no idea") if answered else browser.answer(reply["question"])
    assert browser.next()["question"] is not None  # what cannot be judged does not use up the quota
    reply = browser.answer(browser.next()["question"])
    assert reply.json()["progress"]["answered"] == 2
    assert "all the 2 answers" in browser.next()["why"]


def test_a_question_that_was_reserved_before_a_change_is_asked_as_it_is_now(world: World) -> None:
    browser = world.rater()
    browser.next()
    present(world.store, world.study.id, Presentation("Which is funnier?", criteria=("funny",)))
    reply = browser.next()
    assert reply["version"] == 2
    answered = browser.answer(reply["question"], "left", criteria={"funny": "left"})
    assert answered.status_code == 200
    assert list_votes(world.store, world.study.id)[0].version == 2


BAD: list[tuple[Any, str]] = [
    ({"choice": "middle"}, "not an answer to this question"),
    ({"choice": 7}, "'choice' must be text"),
    ({"strength": 4}, "strength"),
    ({"strength": "1"}, "'strength' must be a whole number"),
    ({"strength": True}, "'strength' must be a whole number"),
    ({"strength": 1e9}, "'strength' must be a whole number"),
    ({"strength": 10**400}, "'strength' must be a whole number"),
    ({"choice": "tie", "strength": 2}, "strength"),
    ({"choice": "skip", "strength": 0}, "needs a reason"),
    ({"choice": "ranked", "strength": 0}, "not an answer to this question"),
    ({"ranking": [1, 2]}, "An answer to this question has no field 'ranking'"),
    ({"colour": "red"}, "An answer to this question has no field 'colour'"),
    ({"criteria": {"helpful": "left"}}, "criteria of this study are clear, accurate"),
    ({"criteria": {"clear": "a"}}, "answered left, right or tie"),
    ({"criteria": ["clear"]}, "'criteria' must be an object"),
    ({"flags": ["boring"]}, "The flag 'boring' is unknown"),
    ({"flags": [None]}, "'flags' must be text"),
    ({"reason": "x" * 20_001}, "20,001 characters"),
    ({"reason": None}, "'reason' must be text"),
    ({"reason": "half a character: \ud800"}, "'reason' must be text"),
    ({"reason": "a zero: \0"}, "'reason' must be text"),
    ({"key": ""}, "idempotency key"),
    ({"key": "k" * 101}, "idempotency key"),
    ({"key": None}, "'key' must be text"),
    ({"active_ms": -1}, "cannot be negative"),
    ({"active_ms": "1"}, "'active_ms' must be a whole number"),
    ({"assignment": None}, "'assignment' must be a whole number"),
    ({"assignment": 10**14}, "does not exist"),
    ({"assignment": -1}, "does not exist"),
]


@pytest.mark.parametrize(("changed", "message"), BAD, ids=[str(bad[0])[:40] for bad in BAD])
def test_an_impossible_answer_is_refused_with_a_sentence(world: World, changed: dict, message: str) -> None:
    browser = world.rater()
    question = browser.next()["question"]
    said = {"assignment": question["id"], "choice": "left", "strength": 1, "key": "k"} | changed
    body = json.dumps(said)
    headers = browser.headers(**{"x-csrf-token": _token(browser), "content-type": "application/json"})
    reply = world.client.post("/rate/answers", content=body, headers=headers)
    assert reply.status_code == 400
    assert message in reply.json()["error"]
    assert list_votes(world.store, world.study.id) == ()


RANKS = "gives each of the 3 responses a rank from 1 to 3"


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"ranking": "123"}, RANKS),
        ({"ranking": [1] * 101}, RANKS),
        ({"ranking": [1, 2]}, RANKS),
        ({"ranking": [1, 2, 4]}, RANKS),
        ({"ranking": [1, 2, 0]}, RANKS),
        ({"ranking": [1, 2, "3"]}, RANKS),
        ({"ranking": [1, 2, True]}, RANKS),
        ({"ranking": {"0": 1}}, RANKS),
        ({}, RANKS),
        ({"choice": "left", "ranking": [1, 2, 3]}, "not an answer to this question"),
        ({"choice": "both_bad", "ranking": [1, 2, 3]}, "'both_bad' to this question cannot have 'ranking'"),
        ({"ranking": [1, 2, 3], "strength": 1}, "strength"),
    ],
)
def test_an_impossible_ranking_is_refused_with_a_sentence(lite: Store, said: dict, message: str) -> None:
    study = create_study(lite, "ranks", kind="ranking", plan=QUIET)
    texts = [CompletionRecord(f"p0{n}", "p0", f"text {n}", "m") for n in range(3)]
    add_items(lite, study.id, records(1)[0], texts, [Item("i", "p0", tuple(text.id for text in texts))])
    browser = World(lite, study).rater()
    question = browser.next()["question"]
    answer = {"assignment": question["id"], "choice": "ranked", "strength": 0, "key": "k"}
    reply = browser.json("/rate/answers", answer | said)
    assert reply.status_code == 400
    assert message in reply.json()["error"]
    assert list_votes(lite, study.id) == ()
    answer |= {"ranking": [2, 1, 2], "criteria": {}}
    assert browser.json("/rate/answers", answer).status_code == 200
    assert browser.get("/rate/recent").json()["answers"][0]["answer"]["ranking"] == [2, 1, 2]


@for_each(
    [
        (b"", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"null", "application/json", 400),
        (b"{", "application/json", 400),
        (b"\xff\xfe", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b"{}", "text/plain", 415),
        (b"choice=left", "application/x-www-form-urlencoded", 415),
        (b" " * (LONGEST_BODY + 1), "application/json", 413),
    ]
)
def test_a_body_that_is_no_answer_is_refused(body: bytes, kind: str, status: int, world: World) -> None:
    browser = world.rater()
    headers = browser.headers(**{"x-csrf-token": _token(browser), "content-type": kind})
    reply = world.client.post("/rate/answers", content=body, headers=headers)
    assert reply.status_code == status
    assert reply.json()["error"]


def test_a_form_that_is_too_large_or_broken_is_refused(world: World) -> None:
    owner = world.owner()
    headers = owner.headers(**{"content-type": "application/x-www-form-urlencoded"})
    large = world.client.post("/owner/settings/question", content=b"a" * (LONGEST_BODY + 1), headers=headers)
    assert large.status_code == 413
    for content in (b"\xff=1", b"&".join(b"a=1" for _ in range(1_000))):
        assert world.client.post("/owner/settings/question", content=content, headers=headers).status_code == 400


def test_every_flag_of_the_screen_is_accepted(world: World) -> None:
    browser = world.rater()
    browser.answer(browser.next()["question"], flags=list(FLAGS))
    assert list_votes(world.store, world.study.id)[0].flags == tuple(FLAGS)
    page = browser.get("/rate").text
    assert all(f'value="{flag}"' in page for flag in FLAGS)


def test_practice_teaches_and_ends(lite: Store) -> None:
    study = make_study(lite, 4)
    add_known(lite, study, "training", 3)
    world = World(lite, study)
    browser = world.rater("anna", training=True)
    browser.blind = True
    for number in range(3):
        question = browser.next()["question"]
        assert question["training"]
        side = "left" if question["responses"][0]["text"].startswith("good") else "right"
        reply = browser.answer(question, side).json()
        explanation = '<p dir="ltr">Because <em>good</em> is good.</p>\n'
        assert reply["feedback"] == {"expected": side, "right": True, "html": explanation}
        assert reply["state"] == ("active" if number == 2 else "training")
    question = browser.next()["question"]
    assert not question["training"]
    assert browser.answer(question).json()["feedback"] is None


def test_failing_the_practice_stops_without_blame(lite: Store) -> None:
    study = make_study(lite, 4)
    add_known(lite, study, "training", 2)
    world = World(lite, study)
    browser = world.rater("anna", training=True)
    for _ in range(2):
        question = browser.next()["question"]
        wrong = "right" if question["responses"][0]["text"].startswith("good") else "left"
        reply = browser.answer(question, wrong).json()
        assert reply["feedback"]["right"] is False
    assert reply["state"] == "paused"
    assert "paused" in browser.next()["why"]


def test_known_answers_look_like_any_other(lite: Store) -> None:
    """Nothing in what is sent differs between a question with a known answer and one without."""
    study = make_study(lite, 10, Plan(overlap=1, gold_rate=0.5, repeat_rate=0))
    add_known(lite, study, "gold", 10)
    world = World(lite, study)
    browser = world.rater()
    kinds: dict[bool, set[str]] = {True: set(), False: set()}
    for _ in range(20):
        reply = browser.next()
        if reply["question"] is None:
            break
        is_gold = "10" in reply["question"]["messages"][0]["text"]  # their numbers begin at 1000
        answered = browser.answer(reply["question"]).json()
        shape = (sorted(reply), sorted(reply["question"]), sorted(answered), answered["feedback"])
        kinds[is_gold].add(json.dumps(shape))
    assert kinds[True] == kinds[False]
    assert len(kinds[True]) == 1


def test_the_page_of_each_scale_has_its_points(lite: Store) -> None:
    for scale, points in ((1, 3), (2, 5), (3, 7)):
        study = make_study(lite, 1, name=f"scale {scale}", scale=scale)
        page = World(lite, study).rater().get("/rate").text
        assert page.count('class="point"') == points
        assert page.count("data-criterion") == 0


def test_the_client_is_a_rater_like_any_other(world: World) -> None:
    """`RaterClient` against the real routes, through the test's transport instead of a socket."""
    browser = world.rater("anna")
    client = RaterClient("http://site.test", browser.session, browser.cookie)
    client._http = world.client
    world.client.headers.update(browser.headers(**{"x-csrf-token": _token(browser)}))
    question, _ = client.next()
    assert question is not None
    assert question.prompt.startswith("Question")
    reply = client.answer(question.id, better(_assignment(question)))
    assert reply["revision"] == 1
    (vote,) = list_votes(world.store, world.study.id)
    assert vote.verdict == "b"


def test_heartbeats_renew_what_is_on_the_screen(world: World) -> None:
    browser = world.rater("anna")
    browser.next()
    ends = browser.json("/rate/renew", {}).json()["lease_ends"]
    assert ends > world.store.now() + (QUIET.lease_seconds - 10) * 1000
    rater = find_rater(world.store, world.study.id, "anna")
    assert rater is not None
    assert rater.seen is not None
    assert get_rater(world.store, rater.id) == list_raters(world.store, world.study.id)[0]


def _token(browser: Any) -> str:
    from tutelage.people.web.auth import csrf_token

    return csrf_token(browser.session)


def _assignment(question: Any) -> Any:
    """What `better` looks at."""

    class Shown:
        left = question.texts[0]

    return Shown()
