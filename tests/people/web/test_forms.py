"""What is wrong with a form stands beside the field that it is about, whatever the language; nothing of it is lost."""

import re
from typing import Any

import pytest
from offenders import for_each

from tutelage.base.errors import TutelageError
from tutelage.people import add_rater, create_invite, list_votes
from tutelage.people.languages import LANGUAGES
from tutelage.people.settings import NewInvitation, NewToken
from tutelage.people.store.api_tokens import create_token
from tutelage.people.store.engine import Unavailable
from tutelage.people.validation import FieldError
from tutelage.people.web.call import Call
from tutelage.people.web.forms import form_page
from tutelage.people.web.pages.owner.items import item_address

from .conftest import World

PLAN = {
    "overlap": "2", "policy": "random", "gold_rate": "0", "repeat_rate": "0", "training_pass": "1",
    "lease_seconds": "60",
}  # fmt: skip
RECRUITING = {
    "platform": "prolific", "code": "DONE", "screened_code": "OUT", "answers": "4", "places": "3", "minutes": "30",
    "pay": "12", "currency": "GBP", "fee": "25%", "seconds": "30", "return_url": "",
}  # fmt: skip
QUESTION = {"question": "Which?", "scale": "3"}
CONSENT = {"text": "", "votes": "keep", "retention_days": ""}
WRONG: tuple[tuple[str, dict[str, Any], dict[str, Any], str], ...] = (
    *(("settings/plan", PLAN, {name: "-1"}, name) for name in PLAN),
    ("settings/plan", PLAN, {"gold_rate": "0.4", "repeat_rate": "0.3"}, "gold_rate"),
    ("settings/question", QUESTION, {"question": ""}, "question"),
    ("settings/question", QUESTION, {"scale": "9"}, "scale"),
    ("settings/question", QUESTION, {"spans": "\n".join("abcdefghij")}, "spans"),
    ("settings/question", QUESTION, {"spans": "x" * 101}, "spans"),
    ("settings/languages", {}, {"language": "xx"}, "language"),
    ("consent", CONSENT, {"votes": "sell"}, "votes"),
    ("consent", CONSENT, {"retention_days": "0"}, "retention_days"),
    ("consent", CONSENT, {"text": "x" * 60_000}, "text"),
    *(
        ("recruiting", RECRUITING, {name: "\x07 no such thing"}, name)
        for name in RECRUITING
        if name != "return_url"
    ),
    ("recruiting", RECRUITING, {"screened_code": "DONE"}, "screened_code"),
    ("recruiting", RECRUITING, {"code": ""}, "code"),
    ("recruiting", RECRUITING, {"return_url": "https://example.org"}, "return_url"),
    ("recruiting", RECRUITING, {"platform": "sona"}, "return_url"),
    ("invitations", {"uses": "1", "days": "1"}, {"uses": "0"}, "uses"),
    ("invitations", {"uses": "1", "days": "1"}, {"days": "x"}, "days"),
    ("invitations/names", {"name_days": "9"}, {"names": ""}, "names"),
    ("invitations/names", {"name_days": "9"}, {"names": "x" * 81}, "names"),
    ("invitations/names", {"name_days": "9"}, {"names": "boss"}, "names"),
    ("invitations/names", {"names": "Zoë"}, {"name_days": "0"}, "name_days"),
    ("programs/tokens", {"name": "one", "rights": "read"}, {"name": ""}, "name"),
    ("programs/tokens", {"name": "one", "rights": "read"}, {"name": "taken by right"}, "name"),
    ("programs/tokens", {"name": "one", "rights": "read"}, {"rights": "rule"}, "rights"),
    ("programs/tokens", {"name": "told of", "rights": "read"}, {"rights": ""}, "rights"),
    ("programs/tokens", {"name": "one", "rights": "read"}, {"days": "0"}, "days"),
    ("programs/webhooks", {"url": "https://a.example", "topics": "round"}, {"url": "told of"}, "url"),
    ("programs/webhooks", {"url": "https://a.example", "topics": "round"}, {"topics": ""}, "topics"),
    ("programs/bound", {}, {"bound": "much"}, "bound"),
    ("items", {"action": "exclude", "item": "ITEM-KEY/c1"}, {"reason": ""}, "reason"),
    ("items", {"action": "exclude", "item": "ITEM-KEY/c1"}, {"item": "none", "reason": "x"}, "items"),
    ("items", {"action": "overlap", "item": "ITEM-KEY/c1"}, {"overlap": "0"}, "overlap"),
    ("items", {"action": "overlap", "item": "none"}, {"overlap": "2"}, "items"),
    ("items", {"item": "ITEM-KEY/c1"}, {"action": "burn"}, "action"),
    ("raters", {"action": "pause"}, {}, "raters"),
    ("exclusions", {"scope": "item", "name": "ITEM-KEY/c1"}, {"reason": " "}, "reason"),
)  # fmt: skip


