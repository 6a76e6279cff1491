"""The pages of the team and of one's own sessions."""

import re

from tutelage.people import (
    accept_invite,
    create_invite,
    list_events,
    personal_link,
    rater_of_session,
    start_session,
    write_note,
)
from tutelage.people.store.access import list_sessions
from tutelage.people.store.members import list_team

from ..conftest import URL, Browser, World


def number_of(world: World, browser: Browser) -> int:
    found = rater_of_session(world.store, browser.session)
    assert found is not None
    return found.id


def test_an_owner_invites_reviewers_and_owners_by_link(world: World) -> None:
    owner = world.owner()
    for role in ("reviewer", "owner"):
        page = owner.form("/owner/invitations", {"role": role, "uses": "1", "days": "7", "note": ""}).text
        link = re.search(rf'value="{URL}(/join/[^"]+)"', page)
        assert link is not None
        joined = world.nobody().form(link[1], {"name": f"new {role}"})
        assert joined.headers["location"] == "/owner"
    assert [each.role for each in list_team(world.store, world.study.id)][-2:] == ["reviewer", "owner"]


def test_members_are_removed_and_let_back_in_and_the_last_owner_is_not(world: World) -> None:
    owner, reviewer = world.owner(), world.reviewer()
    mine, theirs = number_of(world, owner), number_of(world, reviewer)
    refused = owner.form("/owner/team", {"member": str(mine), "action": "remove"})
    assert refused.status_code == 400
    assert "only owner" in refused.text
    assert owner.form("/owner/team", {"member": str(theirs), "action": "remove"}).status_code == 303
    assert reviewer.get("/owner").status_code == 401
    assert "no access" in owner.get("/owner/team").text
    owner.form("/owner/team", {"member": str(theirs), "action": "restore"})
    reviewer.session = start_session(world.store, theirs)
    assert reviewer.get("/owner").status_code == 200
    owner.form("/owner/team", {"member": str(theirs), "action": "sessions"})
    assert reviewer.get("/owner").status_code == 401
    assert owner.form("/owner/team", {"member": "999", "action": "remove"}).status_code == 404
    anna = number_of(world, world.rater("anna"))
    assert owner.form("/owner/team", {"member": str(anna), "action": "remove"}).status_code == 404
    assert owner.form("/owner/team", {"member": str(theirs), "action": "?"}).status_code == 400


def test_ones_own_sessions_are_listed_and_ended(world: World) -> None:
    for browser in (world.owner(), world.reviewer()):
        mine = number_of(world, browser)
        tokens = [start_session(world.store, mine, device=f"Netscape {n}") for n in range(3)]
        page = browser.get("/owner/sessions", **{"user-agent": "Firefox/1 Linux"}).text
        assert all(f"Netscape {n}" in page for n in range(3))
        assert page.count("this one") == 1
        ended = next(each for each in list_sessions(world.store, mine) if each.device == "Netscape 0")
        browser.form("/owner/sessions", {"session": str(ended.id)})
        assert [rater_of_session(world.store, token) is not None for token in tokens] == [False, True, True]
        assert browser.form("/owner/sessions", {"session": str(ended.id)}).status_code == 404
        browser.form("/owner/sessions", {"others": "yes"})
        [left] = list_sessions(world.store, mine)
        assert browser.get("/owner/sessions").status_code == 200
        assert browser.form("/owner/sessions", {"session": str(left.id)}).headers["location"] == "/"
        assert browser.get("/owner/sessions").status_code == 401


def test_nobody_ends_the_session_of_another_member(world: World) -> None:
    owner, reviewer = world.owner(), world.reviewer()
    [theirs] = list_sessions(world.store, number_of(world, owner))
    assert reviewer.form("/owner/sessions", {"session": str(theirs.id)}).status_code == 404
    assert owner.get("/owner").status_code == 200


