"""The owner's page about programs: tokens, webhooks, the least agreement."""

import re
from typing import Any

import pytest

from tutelage.people import create_study
from tutelage.people.programs.signatures import WebhookRefused, verify_webhook
from tutelage.people.settings import NewToken, NewWebhook
from tutelage.people.store.api_tokens import create_token, find_token, list_tokens
from tutelage.people.store.inbox import alarm_of
from tutelage.people.store.webhooks import add_webhook, list_webhooks

from ...conftest import World

PAGE = "/owner/programs"


def secret_in(page: str) -> str:
    found = re.search(r'id="secret" readonly value="([^"]+)"', page)
    assert found is not None
    return found[1]


def test_a_token_is_shown_once_and_can_be_revoked(world: World) -> None:
    owner = world.owner()
    made = owner.form(f"{PAGE}/tokens", {"name": "<b>ci</b>", "rights": ["read", "add"], "days": "7"})
    token = find_token(world.store, secret_in(made.text))
    assert token is not None
    assert token.rights == ("read", "add")
    assert token.expires is not None
    assert "<b>ci" not in made.text
    page = owner.get(PAGE).text
    assert "never used" in page
    assert secret_in(made.text) not in page
    assert owner.form(f"{PAGE}/tokens/revoke", {"token": token.id}).headers["location"] == PAGE
    assert "this token was revoked" in owner.get(PAGE).text
    assert owner.form(f"{PAGE}/tokens", {"name": "for ever", "rights": "export", "days": ""}).status_code == 200
    assert list_tokens(world.store, world.study.id)[0].expires is None


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "", "rights": "read"}, "name"),
        ({"name": "ci"}, "rights"),
        ({"name": "ci", "rights": "rule"}, "rights"),
        ({"name": "ci", "rights": "read", "days": "soon"}, "days"),
    ],
)
def test_a_token_that_makes_no_sense_is_refused_beside_its_field(
    world: World, fields: dict[str, str], field: str
) -> None:
    refused = world.owner().form(f"{PAGE}/tokens", fields)
    assert refused.status_code == 400
    assert f'id="{field}-problem"' in refused.text
    assert list_tokens(world.store, world.study.id) == ()


def test_a_webhook_is_added_tested_and_removed(world: World, hook: Any) -> None:
    url, came = hook
    owner = world.owner()
    made = owner.form(f"{PAGE}/webhooks", {"url": f"{url}/hook", "topics": ["round", "inbox"]})
    (known,) = list_webhooks(world.store, world.study.id)
    assert known.topics == ("round", "inbox")
    assert "The test arrived" in owner.form(f"{PAGE}/webhooks/test", {"webhook": known.id}).text
    headers, body = came[0]
    assert verify_webhook(secret_in(made.text), headers, body)["data"] == {"study": world.study.name}
    owner.form(f"{PAGE}/webhooks", {"url": f"{url}/broken", "topics": "round"})
    failed = owner.form(f"{PAGE}/webhooks/test", {"webhook": known.id + 1})
    assert "answered with status 500" in failed.text
    fresh = owner.form(f"{PAGE}/webhooks/rotate", {"webhook": known.id, "former": "keep"})
    assert "signed with the former secret too until" in fresh.text
    owner.form(f"{PAGE}/webhooks/test", {"webhook": known.id})
    for page in (made, fresh):
        assert verify_webhook(secret_in(page.text), *came[-1])["type"] == "test"
    alone = owner.form(f"{PAGE}/webhooks/rotate", {"webhook": known.id, "former": "drop"})
    owner.form(f"{PAGE}/webhooks/test", {"webhook": known.id})
    verify_webhook(secret_in(alone.text), *came[-1])
    with pytest.raises(WebhookRefused):
        verify_webhook(secret_in(fresh.text), *came[-1])
    owner.form(f"{PAGE}/webhooks/remove", {"webhook": known.id})
    assert [each.url for each in list_webhooks(world.store, world.study.id)] == [f"{url}/broken"]
    for fields, field in (({"url": "ftp://x", "topics": "round"}, "url"), ({"url": url}, "topics")):
        refused = owner.form(f"{PAGE}/webhooks", fields)
        assert refused.status_code == 400
        assert f'id="{field}-problem"' in refused.text


def test_the_least_agreement_is_set_and_taken_away(world: World) -> None:
    owner = world.owner()
    owner.form(f"{PAGE}/bound", {"bound": "65%"})
    alarm = alarm_of(world.store, world.study.id)
    assert alarm is not None
    assert alarm.agreement == 0.65
    assert owner.form(f"{PAGE}/bound", {"bound": "much"}).status_code == 400
    owner.form(f"{PAGE}/bound", {"bound": ""})
    assert alarm_of(world.store, world.study.id) is None


def test_an_owner_has_no_power_over_the_programs_of_another_study(world: World) -> None:
    other = create_study(world.store, "another")
    create_token(world.store, other.id, NewToken("theirs", ("read",)))
    number, _ = add_webhook(world.store, other.id, NewWebhook("https://hooks.example.org", ("round",)))
    owner = world.owner()
    token = list_tokens(world.store, other.id)[0]
    assert owner.form(f"{PAGE}/tokens/revoke", {"token": token.id}).status_code == 404
    for what in ("remove", "test", "rotate"):
        assert owner.form(f"{PAGE}/webhooks/{what}", {"webhook": number}).status_code == 404
    assert list_tokens(world.store, other.id) == (token,)
    assert len(list_webhooks(world.store, other.id)) == 1
    assert "theirs" not in owner.get(PAGE).text
