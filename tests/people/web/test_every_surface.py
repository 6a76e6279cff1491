"""An operation is declared once: its command, its form, its address and its description follow."""

import dataclasses
import re
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jsonschema
import pytest
from starlette.responses import PlainTextResponse

from tutelage.base.config.flags import flags_of, settings_from
from tutelage.base.errors import TutelageError
from tutelage.base.sentences import Sentence
from tutelage.commands.collect import subcommands as commands
from tutelage.commands.collect.settings import SUBCOMMANDS
from tutelage.data.readers import TableRow
from tutelage.data.tables import Table
from tutelage.people.operations import AMENDMENTS, IMPORTS, Amendment, Grant, TableImport
from tutelage.people.settings import Credential, NewToken
from tutelage.people.store.api_tokens import create_token
from tutelage.people.store.studies import study_of
from tutelage.people.validation import FieldError, check_ranges, number
from tutelage.people.web import app
from tutelage.people.web.api.changes import operation_routes
from tutelage.people.web.api.endpoints import openapi
from tutelage.people.web.forms import amendment_route, creation_route, revocation_route

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
def pause(monkeypatch: pytest.MonkeyPatch) -> Amendment[Pause]:
    """The operation, declared as the others are."""
    IN_FORCE.clear()
    ACTORS.clear()
    places = {"here:current": current, "here:change": change}
    found = "tutelage.people.operations._function"
    monkeypatch.setattr(found, lambda place: places[place])
    return Amendment("pause", "Give raters a break.", Pause, "here:current", "here:change")