def problems(page: str) -> dict[str, str]:
    """The sentences that a page shows beside fields, by the names of the fields."""
    return dict(re.findall(r'<p class="field-problem" id="([^"]+)-problem" role="alert">([^<]+)</p>', page))


def test_each_mistake_stands_beside_its_field_in_every_language(world: World) -> None:
    owner = world.owner()
    create_token(world.store, world.study.id, NewToken("taken by right", ("read",)))
    add_rater(world.store, world.study.id, "boss", role="reviewer")
    add_rater(world.store, world.study.id, "late")
    for path, right, wrong, field in WRONG:
        told = set()
        for language in LANGUAGES:
            reply = owner.form(f"/owner/{path}", right | wrong, **{"accept-language": language})
            assert reply.status_code == 400, (path, wrong)
            found = problems(reply.text)
            assert list(found) == [field], (path, wrong)
            assert f'aria-describedby="{field}-problem"' in reply.text or field in ("items", "raters")
            told.add(found[field])
        assert len(told) == len(LANGUAGES), (path, wrong, told)


@for_each(LANGUAGES)
def test_a_name_that_cannot_be_one_is_told_beside_its_field(language: str, world: World) -> None:
    token = create_invite(world.store, world.study.id, NewInvitation(uses=9)).secret
    reply = world.nobody().form(f"/join/{token}", {"name": "\x07"}, **{"accept-language": language})
    assert reply.status_code == 400
    assert list(problems(reply.text)) == ["name"]
    assert 'aria-describedby="name-note name-problem"' in reply.text


def test_what_was_written_and_ticked_stays(world: World) -> None:
    page = (
        world.owner()
        .form("/owner/items", {"action": "overlap", "item": "ITEM-KEY/c2", "reason": "because", "overlap": "0"})
        .text
    )
    assert re.findall(r'name="item" value="([^"]+)" checked', page) == ["ITEM-KEY/c2"]
    assert '<option value="overlap" selected>' in page
    assert 'value="because"' in page
    assert re.search(r'id="act-overlap"[^>]* value="0"', page)


def test_an_error_that_no_field_of_the_page_has_stands_above_the_forms(world: World) -> None:
    """A sentence is shown somewhere, also where the name of its field is none of the page's."""
    seen: list[Any] = []
    original = Call.page
    owner = world.owner()

    def spy(self: Call, template: str, /, **values: object) -> Any:
        seen.append(self)
        return original(self, template, **values)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Call, "page", spy)
        owner.get("/owner/team")
    call = seen[0]
    for error in (FieldError("elsewhere", "Not so."), TutelageError("Not so.")):
        page = bytes(form_page(call, "owner/team.html", error, team=[], place="team").body).decode()
        assert '<p class="problem" role="alert" id="problem">Not so.</p>' in page
        assert page.index('id="problem"') < page.index("<h1>")
    with pytest.raises(Unavailable):
        form_page(call, "owner/team.html", Unavailable("Busy."), team=[], place="team")


def test_a_vote_is_not_excluded_without_a_reason_which_is_told_on_the_page_of_its_item(world: World) -> None:
    owner, rater = world.owner(), world.rater()
    question = rater.next()["question"]
    rater.answer(question)
    (vote,) = list_votes(world.store, world.study.id)
    address = item_address(vote.item)
    number = re.findall(r'id="reason-(\d+)"', owner.get(address).text)[0]
    form = {"scope": "judgement", "name": number, "reason": "", "page": address}
    reply = owner.form("/owner/exclusions", form)
    assert reply.status_code == 400
    assert list(problems(reply.text)) == [f"reason-{number}"]
    assert '<details class="ask" open>' in reply.text