def test_an_owner_ends_all_sessions_of_a_rater(world: World) -> None:
    rater = world.rater("anna")
    assert rater.get("/rate", **{"user-agent": "Mozilla (Android) Firefox/1"}).status_code == 200
    address = f"/owner/raters/{number_of(world, rater)}"
    owner = world.owner()
    assert "Firefox on Android" in owner.get(address).text
    assert owner.form(f"{address}/sessions").status_code == 303
    assert rater.get("/rate").status_code == 401
    assert "Firefox on Android" not in owner.get(address).text
    assert list_events(world.store, world.study.id)[0].action == "sessions_ended"


def test_a_reviewer_is_shown_no_link_and_no_form_that_would_be_refused(world: World) -> None:
    rater, reviewer = world.rater("anna"), world.reviewer()
    number = number_of(world, rater)
    personal_link(world.store, number, note="a link of hers")
    write_note(world.store, number, "Please look")
    rater.answer(rater.next()["question"])
    for path in ("", "/inbox", "/inbox?closed=yes", "/history", "/raters", f"/raters/{number}", "/items",
                 "/items/ITEM-KEY%2Fc0", "/models", "/export", "/sessions"):  # fmt: skip
        page = reviewer.get(f"/owner{path}").text
        posts = re.findall(r'<form[^>]*method="post"[^>]*>', page)
        actions = {found[1] for each in posts if (found := re.search(r'action="([^"]*)"', each))}
        assert actions <= {"/leave", "/language", "/owner/sessions"}, (path, actions)
        assert len(posts) == sum("action=" in each for each in posts), path
        assert "a link of hers" not in page
        linked = {each.partition("?")[0] for each in re.findall(r'<a [^>]*href="(/[^"#]*)', page)}
        assert all(reviewer.get(each).status_code == 200 for each in linked - {"/rate"}), path


def test_a_reviewer_judges_an_item_and_nothing_else(world: World) -> None:
    reviewer = world.reviewer()
    assert reviewer.get("/rate").headers["location"] == "/owner/items?state=disagreed"
    assert reviewer.json("/rate/next", {}).status_code == 400
    assert reviewer.get("/rate?item=ITEM-KEY%2Fc0").status_code == 200
    question = reviewer.json("/rate/next", {"item": "ITEM-KEY/c0"}).json()["question"]
    assert reviewer.answer(question).status_code == 200
    assert "adjudication by a reviewer" in world.owner().get("/owner/items/ITEM-KEY%2Fc0").text
    assert reviewer.json("/rate/notes", {"text": "x"}).status_code == 403


def test_every_event_names_who_did_it(world: World) -> None:
    owner = world.owner()
    name = rater_of_session(world.store, owner.session)
    assert name is not None
    accept_invite(world.store, create_invite(world.store, world.study.id, actor=name.name).secret, "bert")
    before = {event.id for event in list_events(world.store, world.study.id)}
    rater = world.rater("anna")
    known = {event.id for event in list_events(world.store, world.study.id)} - before
    number = str(number_of(world, rater))
    write_note(world.store, int(number), "Please look")
    owner.form("/owner/settings/state", {"state": "paused"})
    owner.form("/owner/settings/state", {"state": "open"})
    owner.form(f"/owner/raters/{number}", {"state": "paused", "why": "x"})
    owner.form(f"/owner/raters/{number}/link")
    owner.form(f"/owner/raters/{number}/sessions")
    owner.form("/owner/inbox", {"all": "yes"})
    owner.form("/owner/inbox/reopen", {"notice": "1"})
    owner.form("/owner/exclusions", {"scope": "rater", "name": "anna", "reason": "x"})
    owner.form("/owner/export")
    events = [event for event in list_events(world.store, world.study.id) if event.id not in before | known]
    assert {event.actor for event in events} == {name.name}
    assert {event.action for event in events} >= {
        "study_paused", "study_open", "rater_paused", "personal_link", "sessions_ended", "notices_closed",
        "notice_reopened", "exclude", "exported",
    }  # fmt: skip