def test_its_command_has_a_flag_for_each_field_and_keeps_what_is_not_given(
    pause: Amendment[Pause], world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = commands.settings_of(pause)
    flags = {flag.names[0] for flag in flags_of(settings)}
    assert {f"--{field.name}" for field in dataclasses.fields(Pause)} <= flags
    monkeypatch.setattr(commands, "open_existing", lambda settings: (Unclosed(world.store), world.study))

    def run(*words: str) -> Pause:
        assert commands.amend(settings_from(settings, ["study", *words], prog="pause")) == 0
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


@dataclass(frozen=True)
class NewKey:
    """A key to a room."""

    room: str = dataclasses.field(metadata={"flag": "open"})
    """Room that it opens."""
    days: float = number(Sentence("The days"), 1, 9, default=3.0)
    """Days that it works."""
    master: bool = dataclasses.field(default=False, metadata={"people": True})
    """Whether it opens every room."""

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class Key:
    """A key as it stands in the list."""

    id: int
    room: str


KEYS: dict[int, NewKey] = {}


def cut(store: Any, study_id: int, settings: NewKey, *, actor: str) -> Credential:
    ACTORS.append(actor)
    KEYS[len(KEYS) + 1] = settings
    return Credential(len(KEYS), f"s3cret{len(KEYS)}")


def keys(store: Any, study_id: int) -> tuple[Key, ...]:
    return tuple(Key(number, new.room) for number, new in KEYS.items())


def melt(store: Any, study_id: int, number: int, *, actor: str) -> None:
    if number not in KEYS:
        raise TutelageError(f"There is no key {number}.")
    del KEYS[number]


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> Grant[NewKey]:
    """A grant, declared as the others are."""
    KEYS.clear()
    places = {"here:cut": cut, "here:keys": keys, "here:melt": melt}
    monkeypatch.setattr("tutelage.people.operations._function", lambda place: places[place])
    return Grant("key", "Cut a key.", NewKey, "here:cut", "here:keys", "here:melt", path="/room/")


def test_the_command_of_a_grant_has_its_flags_and_defaults(key: Grant[NewKey]) -> None:
    settings = commands.settings_of(key)
    read = partial(settings_from, settings, prog="key")
    assert commands.given_values(read(["study"])) == {}
    given = commands.given_values(read(["study", "--open", "attic", "--days", "2", "--master"]))
    assert key.settings(**given) == NewKey("attic", 2.0, True)


def test_the_form_of_a_grant_shows_its_secret_once_and_its_api_creates_lists_and_revokes(
    key: Grant[NewKey], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def page(call: Any, error: Any, secret: str) -> PlainTextResponse:
        return PlainTextResponse(error.field if error else secret, 400 if error else 200)

    forms = (creation_route(key, "/owner/keys", page), revocation_route(key, "/owner/keys/melt", "key", "/owner/keys"))
    api = tuple(operation_routes(key))
    monkeypatch.setattr(app, "ROUTES", (*app.ROUTES, *forms))
    monkeypatch.setattr(app, "API_ROUTES", (*app.API_ROUTES, *api))
    site = World(world.store, world.study)
    sent = {"room": "attic", "days": "2", "master": "yes"}
    assert site.owner().form("/owner/keys", sent).text == "s3cret1"
    assert {1: NewKey("attic", 2.0, True)} == KEYS
    assert site.owner().form("/owner/keys", sent | {"days": "10"}).text == "days"
    for browser, status in ((site.nobody(), 401), (site.rater(), 403), (site.reviewer(), 403)):
        assert browser.form("/owner/keys", sent).status_code == status
        assert browser.form("/owner/keys/melt", {"key": 1}).status_code == status
    assert site.owner().form("/owner/keys/melt", {"key": 1}).headers["location"] == "/owner/keys"
    assert site.owner().form("/owner/keys/melt", {"key": 1}).status_code == 404

    body = openapi(api)["components"]["schemas"]["NewKey"]
    assert (set(body["properties"]), body["required"]) == ({"room", "days"}, ["room"])
    token = create_token(world.store, world.study.id, NewToken("keys", ("manage",))).secret
    headers, address = {"authorization": f"Bearer {token}"}, "/api/v1/operations/key"
    created = site.client.post(address, json={"room": "cellar"}, headers=headers).json()
    assert created == {"number": 1, "secret": "s3cret1", "path": "/room/s3cret1"}
    for refused in ({"room": "cellar", "master": True}, {"days": 2}, {"room": "cellar", "days": 10}):
        assert site.client.post(address, json=refused, headers=headers).status_code == 400
    (listed,) = site.client.get(address, headers=headers).json()
    assert listed == {"id": 1, "room": "cellar"}
    for status in (200, 400):
        assert site.client.post(f"{address}/revoke", json={"number": 1}, headers=headers).status_code == status
    assert ACTORS[-1] == "program keys"
    assert list(operation_routes(dataclasses.replace(key, right=None))) == []


class Unclosed:
    """A store that stays open."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return (lambda: None) if name == "close" else getattr(self.store, name)


def test_its_form_is_read_by_type_and_its_api_is_described_and_takes_its_right(
    pause: Amendment[Pause], world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = amendment_route(pause, "/owner/pause", lambda call, error: PlainTextResponse(error.field, 400))  # type: ignore[union-attr]
    (api,) = operation_routes(pause)
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
    told = openapi([api])
    body = told["components"]["schemas"]["PauseChanges"]
    assert body["properties"]["minutes"]["maximum"] == 60
    assert body["properties"]["tone"]["enum"] == ["kind", "short"]
    operation = told["paths"]["/api/v1/operations/pause"]["post"]
    assert "`manage`" in operation["description"]
    jsonschema.Draft202012Validator(body).validate({"minutes": 3})
    for right, status in (("read", 403), ("export", 403), ("manage", 200)):
        token = create_token(world.store, world.study.id, NewToken(right, (right,))).secret
        headers = {"authorization": f"Bearer {token}"}
        reply = site.client.post("/api/v1/operations/pause", json={"minutes": 3}, headers=headers)
        assert reply.status_code == status
    assert IN_FORCE[world.study.id] == Pause(3, 0.5, None, "short", True)
    assert ACTORS[-1] == "program manage"


@pytest.mark.parametrize("operation", AMENDMENTS, ids=lambda operation: operation.name)
def test_every_amendment_reads_back_what_it_puts_in_force(operation: Amendment[Any], world: World) -> None:
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


@dataclass(frozen=True)
class Shelving:
    """How books are shelved."""

    title: str = "title"
    """Column of the title."""
    words: tuple[str, ...] = dataclasses.field(default=(), metadata={"append": True})
    """Words for a shelf."""
    most: int | None = number(Sentence("The number of books"), 1, 9, default=None)
    """Books at most."""

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class Shelved:
    """The result."""

    settings: Shelving
    books: tuple[str, ...]


SHELF: list[str] = []


def guess(table: Table, **given: Any) -> Shelving:
    return Shelving(**{"title": table.columns[0]} | given)


def look(store: Any, study_id: int, table: Table, settings: Shelving) -> Shelved:
    return Shelved(settings, tuple(str(row.values[settings.title]) for row in table.rows)[: settings.most])


def take(store: Any, study_id: int, table: Table, settings: Shelving, *, actor: str) -> Shelved:
    ACTORS.append(actor)
    shelved = look(store, study_id, table, settings)
    SHELF.extend(shelved.books)
    return shelved


def test_an_import_is_declared_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    SHELF.clear()
    places = {"here:guess": guess, "here:look": look, "here:take": take}
    monkeypatch.setattr("tutelage.people.operations._function", lambda place: places[place])
    shelve = TableImport("shelve", "Shelve books.", Shelving, "here:guess", "here:look", "here:take")
    settings = commands.settings_of(shelve)
    given = commands.given_values(settings_from(settings, ["study", "--words", "a", "--words", "b c"], prog="shelve"))
    table = Table("books", (TableRow("row 1", {"name": "Emma"}), TableRow("row 2", {"name": "Ulysses"})), ())
    assert shelve.settings_for(table, given) == Shelving("name", ("a", "b c"))

    api = tuple(operation_routes(shelve))
    monkeypatch.setattr(app, "API_ROUTES", (*app.API_ROUTES, *api))
    site = World(world.store, world.study)
    body = openapi(api)["components"]["schemas"]["ShelvingRows"]
    assert (set(body["properties"]), body["required"]) == ({"rows", "title", "words", "most"}, ["rows"])
    token = create_token(world.store, world.study.id, NewToken("books", ("manage",))).secret
    headers, address = {"authorization": f"Bearer {token}"}, "/api/v1/operations/shelve"
    sent = {"rows": [row.values for row in table.rows], "most": 1}
    expected = {"settings": {"title": "name", "words": [], "most": 1}, "books": ["Emma"]}
    assert site.client.post(f"{address}/preview", json=sent, headers=headers).json() == expected
    assert SHELF == []
    assert site.client.post(address, json=sent, headers=headers).json() == expected
    assert (SHELF, ACTORS[-1]) == (["Emma"], "program books")
    for refused in ({"most": 1}, sent | {"most": 10}, sent | {"shelf": 1}, sent | {"rows": []}):
        assert site.client.post(address, json=refused, headers=headers).status_code == 400


@pytest.mark.parametrize("operation", IMPORTS, ids=lambda operation: operation.name)
def test_every_import_has_a_command_and_a_form_for_all_its_fields(operation: TableImport[Any], world: World) -> None:
    flags = {flag.names[0] for flag in flags_of(SUBCOMMANDS[operation.name])}
    assert {f"--{each.flag.replace('_', '-')}" for each in operation.parameters} <= flags
    owner = world.owner()
    rows = "prompt,response_1,response_2,winner,rater\nWhy?,So.,No.,a,Ann\nWhy?,,No.,a,Ann\n"
    page = owner.get(owner.file(f"/owner/{operation.name}/file?name=x.csv", rows.encode()).json()["address"]).text
    named = set(re.findall(r'name="(\w+)"', page))
    assert {each.name for each in operation.parameters} <= named
