"""What the API answers: the figures of the owner's pages, rows as the importer takes them, the files of an export."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import get_type_hints

import pytest
from offenders import for_each
from openapi_spec_validator import OpenAPIV31SpecValidator

from tutelage.people import (
    Answer,
    Presentation,
    Selection,
    Store,
    add_rater,
    count_study,
    create_study,
    label_study,
    list_events,
    list_questions,
    list_votes,
    next_assignment,
    present,
    submit,
)
from tutelage.people.answers import Correction, Span
from tutelage.people.export import export_study, preference_row
from tutelage.people.settings import RIGHTS, NewToken
from tutelage.people.store.api_tokens import create_token, list_tokens, revoke_token
from tutelage.people.store.events import list_exports
from tutelage.people.store.votes import vote_row
from tutelage.people.web.api import dispatch
from tutelage.people.web.api.dispatch import ROOT, ApiRoute
from tutelage.people.web.api.endpoints import API_ROUTES
from tutelage.people.web.auth import csrf_token
from tutelage.people.web.routes import ROUTES

from ...worlds import raters_of, study_of, work
from ..conftest import World, add_known
from .programs import DESCRIPTION, Program, program

ROWS = [{"prompt": f"New {n}?", "chosen": f"right {n}", "rejected": f"wrong {n}"} for n in range(3)]


def plain(rows: object) -> object:
    return json.loads(json.dumps(rows))


def test_the_overview_has_the_counts_of_the_study(world: World) -> None:
    raters = raters_of(world.store, world.study, 2)
    work(world.store, raters)
    found, counts = program(world).get("/overview").json(), count_study(world.store, world.study.id)
    assert (found["items"], found["items_done"]) == (counts.items, counts.complete) == (6, 6)
    assert (found["votes"], found["votes_wanted"]) == (counts.answered, counts.wanted) == (12, 12)
    assert found["raters"] == 2
    assert [(each["number"], each["done"], each["agreement"]) for each in found["rounds"]] == [(1, 6, 1.0)]
    agreement = program(world).get("/agreement").json()
    assert (agreement["value"], agreement["items"], agreement["pairs"]) == (1.0, 6, 6)


@pytest.mark.parametrize("limit", [1, 2, 500])
def test_pages_in_a_row_are_the_whole_list(world: World, limit: int) -> None:
    add_known(world.store, world.study, "gold")
    raters_of(world.store, world.study, 3)
    asks = program(world)
    for path, name in (("/items", "items"), ("/raters", "raters")):
        found, cursor = [], ""
        while cursor is not None:
            page = asks.get(path, limit=limit, cursor=cursor).json()
            found += page[name]
            cursor = page["cursor"]
            assert len(page[name]) <= limit
        whole = asks.get(path).json()[name]
        assert found == whole
        assert len(whole) == (8 if name == "items" else 3)


def test_items_are_filtered_as_on_the_page(world: World) -> None:
    add_known(world.store, world.study, "gold")
    rater = add_rater(world.store, world.study.id, "anna")
    question = next_assignment(world.store, rater.id)
    assert question is not None
    submit(world.store, question.id, Answer("left", 1))
    asks = program(world, "read")
    assert len(asks.get("/items", pool="gold").json()["items"]) == 2
    assert len(asks.get("/items", pool="production", state="open").json()["items"]) == 6
    assert asks.get("/items", round=2).json()["items"] == []
    (voted,) = (each for each in asks.get("/items").json()["items"] if each["answered"])
    assert sum(voted["votes"].values()) == 1
    assert {each["model"] for each in voted["responses"]} == {"old-model", "new-model"}


def test_what_is_exported_is_what_the_files_of_an_export_hold(world: World) -> None:
    work(world.store, raters_of(world.store, world.study, 2))
    asks = program(world, "export")
    sent = [json.loads(line) for line in asks.get("/preferences").text.splitlines()]
    labelled = label_study(world.store, world.study.id, Selection())
    assert sent == plain([preference_row(row, world.study.name) for row in labelled.rows])
    assert len(sent) == 6
    assert asks.get("/preferences", min_votes=3).text == ""
    votes = [json.loads(line) for line in asks.get("/votes").text.splitlines()]
    assert votes == plain([vote_row(vote) for vote in list_votes(world.store, world.study.id)])
    first, second = list_exports(world.store, world.study.id)
    assert (first.selection["min_votes"], second.selection["min_votes"]) == (3, 1)
    told = list_events(world.store, world.study.id, action="exported")
    assert len(told) == 3
    assert all(event.actor.startswith("program ") for event in told)


def test_judgements_of_simulated_raters_are_listed_where_they_are_asked_for(world: World) -> None:
    for name, kind in (("robot", "simulated"), ("judge", "llm"), ("anna", "human")):
        rater = add_rater(world.store, world.study.id, name, kind=kind)  # type: ignore[arg-type]
        work(world.store, [rater.id])
    asks = program(world, "export")
    for query, names in (({}, {rater.pseudonym, "judge"}), ({"kinds": "simulated"}, {"robot"})):
        listed = [json.loads(line) for line in asks.get("/votes", **query).text.splitlines()]
        assert {vote["rater"] for vote in listed} == names


def test_rows_are_added_once_and_known_by_their_content(world: World) -> None:
    asks = program(world, "add")
    first = asks.post("/items", {"rows": ROWS, "round": 2}).json()
    assert (first["items"], first["known"], first["prompts"], first["responses"]) == (3, 0, 3, 6)
    again = asks.post("/items", {"rows": ROWS, "round": 2}).json()
    assert (again["items"], again["known"]) == (0, 3)
    added = [q for q in list_questions(world.store, world.study.id) if q.item.round == 2]
    assert {text for q in added for text in q.texts} == {row[side] for row in ROWS for side in row} - {
        row["prompt"] for row in ROWS
    }


def test_the_lines_of_an_export_are_the_same_items_again(world: World) -> None:
    add_known(world.store, world.study, "gold")
    lines = [
        {
            "item": asdict(q.item) | {"key": f"copy of {q.key}"},
            "prompt": {"id": q.prompt.id, "prompt": q.messages[0].content, "split": q.prompt.split},
            "completions": [asdict(each) for each in q.completions],
        }
        for q in list_questions(world.store, world.study.id)
    ]
    added = program(world).post("/items", {"rows": plain(lines)}).json()
    assert (added["items"], added["prompts"], added["responses"]) == (8, 0, 0)
    copies = [q for q in list_questions(world.store, world.study.id) if q.key.startswith("copy of ")]
    assert [q.item.pool for q in copies] == ["production"] * 6 + ["gold"] * 2


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([*ROWS, {"prompt": "p", "chosen": "same", "rejected": "same"}], "chosen equals rejected (row 4)"),
        ([*ROWS, {"prompt": "p", "chosen": 7, "rejected": "b"}], "row 4"),
        ([{"question": "Why?"}], "no preferences can be read"),
        ([*ROWS, {"prompt": "p", "chosen": "a\u0000", "rejected": "b"}], "NUL"),
        ([{"item": {}, "prompt": {}, "completions": []}], "row 1 is not a valid line of items.jsonl"),
    ],
)
def test_one_row_that_cannot_be_used_and_nothing_is_added(world: World, rows: list[object], complaint: str) -> None:
    before = len(list_questions(world.store, world.study.id))
    response = program(world).post("/items", {"rows": rows})
    assert response.status_code == 400
    assert complaint in response.json()["error"]["what"]
    assert len(list_questions(world.store, world.study.id)) == before


def test_a_key_adds_once_and_answers_the_same(world: World) -> None:
    asks = program(world, "add", "read")
    first = asks.post("/items", {"rows": ROWS}, idempotency_key="k1")
    again = asks.post("/items", {"rows": ROWS}, idempotency_key="k1")
    assert first.json() == again.json()
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    other = asks.post("/items", {"rows": ROWS[:1]}, idempotency_key="k1")
    assert other.status_code == 409
    assert program(world).post("/items", {"rows": ROWS[:1]}, idempotency_key="k1").json()["known"] == 1
    assert len(list_events(world.store, world.study.id, action="items_added")) == 3


def test_bodies_that_make_no_sense_are_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asks = program(world)
    assert asks.post("/items", content=b"{").status_code == 400
    assert asks.post("/items", content=b'{"rows": []}').json()["error"]["where"] == "$.rows in the body"
    assert asks.post("/items", content=b'{"rows": [1]}').json()["error"]["where"] == "$.rows[0] in the body"
    assert asks.post("/items", {}, content_type="text/plain").status_code == 415
    assert asks.post("/items", {"rows": ROWS}, idempotency_key="k" * 201).status_code == 400
    monkeypatch.setattr(dispatch, "LONGEST_BODY", 1_000)
    assert asks.post("/items", {"rows": ROWS * 20}).status_code == 413


NONSENSE: tuple[tuple[str, dict[str, object], str], ...] = (
    ("/items", {"limit": 0}, "'limit' in the query"),
    ("/items", {"limit": "many"}, "'limit' in the query"),
    ("/items", {"limit": 501}, "'limit' in the query"),
    ("/items", {"state": "lost"}, "'state' in the query"),
    ("/items", {"cursor": "x"}, "'cursor' in the query"),
    ("/items", {"limit": [1, 2]}, "'limit' in the query"),
    ("/overview", {"limit": 1}, "'limit' in the query"),
    ("/preferences", {"kinds": ["human", "robots"]}, "'kinds[1]' in the query"),
)


def test_queries_that_make_no_sense_are_refused_by_name(world: World) -> None:
    asks = program(world)
    for path, query, where in NONSENSE:
        response = asks.get(path, **query)
        assert response.status_code == 400
        assert response.json()["error"]["where"] == where


def test_corrections_spans_and_votes_come_as_in_an_export_from_a_number_on_and_without_personal_data(
    lite: Store, folder: Path
) -> None:
    study = study_of(lite, 3)
    present(lite, study.id, Presentation(corrections=True, spans=("fact",)))
    world = World(lite, study)
    rater = add_rater(lite, study.id, "anna")
    for number in range(3):
        question = next_assignment(lite, rater.id)
        assert question is not None
        said = Answer(
            "both_bad", correction=Correction(f"write to ada{number}@example.org"), reason="0049 30 123456",
            spans=(Span(0, 0, 2, "fact"),),
        )  # fmt: skip
        submit(lite, question.id, replace(said, key=f"k{number}"))
    selection = Selection(versions=(2,))
    for redact in (False, True):
        out = folder / f"redacted {redact}"
        export_study(lite, study.id, out, selection, redact=redact)
        asks = program(world, "export")
        numbers = [vote.id for vote in list_votes(lite, study.id)]
        for path in ("corrections", "spans", "votes"):
            query = {"redact": str(redact).lower()} | ({} if path == "votes" else {"versions": "2"})
            lines = [json.loads(line) for line in asks.get(f"/{path}", **query).text.splitlines()]
            exported = [json.loads(line) for line in (out / f"{path}.jsonl").read_text().splitlines()]
            assert [{**row, **line} for row, line in zip(exported, lines, strict=True)] == exported, path
            assert len(lines) >= 3
            assert ("example.org" in json.dumps(lines)) == (path != "spans" and not redact)
            number = "id" if path == "votes" else "judgement"
            late = [json.loads(line) for line in asks.get(f"/{path}", **query, since=numbers[1]).text.splitlines()]
            assert late == [line for line in lines if line[number] > numbers[1]]
            assert late
    assert asks.get("/votes", since=-1).status_code == 400


WITH_TOKEN = [route for route in API_ROUTES if route.right is not None]


def named(route: ApiRoute) -> str:
    return f"{route.method} {route.path}"


@for_each(WITH_TOKEN, named)
def test_a_route_takes_its_right_and_no_other(route: ApiRoute, world: World) -> None:
    for right in RIGHTS:
        response = program(world, right).use(route)
        assert response.status_code == (200 if right == route.right else 403)
        if right != route.right:
            assert f"no right to {route.right}" in response.json()["error"]["what"]


@for_each(WITH_TOKEN, named)
def test_only_a_token_that_works_opens_a_route(route: ApiRoute, world: World) -> None:
    study = world.study.id
    revoked = create_token(world.store, study, NewToken("revoked", RIGHTS)).secret
    revoke_token(world.store, study, list_tokens(world.store, study)[0].id)
    expired = create_token(world.store, study, NewToken("expired", RIGHTS, days=0.01)).secret
    world.store.clock.seconds += 900  # type: ignore[attr-defined]
    invitation = world.owner().session
    for token in ("", "nonsense", revoked[:-1], revoked, expired, invitation):
        response = Program(world, token).use(route)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert response.headers["cache-control"] == "no-store"
    for scheme in ("Basic", "bearer", "Token"):
        asks = program(world)
        asks.headers["authorization"] = asks.headers["authorization"].replace("Bearer", scheme)
        assert asks.use(route).status_code == (200 if scheme == "bearer" else 401)


@pytest.mark.parametrize("role", ["rater", "owner"])
def test_no_cookie_opens_a_route(world: World, role: str) -> None:
    browser = world.owner() if role == "owner" else world.rater()
    asks = Program(world, cookie=browser.headers()["cookie"])
    asks.headers |= {"origin": "http://site.test", "x-csrf-token": csrf_token(browser.session)}
    assert {asks.use(route).status_code for route in WITH_TOKEN} == {401}


def test_no_token_opens_a_page(world: World) -> None:
    stranger = {"origin": "http://site.test"}
    with_token = program(world).headers | stranger
    for route in ROUTES:
        path = route.path.replace("{token}", "x").replace("{number}", "1").replace("{key:path}", "x")
        found, expected = (
            world.client.request(route.method, path, headers=headers).status_code for headers in (with_token, stranger)
        )
        assert found == expected, route
        assert route.who == "anyone" or found == 401


def test_the_description_needs_no_token_and_tells_nothing_about_a_study(world: World) -> None:
    response = Program(world).get("/openapi.json")
    assert response.status_code == 200
    assert world.study.name not in response.text


def test_a_token_is_of_one_study(world: World) -> None:
    other = create_study(world.store, "another")
    asks = Program(world, create_token(world.store, other.id, NewToken("theirs", RIGHTS)).secret)
    assert asks.get("/overview").json()["study"] == "another"
    assert asks.get("/items").json() == {"items": [], "cursor": None}


def test_addresses_beside_the_table_are_refused_as_json(world: World) -> None:
    for method, path, status in (("GET", "/nothing", 404), ("DELETE", "/items", 405)):
        response = world.client.request(method, ROOT + path)
        assert response.status_code == status
        assert "openapi.json" in response.json()["error"]["instead"]


def test_the_description_is_valid() -> None:
    OpenAPIV31SpecValidator(DESCRIPTION).validate()


def test_what_is_served_is_the_description_of_what_is_served(world: World) -> None:
    served = Program(world).get("/openapi.json").json()
    assert served == DESCRIPTION
    described = {(method.upper(), path) for path, each in served["paths"].items() for method in each}
    assert described == {(route.method, ROOT + route.path) for route in API_ROUTES}
    found = {
        (method, route.path)
        for route in world.app.routes
        if getattr(route, "path", "").startswith(ROOT)
        for method in route.methods - {"HEAD"}  # type: ignore[attr-defined]
    }
    assert described == found


def test_each_right_and_each_part_of_a_query_is_described() -> None:
    for route in API_ROUTES:
        told = DESCRIPTION["paths"][ROOT + route.path][route.method.lower()]
        assert bool(told["security"]) == (route.right is not None)
        assert route.right is None or f"`{route.right}`" in told["description"]
        asked = {each["name"] for each in told.get("parameters", ()) if each["in"] == "query"}
        assert asked == set(get_type_hints(route.query))
