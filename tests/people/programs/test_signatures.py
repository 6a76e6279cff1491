"""Signatures of webhooks against the published example of Standard Webhooks, and what a receiver refuses."""

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.people.programs.signatures import WebhookRefused, signed_headers, verify_webhook

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"test": 2432232314}'
HEADERS = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}
"""The example of the specification's reference implementations."""
NOW = 1_614_265_330


def test_the_published_example_is_signed_and_verified() -> None:
    assert signed_headers([SECRET], HEADERS["webhook-id"], NOW, BODY) == HEADERS
    assert verify_webhook(SECRET, HEADERS, BODY, now=NOW) == {"test": 2432232314}


@settings(max_examples=25, deadline=None)
@given(st.binary(min_size=1), st.dictionaries(st.text(), st.integers()), st.integers(0, 10**10))
def test_what_is_signed_is_verified_by_its_secret_alone(key: bytes, content: dict[str, int], when: int) -> None:
    secret, body = "whsec_" + base64.b64encode(key).decode(), json.dumps(content).encode()
    headers = signed_headers([secret], "msg_1", when, body)
    assert verify_webhook(secret, headers, body, now=when) == content
    other = "whsec_" + base64.b64encode(key + b"x").decode()
    with pytest.raises(WebhookRefused, match="signature"):
        verify_webhook(other, headers, body, now=when)
    with pytest.raises(WebhookRefused, match="signature"):
        verify_webhook(secret, headers, body + b" ", now=when)


def test_names_of_headers_have_no_case_and_one_of_several_signatures_is_enough() -> None:
    told = {name.title(): value for name, value in HEADERS.items()}
    told["Webhook-Signature"] = f"v1a,abc v1,AAAA {HEADERS['webhook-signature']} v2,x"
    assert verify_webhook(SECRET, told, BODY, now=NOW)


@for_each(
    [
        ({"webhook-id": ""}, "webhook-id"),
        ({"webhook-id": "msg_other"}, "signature"),
        ({"webhook-timestamp": "1614265331"}, "signature"),
        ({"webhook-signature": ""}, "webhook-signature"),
        ({"webhook-signature": "v1"}, "signature"),
        ({"webhook-signature": HEADERS["webhook-signature"].replace("v1", "v2")}, "signature"),
    ]
)
def test_what_was_changed_is_refused(change: dict[str, str], complaint: str) -> None:
    with pytest.raises(WebhookRefused, match=complaint):
        verify_webhook(SECRET, HEADERS | change, BODY, now=NOW)


@pytest.mark.parametrize("away", [-301, 301])
def test_an_old_message_is_refused(away: int) -> None:
    assert verify_webhook(SECRET, HEADERS, BODY, now=NOW + 299)
    with pytest.raises(WebhookRefused, match="minutes"):
        verify_webhook(SECRET, HEADERS, BODY, now=NOW + away)


def test_a_signed_time_that_is_none_and_a_body_that_is_no_object_are_refused() -> None:
    with pytest.raises(WebhookRefused, match="object"):
        verify_webhook(SECRET, signed_headers([SECRET], "m", NOW, b"[]"), b"[]", now=NOW)
    with pytest.raises(WebhookRefused, match="JSON:"):
        verify_webhook(SECRET, signed_headers([SECRET], "m", NOW, b"x"), b"x", now=NOW)


@for_each(["whsec_", "whsec_***", "abc"])
def test_a_secret_that_is_none_is_named_and_not_repeated(secret: str) -> None:
    with pytest.raises(TutelageError, match="secret") as refused:
        verify_webhook(secret, HEADERS, BODY, now=NOW)
    assert "***" not in str(refused.value)
