"""Owners and reviewers: access taken and given back, the last owner, and what a reviewer's judgement is, on both
databases."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tutelage.base.errors import TutelageError
from tutelage.people import (
    Answer,
    Rater,
    Store,
    accept_invite,
    add_rater,
    create_invite,
    get_rater,
    label_study,
    list_events,
    list_judgements,
    list_votes,
    open_study,
    rater_of_session,
    reserve_item,
    start_session,
    submit,
)
from tutelage.people.export import export_study
from tutelage.people.restoration import import_export
from tutelage.people.selection import Selection
from tutelage.people.settings import NewInvitation
from tutelage.people.store.members import Identity, list_team, remove_member, restore_member, sign_in
from tutelage.people.store.rater_erasure import forget

from ..worlds import asked, raters_of, study_of


def test_access_is_taken_away_with_its_sessions_and_given_back(store: Store) -> None:
    study = study_of(store, 1)
    olga, _ = accept_invite(store, create_invite(store, study.id, NewInvitation(role="owner")).secret, "Olga")
    rita, session = accept_invite(store, create_invite(store, study.id, NewInvitation(role="reviewer")).secret, "Rita")
    assert [member.name for member in list_team(store, study.id)] == ["Olga", "Rita"]
    remove_member(store, rita.id, actor="Olga")
    assert rater_of_session(store, session) is None
    with pytest.raises(TutelageError, match="taken"):
        start_session(store, rita.id)
    restore_member(store, rita.id, actor="Olga")
    assert rater_of_session(store, session) is None
    assert rater_of_session(store, start_session(store, rita.id)) == rita
    told = [(event.actor, event.action, event.subject) for event in list_events(store, study.id)]
    assert told[:2] == [("Olga", "reviewer_restored", "Rita"), ("Olga", "reviewer_removed", "Rita")]
    assert ("Rita", "invite_accepted", "invite 2") in told
    with pytest.raises(TutelageError, match="pause"):
        remove_member(store, add_rater(store, study.id, "anna").id, actor="Olga")
    assert olga.role == "owner"


def test_the_last_owner_stays_whoever_removes_whom(store: Store) -> None:
    study = study_of(store, 1)
    owners = [add_rater(store, study.id, name, role="owner") for name in ("Olga", "Otto", "Ole")]
    add_rater(store, study.id, "Rita", role="reviewer")
    other = study_of(store, 1, name="other")
    add_rater(store, other.id, "Elsewhere", role="owner")

    def attempt(owner: Rater) -> bool:
        try:
            remove_member(store, owner.id, actor="everybody")
        except TutelageError:
            return False
        return True

    with ThreadPoolExecutor(3) as pool:
        assert sorted(pool.map(attempt, owners)) == [False, True, True]
    [left] = [owner for owner in owners if get_rater(store, owner.id).removed is None]
    with pytest.raises(TutelageError, match="only"):
        remove_member(store, left.id, actor="everybody")


def test_a_reviewers_judgement_decides_and_is_marked_as_theirs(store: Store, tmp_path: Path) -> None:
    study = study_of(store, 1)
    for rater, choice in zip(raters_of(store, study, 2), (0, 1), strict=True):
        question = asked(store, rater)
        submit(store, question.id, Answer("left" if question.left.startswith("good") == bool(choice) else "right", 1))
    before = list_judgements(store, study.id)
    rita = add_rater(store, study.id, "Rita", role="reviewer")
    question = reserve_item(store, rita.id, "c0")
    submit(store, question.id, Answer("left" if question.left.startswith("good") else "right", 2))
    vote = list_votes(store, study.id, rater=rita.id)[0]
    assert (vote.chosen_by, vote.decides, vote.extra) == ("reviewer", True, True)
    labelled = label_study(store, study.id, Selection())
    assert labelled.fates["adjudication"] == 1
    [row] = labelled.rows
    assert row.preference.chosen.startswith("good")
    assert row.preference.p_chosen > 0.99
    assert list_judgements(store, study.id) == before
    export_study(store, study.id, tmp_path / "out", names=True)
    written = [json.loads(line) for line in (tmp_path / "out" / "votes.jsonl").read_text().splitlines()]
    assert [each["chosen_by"] for each in written if each["rater"] == rita.pseudonym] == ["reviewer"]
    roles = [json.loads(line) for line in (tmp_path / "out" / "raters.jsonl").read_text().splitlines()]
    assert {each["rater"]: each["role"] for each in roles}[rita.pseudonym] == "reviewer"
    again = import_export(store, tmp_path / "out", name="again")
    same = label_study(store, open_study(store, again.name).id, Selection())
    assert same.labels == labelled.labels


def test_a_rater_reserves_nothing(store: Store) -> None:
    study = study_of(store, 1)
    [anna] = raters_of(store, study, 1)
    with pytest.raises(TutelageError, match="reviewer"):
        reserve_item(store, anna, "c0")


def test_contacts_and_identities_leave_no_trace_in_exports_and_after_forgetting(store: Store, tmp_path: Path) -> None:
    study = study_of(store, 1)
    add_rater(store, study.id, "Olga", role="owner")
    person = Identity("https://id.test pomegranate-1", "pomegranate@example.org", "Rita")
    rita, _ = sign_in(store, study.id, person, "reviewer", days=1, device="x")
    export_study(store, study.id, tmp_path / "out")
    assert all("pomegranate" not in file.read_text() for file in (tmp_path / "out").iterdir())
    with pytest.raises(TutelageError, match="taken"):
        forget(store, rita.id)
    remove_member(store, rita.id, actor="Olga")
    forget(store, rita.id, actor="Olga")
    gone = get_rater(store, rita.id)
    assert (gone.identity, gone.contact, gone.name) == (None, "", f"forgotten {rita.id}")
    assert all("Rita" not in (event.actor, event.subject) for event in list_events(store, study.id))
