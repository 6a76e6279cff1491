"""What is on its way to webhooks: each notice once to each address, tried again until it arrives or is given up."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from tutelage.base.errors import TutelageError
from tutelage.people import Store, add_rater, list_events, open_store, write_note
from tutelage.people.programs.signatures import signed_headers, verify_webhook
from tutelage.people.settings import NewWebhook
from tutelage.people.store import schema
from tutelage.people.store.inbox import notice_round
from tutelage.people.store.webhooks import (
    OVERLAP_HOURS,
    WAITS_MS,
    Delivery,
    add_webhook,
    claim_delivery,
    list_webhooks,
    queue_deliveries,
    remove_webhook,
    rotate_secret,
    secrets_of,
    settle_delivery,
)

from ..worlds import Clock, study_of

URL = "https://hooks.example.org/x"


def claimed(store: Store, study: int) -> Delivery:
    queue_deliveries(store, study)
    delivery = claim_delivery(store, study)
    assert delivery is not None
    return delivery


def test_each_address_is_told_once_of_what_it_wants_to_know_from_then_on(store: Store) -> None:
    study = study_of(store, 1).id
    anna = add_rater(store, study, "anna").id
    notice_round(store, study, 1, 1)
    add_webhook(store, study, NewWebhook(f"{URL}/rounds", ("round",)))
    add_webhook(store, study, NewWebhook(f"{URL}/inbox", ("inbox", "agreement")))
    notice_round(store, study, 2, 5)
    write_note(store, anna, "Hello.")
    told = []
    for _ in range(2):
        queue_deliveries(store, study)
        while (delivery := claim_delivery(store, study)) is not None:
            told.append((delivery.url.rpartition("/")[2], delivery.notice.kind, dict(delivery.notice.facts)))
            settle_delivery(store, delivery)
    assert sorted(told, key=str) == [("inbox", "note", {}), ("rounds", "round", {"round": 2, "items": 5})]
    assert [hook.waiting for hook in list_webhooks(store, study)] == [0, 0]
    assert all(hook.delivered for hook in list_webhooks(store, study))


def test_what_arrived_is_not_sent_again_after_a_restart_and_what_was_lost_is(url: str, clock: Clock) -> None:
    store = open_store(url, clock=clock)
    study = study_of(store, 1).id
    add_webhook(store, study, NewWebhook(URL, ("round",)))
    for number in (1, 2):
        notice_round(store, study, number, 1)
    first = claimed(store, study)
    settle_delivery(store, first)
    second = claimed(store, study)  # the server dies while it sends this one
    store.close()
    store = open_store(url, clock=clock)
    queue_deliveries(store, study)
    assert claim_delivery(store, study) is None
    clock.seconds += WAITS_MS[0] / 1000
    again = claimed(store, study)
    assert (again.message, again.notice.id, again.attempts) == (second.message, second.notice.id, 2)
    assert again.message != first.message
    settle_delivery(store, again)
    clock.seconds += 10_000_000
    queue_deliveries(store, study)
    assert claim_delivery(store, study) is None
    store.close()


def test_a_message_is_tried_with_growing_waits_and_given_up_after_three_days(store: Store, clock: Clock) -> None:
    study = study_of(store, 1).id
    add_webhook(store, study, NewWebhook(URL, ("round",)))
    notice_round(store, study, 1, 1)
    begin, messages = store.now(), set()
    for wait in WAITS_MS:
        delivery = claimed(store, study)
        messages.add(delivery.message)
        assert settle_delivery(store, delivery, "answered with status 500")
        clock.seconds += wait / 1000 - 1
        assert claim_delivery(store, study) is None
        clock.seconds += 1
    assert not settle_delivery(store, claimed(store, study), "answered with status 500")
    assert len(messages) == 1
    assert 3 < (store.now() - begin) / 86_400_000 < 4
    clock.seconds += 10_000_000
    queue_deliveries(store, study)
    assert claim_delivery(store, study) is None
    (hook,) = list_webhooks(store, study)
    assert (hook.waiting, hook.delivered, hook.error) == (0, None, "answered with status 500")


def test_a_failing_address_holds_up_no_other(store: Store) -> None:
    study = study_of(store, 1).id
    number, _ = add_webhook(store, study, NewWebhook(f"{URL}/broken", ("round",)))
    add_webhook(store, study, NewWebhook(f"{URL}/sound", ("round",)))
    for each in (1, 2):
        notice_round(store, study, each, 1)
    queue_deliveries(store, study)
    found = []
    while (delivery := claim_delivery(store, study, {number})) is not None:
        found.append((delivery.url, delivery.notice.facts["round"]))
    assert found == [(f"{URL}/sound", 1), (f"{URL}/sound", 2)]


def test_servers_that_send_at_once_share_what_is_due(store: Store) -> None:
    study = study_of(store, 1).id
    add_webhook(store, study, NewWebhook(URL, ("round",)))
    for number in range(20):
        notice_round(store, study, number, 1)

    def send(_: int) -> list[int]:
        queue_deliveries(store, study)
        found = []
        while (delivery := claim_delivery(store, study)) is not None:
            found.append(delivery.notice.id)
            settle_delivery(store, delivery)
        return found

    with ThreadPoolExecutor(4) as servers:
        sent = [notice for each in servers.map(send, range(4)) for notice in each]
    assert len(sent) == len(set(sent))
    sent += send(0)  # what another had locked is due still
    assert sorted(sent) == sorted(set(sent))
    assert len(sent) == 20


def test_an_address_that_was_removed_is_told_nothing_more_and_its_secret_is_gone(store: Store) -> None:
    study = study_of(store, 1).id
    number, secret = add_webhook(store, study, NewWebhook(URL, ("round",)), actor="boss")
    assert secrets_of(store, study, number) == (URL, (secret,))
    notice_round(store, study, 1, 1)
    queue_deliveries(store, study)
    remove_webhook(store, study, number, actor="boss")
    assert claim_delivery(store, study) is None
    assert list_webhooks(store, study) == ()
    with pytest.raises(TutelageError, match=f"webhook {number}"):
        secrets_of(store, study, number)
    with store.read() as connection:
        assert connection.scalar(sa.select(schema.webhook.c.secret)) == ""
    added, removed = (list_events(store, study, action=f"webhook_{what}")[0] for what in ("added", "removed"))
    assert (added.actor, removed.actor) == ("boss", "boss")
    assert added.detail["host"] == "hooks.example.org"
    assert "hooks.example.org/x" not in str(added.detail)  # an address is often a secret


def test_a_former_secret_signs_for_the_overlap_and_no_longer(store: Store, clock: Clock) -> None:
    study = study_of(store, 1).id
    number, first = add_webhook(store, study, NewWebhook(URL, ("round",)))
    second = rotate_secret(store, study, number, hours=2, actor="boss")
    assert secrets_of(store, study, number) == (URL, (second, first))
    notice_round(store, study, 1, 1)
    delivery = claimed(store, study)
    body = b'{"type": "round.full"}'
    headers = signed_headers(delivery.secrets, delivery.message, 1_000, body)
    for secret in (first, second):  # whoever knows either of them can tell that it is ours
        assert verify_webhook(secret, headers, body, now=1_000) == {"type": "round.full"}
    third = rotate_secret(store, study, number)
    with pytest.raises(TutelageError, match="signature"):
        verify_webhook(third, headers, body, now=1_000)
    assert secrets_of(store, study, number)[1] == (third, second)  # never more than two
    (known,) = list_webhooks(store, study)
    assert known.former_until is not None
    assert 0 <= store.now() + OVERLAP_HOURS * 3_600_000 - known.former_until < 1_000
    clock.seconds += OVERLAP_HOURS * 3_600
    assert secrets_of(store, study, number)[1] == (third,)
    assert list_webhooks(store, study)[0].former_until is None
    fourth = rotate_secret(store, study, number, hours=0)  # somebody has learnt the third
    assert secrets_of(store, study, number)[1] == (fourth,)
    with store.read() as connection:
        assert connection.scalar(sa.select(schema.webhook.c.former_secret)) == ""
    assert [e.detail for e in list_events(store, study, action="webhook_rotated")][-1] == {"hours": 2}
    for bad in (-1, 721):
        with pytest.raises(TutelageError, match="0 to 720"):
            rotate_secret(store, study, number, hours=bad)


NONSENSE: tuple[tuple[str, tuple[Any, ...], str], ...] = (
    ("hooks.example.org", ("round",), "address"),
    ("ftp://hooks.example.org", ("round",), "address"),
    ("file:///etc/passwd", ("round",), "address"),
    ("http://", ("round",), "address"),
    ("http://[", ("round",), "address"),
    ("http://x:99999/", ("round",), "address"),
    ("http://x/ y", ("round",), "address"),
    ("https://me:pw@x/", ("round",), "password"),
    (URL, (), "told"),
    (URL, ("everything",), "'everything'"),
)


def test_webhooks_that_make_no_sense_are_refused(lite: Store) -> None:
    study = study_of(lite, 1).id
    for url, topics, complaint in NONSENSE:
        with pytest.raises(TutelageError, match=complaint):
            add_webhook(lite, study, NewWebhook(url, topics))
    assert list_webhooks(lite, study) == ()
