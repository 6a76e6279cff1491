"""Operations as addresses of the API: parts of the settings, their ranges, and who did it."""

from offenders import for_each

from tutelage.people import list_events, list_votes
from tutelage.people.operations import AMENDMENTS, GRANTS, IMPORTS, INVITE, PLAN, RECRUIT, TOKEN
from tutelage.people.web.api.dispatch import ROOT

from ..conftest import World
from .programs import BODIES, DESCRIPTION, VOTE, program


def test_every_operation_has_its_address_with_its_ranges_and_texts() -> None:
    for operation in (*AMENDMENTS, *GRANTS, *IMPORTS):
        if operation is TOKEN:
            continue
        assert f"{ROOT}/operations/{operation.name}" in DESCRIPTION["paths"]
        ending = "Changes" if operation in AMENDMENTS else "Rows" if operation in IMPORTS else ""
        told = DESCRIPTION["components"]["schemas"][operation.settings.__name__ + ending]
        open_to_programs = {each.name for each in operation.parameters if not each.people}
        assert set(told["properties"]) == open_to_programs | ({"rows"} if operation in IMPORTS else set())
        assert told["additionalProperties"] is False
        for each in operation.parameters:
            if each.people:
                continue
            found = told["properties"][each.name]
            assert found["description"] == each.text != ""
            number = next((one for one in found.get("anyOf", [found]) if "minimum" in one), {})
            if each.limits is not None:
                assert (number["minimum"], number["maximum"]) == (each.limits.least, each.limits.most)


def test_what_is_not_given_stays_and_the_token_stands_in_the_history(world: World) -> None:
    asks = program(world, "manage")
    assert asks.post("/operations/recruit", {}).status_code == 400  # a platform is needed the first time
    first = asks.post("/operations/recruit", {"platform": "mturk", "places": 5, "pay": 9}).json()
    assert (first["platform"], first["places"], first["pay"], first["answers"]) == ("mturk", 5, 9, 20)
    second = asks.post("/operations/recruit", {"answers": 30}).json()
    assert second == first | {"answers": 30}
    assert asks.post("/operations/recruit", {"places": None}).json() == second | {"places": None}
    actors = [event.actor for event in list_events(world.store, world.study.id, action="recruiting_changed")]
    assert len(actors) == 3
    assert all(actor.startswith("program made at") for actor in actors)
    asks.post("/operations/recruit", {"answers": 30})  # the same once more is no change
    assert len(list_events(world.store, world.study.id, action="recruiting_changed")) == 3


@for_each(
    [
        ("recruit", {"platform": "mturk", "answers": 0}, "answers"),
        ("recruit", {"platform": "elsewhere"}, "platform"),
        ("recruit", {"platform": "prolific", "code": "A"}, "screened_code"),
        ("plan", {"gold_rate": 0.4, "repeat_rate": 0.3}, "gold_rate"),
        ("plan", {"overlap": "two"}, "overlap"),
        ("plan", {"overlaps": 2}, "overlaps"),
        ("consent", {"text": "x" * 60_000}, "text"),
    ]
)
def test_a_value_that_cannot_be_used_is_refused_by_its_name(
    path: str, body: dict[str, object], named: str, world: World
) -> None:
    before = [each.read(world.store, world.study.id) for each in (RECRUIT, PLAN)]
    refused = program(world, "manage").post(f"/operations/{path}", body)
    assert refused.status_code == 400
    assert named in refused.json()["error"]["message"]
    assert [each.read(world.store, world.study.id) for each in (RECRUIT, PLAN)] == before


def test_every_operation_can_be_tried() -> None:
    assert set(BODIES) == {
        path.removeprefix(ROOT)
        for path, told in DESCRIPTION["paths"].items()
        if "/operations/" in path and "post" in told
    }


def test_a_program_invites_raters_alone_and_makes_no_tokens(world: World) -> None:
    asks = program(world, "manage")
    created = asks.post("/operations/invite", {"uses": 3, "note": "class 4b"}).json()
    assert world.nobody().get(created["path"]).status_code == 200
    (listed,) = asks.get("/operations/invite").json()
    assert (listed["role"], listed["max_uses"], listed["note"]) == ("rater", 3, "class 4b")
    assert asks.post("/operations/invite", {"role": "owner"}).status_code == 400
    asks.post("/operations/invite/revoke", {"number": created["number"]})
    assert "withdrawn" in asks.get("/operations/invite").json()[0]["problem"]
    assert world.client.post(f"{ROOT}/operations/token", json={}, headers=asks.headers).status_code == 404
    assert INVITE.list(world.store, world.study.id)[0].uses == 0


def test_a_program_previews_votes_and_imports_them(world: World) -> None:
    asks, before = program(world, "manage"), list_votes(world.store, world.study.id)
    rows = [VOTE | {"winner": "1"}, VOTE | {"rater": "ann ", "response_1": "Else.", "winner": 2, "status": "RETURNED"}]
    seen = asks.post("/operations/import/preview", {"rows": rows, "choice": ["1=a"]}).json()
    assert (seen["votes"], seen["items"], seen["new_raters"], seen["faults"]) == (1, 1, 1, 0)
    assert seen["choices"] == [{"word": "1", "count": 1, "means": "a"}]
    assert (seen["mapping"]["a"], seen["mapping"]["choice_column"], seen["mapping"]["time"]) == (
        "response_1", "winner", None,
    )  # fmt: skip
    assert [(each["count"], each["fault"], each["places"]) for each in seen["dropped"]] == [(1, False, ["row 2"])]
    assert list_votes(world.store, world.study.id) == before
    wrong = asks.post("/operations/import", {"rows": rows, "choice": ["1=a"], "keep_rejected": True})
    assert (wrong.status_code, list_votes(world.store, world.study.id)) == (400, before)
    sent = {"rows": rows, "choice": ["1=a", "2=b"], "keep_rejected": True}
    done = asks.post("/operations/import", sent).json()
    assert (done["votes"], done["raters"], done["items"]) == (2, 1, 2)
    assert asks.post("/operations/import", sent).json()["known"] == 2
    assert len(list_votes(world.store, world.study.id)) == len(before) + 2
    for field, value in {"choice": ["1"], "a": "elsewhere", "prompt": []}.items():
        refused = asks.post("/operations/import", {"rows": rows, field: value})
        assert (refused.status_code, field in refused.json()["error"]["where"]) == (400, True), field
