"""Webhooks over HTTP: signed, told once, tried again, and never led elsewhere."""

import json
import logging
from typing import Any

import pytest

from tutelage.people import Answer, Store, add_rater, submit, write_note
from tutelage.people.delivery import deliver, send_test
from tutelage.people.grants import NewWebhook
from tutelage.people.notification import Notifier
from tutelage.people.programs.signatures import verify_webhook
from tutelage.people.store.inbox import notice_round
from tutelage.people.store.webhooks import WAITS_MS, add_webhook, list_webhooks

from .worlds import Clock, asked, raters_of, study_of, work


def test_a_full_round_is_told_by_the_mechanism_of_the_inbox(store: Store, hook: Any) -> None:
    url, came = hook
    study = study_of(store, 2)
    _, secret = add_webhook(store, study.id, NewWebhook(f"{url}/hook", ("round",)))
    raters = raters_of(store, study, 2)
    for _ in range(2):  # the second one is that of a server that was started again
        notifier = Notifier(store, study.id, [], "https://rate.example.org/owner/inbox")
        notifier.look()
        work(store, raters)
        notifier.look()
        notifier.look()
    ((headers, body),) = came
    assert verify_webhook(secret, headers, body) == {
        "type": "round.full",
        "timestamp": "2023-11-14T22:13:20Z",
        "data": {"study": "tutoring", "inbox": "https://rate.example.org/owner/inbox", "round": 1, "items": 2},
    }
    assert headers["webhook-id"].startswith("msg_")
    assert headers["content-type"] == "application/json"


def test_notices_of_people_have_types_of_their_own(lite: Store, hook: Any) -> None:
    url, came = hook
    study = study_of(lite, 2)
    add_webhook(lite, study.id, NewWebhook(url, ("inbox",)))
    anna = add_rater(lite, study.id, "anna").id
    submit(lite, asked(lite, anna).id, Answer("left", 1, flags=("cut_off",), reason="It stops."))
    submit(lite, asked(lite, anna).id, Answer("left", 1, reason="a reason of an ordinary answer"))
    write_note(lite, anna, "May I look things up?")
    assert deliver(lite, study.id) == 2
    sent = [json.loads(body) for _, body in came]
    assert [(each["type"], each["data"]["said"]) for each in sent] == [
        ("inbox.flag", "It stops."),
        ("inbox.note", "May I look things up?"),
    ]


@pytest.mark.parametrize(
    ("path", "problem"), [("/broken", "answered with status 500"), ("/moved", "answered with status 307")]
)
def test_what_does_not_arrive_comes_again_under_the_same_id(
    lite: Store, clock: Clock, hook: Any, caplog: pytest.LogCaptureFixture, path: str, problem: str
) -> None:
    url, came = hook
    study = study_of(lite, 1)
    add_webhook(lite, study.id, NewWebhook(url + path, ("round",)))
    for number in (1, 2):
        notice_round(lite, study.id, number, 1)
    with caplog.at_level(logging.WARNING, "tutelage"):
        assert deliver(lite, study.id) == 0
    assert len(came) == 1  # the second message does not knock at a door that just failed
    assert f"127.0.0.1 {problem}; it will be retried" in caplog.text
    assert list_webhooks(lite, study.id)[0].error == problem
    clock.seconds += WAITS_MS[0] / 1000
    deliver(lite, study.id)
    clock.seconds += WAITS_MS[0] / 1000
    deliver(lite, study.id)
    ids = [headers["webhook-id"] for headers, _ in came]
    assert len(ids) == 3
    assert len(set(ids)) == 2


def test_an_address_where_nobody_listens_is_named_without_its_path(
    lite: Store, caplog: pytest.LogCaptureFixture
) -> None:
    study = study_of(lite, 1)
    add_webhook(lite, study.id, NewWebhook("http://127.0.0.1:1/very/secret", ("round",)))
    notice_round(lite, study.id, 1, 1)
    with caplog.at_level(logging.WARNING, "tutelage"):
        assert deliver(lite, study.id) == 0
    assert "127.0.0.1 cannot be reached" in caplog.text
    assert "secret" not in caplog.text


def test_a_test_is_signed_and_says_what_went_wrong(lite: Store, hook: Any) -> None:
    url, came = hook
    study = study_of(lite, 1)
    number, secret = add_webhook(lite, study.id, NewWebhook(f"{url}/hook", ("round",)))
    broken, _ = add_webhook(lite, study.id, NewWebhook(f"{url}/broken", ("round",)))
    assert send_test(lite, study.id, number) == ""
    assert send_test(lite, study.id, broken) == "answered with status 500"
    headers, body = came[0]
    assert verify_webhook(secret, headers, body)["type"] == "test"
