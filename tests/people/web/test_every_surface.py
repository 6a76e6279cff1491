"""An operation is declared once: its command, its form, its address and its description follow."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import jsonschema
import pytest
from starlette.responses import PlainTextResponse

from tutelage.base.config.flags import flags_of, settings_from
from tutelage.base.sentences import Sentence
from tutelage.commands.collect import amendments as commands
from tutelage.people.operations import OPERATIONS, Operation
from tutelage.people.store.api_tokens import create_token
from tutelage.people.store.studies import study_of
from tutelage.people.validation import FieldError, check_ranges, number
from tutelage.people.web import app
from tutelage.people.web.api.changes import operation_route as api_route
from tutelage.people.web.api.describing import describe
from tutelage.people.web.forms import operation_route as form_route

from .conftest import World


@dataclass(frozen=True)
class Pause:
    """A break of all raters."""

    minutes: int = number(Sentence("The break"), 1, 60, default=10)
    """Minutes of the break."""
    share: float = number(Sentence("The share of raters"), 0, 1, share=True, default=1.0)
    """Share of the raters who get it."""
    most: int | None = number(Sentence("The number of raters"), 1, 9, default=None)
    """Raters at most."""
    tone: Literal["kind", "short"] = "kind"
    """How it is said."""
    loud: bool = False
    """Whether it rings."""

    def __post_init__(self) -> None:
        check_ranges(self)


IN_FORCE: dict[int, Pause] = {}
ACTORS: list[str] = []


def current(store: Any, study_id: int) -> Pause | None:
    return IN_FORCE.get(study_id)


def change(store: Any, study_id: int, settings: Pause, *, actor: str) -> None:
    IN_FORCE[study_id] = settings
    ACTORS.append(actor)


@pytest.fixture
def pause(monkeypatch: pytest.MonkeyPatch) -> Operation[Pause]:
    """The operation, declared as the others are."""
    IN_FORCE.clear()
    ACTORS.clear()
    places = {"here:current": current, "here:change": change}
    found = "tutelage.people.operations._function"
    monkeypatch.setattr(found, lambda place: places[place])
    return Operation("pause", "Give raters a break.", Pause, "here:current", "here:change")


def test_its_command_has_a_flag_for_each_field_and_keeps_what_is_not_given(
    pause: Operation[Pause],
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = commands.settings_of(pause)
    flags = {flag.names[0] for flag in flags_of(settings)}
    assert {f"--{field.name}" for field in dataclasses.fields(Pause)} <= flags
    monkeypatch.setattr(commands, "open_existing", lambda settings: (Unclosed(world.store), world.study))

    def run(*words: str) -> Pause:
        assert commands.carry_out(settings_from(settings, ["study", *words], prog="pause")) == 0
        return IN_FORCE[world.study.id]

    assert run("--minutes", "20", "--most", "3") == Pause(minutes=20, most=3)
    assert run("--tone", "short") == Pause(minutes=20, most=3, tone="short")
    assert run("--most", "0") == Pause(minutes=20, tone="short")
    with pytest.raises(FieldError) as refused:
        run("--minutes", "61")
    assert refused.value.field == "minutes"
    assert "command line" in ACTORS[0]
    with pytest.raises(SystemExit):
        settings_from(settings, ["--help"], prog="pause")
    shown = " ".join(capsys.readouterr().out.split())
    assert "Give raters a break." in shown
    assert "Minutes of the break." in shown


class Unclosed:
    """A store that stays open."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return (lambda: None) if name == "close" else getattr(self.store, name)


def test_its_form_is_read_by_type_and_its_api_is_described_and_takes_its_right(
    pause: Operation[Pause],
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form = form_route(pause, "/owner/pause", lambda call, error: PlainTextResponse(error.field, 400))  # type: ignore[union-attr]
    api = api_route(pause)
    monkeypatch.setattr(app, "ROUTES", (*app.ROUTES, form))
    monkeypatch.setattr(app, "API_ROUTES", (*app.API_ROUTES, api))
    site = World(world.store, world.study)
    sent = {"minutes": "20", "share": "50 %", "most": "", "tone": "short", "loud": "yes"}
    assert site.owner().form("/owner/pause", sent).headers["location"] == "/owner/pause"
    assert IN_FORCE[world.study.id] == Pause(20, 0.5, None, "short", True)
    for field, wrong in {"minutes": "61", "share": "2", "most": "none"}.items():
        refused = site.owner().form("/owner/pause", sent | {field: wrong})
        assert (refused.status_code, refused.text) == (400, field)
    for browser, status in ((site.nobody(), 401), (site.rater(), 403), (site.reviewer(), 403)):
        assert browser.form("/owner/pause", sent).status_code == status
    told = describe([api])
    body = told["components"]["schemas"]["PauseChanges"]
    assert body["properties"]["minutes"]["maximum"] == 60
    assert body["properties"]["tone"]["enum"] == ["kind", "short"]
    operation = told["paths"]["/api/v1/operations/pause"]["post"]
    assert "`manage`" in operation["description"]
    jsonschema.Draft202012Validator(body).validate({"minutes": 3})
    for right, status in (("read", 403), ("export", 403), ("manage", 200)):
        token = create_token(world.store, world.study.id, right, [right])
        headers = {"authorization": f"Bearer {token}"}
        reply = site.client.post("/api/v1/operations/pause", json={"minutes": 3}, headers=headers)
        assert reply.status_code == status
    assert IN_FORCE[world.study.id] == Pause(3, 0.5, None, "short", True)
    assert ACTORS[-1] == "program manage"


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_operation_reads_back_what_it_puts_in_force(operation: Operation[Any], world: World) -> None:
    store, study = world.store, world.study.id
    values = {each.name: "mturk" for each in operation.parameters if each.required}
    after = operation.amend(store, study, values, "somebody")
    assert operation.read(store, study) == after
    assert study_of(store, study).name == world.study.name
    for each in operation.parameters:
        if each.limits is not None:
            for wrong in (each.limits.least - 1, each.limits.most + 1, float("nan")):
                with pytest.raises(FieldError) as refused:
                    operation.amend(store, study, {each.name: wrong}, "somebody")
                assert refused.value.field == each.name
